"""Makes a savepoint with a state whose rows are in files: what ``statefulspark bootstrap`` does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pyarrow as pa

from statefulspark.checkpoint.catalog import OpenStore, StoredCheckpoint
from statefulspark.checkpoint.formats.pipeline import SAME_KEY
from statefulspark.checkpoint.inspect.reader import find_state
from statefulspark.errors import InvalidInputError
from statefulspark.state.types.arrow_types import Conversions
from statefulspark.state_tables.bootstrap.bootstrapping import NewState
from statefulspark.state_tables.bootstrap.declarations import Declaration, NamedColumns, inferred
from statefulspark.state_tables.bootstrap.row_files import RowFiles
from statefulspark.state_tables.bootstrap.state_rows import EXPIRES, MAP_KEY, VALUE
from statefulspark.state_tables.read.reading import StateReader
from statefulspark.state_tables.write.changes import Changes
from statefulspark.state_tables.write.rewriting import WrittenSavepoint, rewrite, write_new

_NEW_NAME = "bootstrap"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileBootstrap:
    """Request to make state from the rows of files.

    Attributes:
        uid: The keyed step.
        state: Name of the state.
        columns: Of the rows. Without keys they are those of the step in the origin.
        kind: Of a new state.
        ttl_ms: Time to live of a new state, None if its values do not expire.
        is_new: True for a state that the origin does not have. Without an origin it is new in any case.
        max_parallelism: Number of key groups; None for that of the origin.
    """

    uid: str
    state: str
    columns: NamedColumns
    kind: str = "value"
    ttl_ms: int | None = None
    is_new: bool = False
    max_parallelism: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrapped:
    """Result of making state from rows.

    Attributes:
        savepoint: Where it is.
        declared: The state.
        rows: Number of rows.
        merged: True if the rows have changed a state of the origin.
    """

    savepoint: WrittenSavepoint
    declared: Declaration
    rows: int
    merged: bool


def bootstrap_files(
    wanted: FileBootstrap,
    rows_url: str,
    target_url: str,
    origin: StoredCheckpoint | None,
    *,
    open_store: OpenStore,
    open_rows: OpenStore,
    progress: Callable[[str], None] = lambda _: None,
) -> Bootstrapped:
    """Write a canonical savepoint with the rows of files.

    Args:
        wanted: What they are.
        rows_url: A file, or a folder of files (`RowFiles`).
        target_url: Folder in which the savepoint is made, under a new name.
        origin: A checkpoint or savepoint to start with, None to start with nothing. It is only read.
        open_store: Opens the store of the target.
        open_rows: Opens the store of the rows.
        progress: Called with the name of each part before it is written.

    Raises:
        InvalidInputError: Rows, columns, state or origin do not fit each other. Nothing was published.
        CorruptDataError: A file or an entry of the origin is damaged; the message names it. Nothing was published.
        UnavailableError: Storage did not answer, or the local disk is full. Nothing was published, unless the text names a savepoint.
    """
    known = Declaration.stored(find_state(origin, wanted.uid, wanted.state)) if origin is not None and not wanted.is_new else None
    columns = _with_defaults(wanted, origin, known)
    types = _types(origin, wanted.uid, known, columns) if origin is not None and known is not None else None
    files = RowFiles(rows_url, open_store=open_rows, columns=types)
    first = files.schema
    if known is not None and known.ttl_ms is not None and columns.expires is None and EXPIRES in first.names:
        columns = replace(columns, expires=EXPIRES)
    columns.check(first)
    declared = known or inferred(wanted.state, wanted.kind, first, columns, wanted.ttl_ms)
    rows, counted = files.reader(columns.renamed(first, declared), progress)
    added = NewState(uid=wanted.uid, declared=declared, rows=rows, key_columns=columns.keys, merge=known is not None)
    if origin is None:
        done = write_new(_NEW_NAME, wanted.max_parallelism or 0, target_url, [added], open_store=open_store, progress=progress)
    else:
        done = rewrite(
            origin, target_url, Changes(), max_parallelism=wanted.max_parallelism, added=[added], open_store=open_store, progress=progress
        )
    return Bootstrapped(savepoint=done, declared=declared, rows=counted.rows, merged=known is not None)


def _with_defaults(wanted: FileBootstrap, origin: StoredCheckpoint | None, known: Declaration | None) -> NamedColumns:
    columns = wanted.columns
    if not columns.keys:
        columns = replace(columns, keys=_stored_key(origin, wanted.uid))
    if known is not None and known.kind == "map" and columns.map_key is None:
        columns = replace(columns, map_key=MAP_KEY)
    if known is not None and known.kind != "map" and columns.map_key is not None:
        raise InvalidInputError(f"{known.name!r} is no map", field="map key", remedy="Leave it out")
    return columns


def _stored_key(origin: StoredCheckpoint | None, uid: str) -> tuple[str, ...]:
    """Return the key columns of a step; of two inputs, those of the first."""
    pipeline = origin.metadata.pipeline if origin is not None else None
    step = pipeline.step(uid) if pipeline is not None else None
    if step is None:
        raise InvalidInputError("there are none", field="key columns", remedy="Name the columns by which the step is keyed")
    return tuple(column.name.partition(SAME_KEY)[0] for column in step.columns)


def _types(origin: StoredCheckpoint, uid: str, known: Declaration, columns: NamedColumns) -> pa.Schema:
    """Return the columns of rows without types, such as those of JSON lines, that a stored state has."""
    reader = StateReader(origin, uid, known.name, with_expiry=known.ttl_ms is not None, conversions=Conversions())
    value = columns.values[0] if len(columns.values) == 1 else VALUE
    names = {VALUE: value, MAP_KEY: columns.map_key or MAP_KEY, EXPIRES: columns.expires or EXPIRES}
    return pa.schema([each.with_name(names.get(each.name, each.name)) for each in reader.schema if each.name != "key_group"])
