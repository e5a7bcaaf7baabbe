"""SavepointWriter: changes a savepoint by writing a new one. Flink's State Processor API has the same names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from statefulspark.checkpoint.catalog import open_checkpoint
from statefulspark.errors import InvalidInputError
from statefulspark.state.api.descriptors import StateDescriptor
from statefulspark.state_tables.bootstrap.bootstrapping import NewState
from statefulspark.state_tables.bootstrap.declarations import Declaration
from statefulspark.state_tables.bootstrap.given_rows import Rows
from statefulspark.state_tables.write.changes import Changes, State, check_max_parallelism
from statefulspark.state_tables.write.rewriting import WrittenSavepoint, rewrite, write_new
from statefulspark.storage.open import open_store
from statefulspark.storage.storage_settings import StorageSettings

_K = TypeVar("_K", str, State)


@dataclass(frozen=True, slots=True)
class SavepointWriter:
    """Collects changes and writes a savepoint with them. Each method returns a new writer.

    All names are those of the existing savepoint, and all changes apply together: two uids can swap their names, and a state of a renamed uid
    is named by the old uid.

    >>> writer = SavepointWriter.from_existing_savepoint("s3://bucket/savepoint-shop-1")
    >>> writer = writer.change_operator_identifier("orders", "carts").rename_state("orders", "cart", "content")
    >>> writer.write("s3://bucket/rewritten").url  # doctest: +SKIP
    's3://bucket/rewritten/savepoint-shop-1f2e3d4c5b6a'
    """

    _path: str | None
    _storage: StorageSettings | None = None
    _changes: Changes = field(default_factory=Changes)
    _max_parallelism: int | None = None
    _name: str = ""
    _added: tuple[NewState, ...] = ()

    @classmethod
    def from_existing_savepoint(cls, path: str, *, storage: StorageSettings | None = None) -> SavepointWriter:
        """Start with everything that a savepoint or checkpoint has.

        Args:
            path: URL or path of a checkpoint, a savepoint, or a job's folder for its newest complete checkpoint.
            storage: Settings of an S3-compatible store, for both places. Credentials default to those of the AWS tools.
        """
        return cls(path, storage)

    @classmethod
    def new_savepoint(cls, max_parallelism: int, *, name: str = "bootstrap", storage: StorageSettings | None = None) -> SavepointWriter:
        """Start with a savepoint of no job. A job that starts from it reads its sources from their beginning.

        Args:
            max_parallelism: Number of key groups, 1 to 32,768, which the job then has.
            name: Part of the name of the savepoint's folder: letters, digits, dots and hyphens.
            storage: Settings of an S3-compatible store. Credentials default to those of the AWS tools.

        Raises:
            InvalidInputError: The number is out of range, or the name has other characters.
        """
        check_max_parallelism(max_parallelism)
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]{0,62}", name):
            raise InvalidInputError("expected letters, digits, dots and hyphens", field="name", remedy="Choose another name")
        return cls(None, storage, _max_parallelism=max_parallelism, _name=name)

    def change_operator_identifier(self, uid: str, new_uid: str) -> SavepointWriter:
        """Give a keyed step another uid.

        Raises:
            InvalidInputError: The uid has another new name already.
        """
        return self._with(replace(self._changes, uids=_added(self._changes.uids, uid, new_uid, "uid")))

    def rename_state(self, uid: str, state: str, new_name: str) -> SavepointWriter:
        """Give a state another name. Timers, raw state and the states of windows and rolling aggregations keep theirs.

        Raises:
            InvalidInputError: The state has another new name already.
        """
        return self._with(replace(self._changes, states=_added(self._changes.states, (uid, state), new_name, "state")))

    def remove_operator(self, uid: str) -> SavepointWriter:
        """Leave out a keyed step, with its states, timers and watermarks. The positions of its sources stay."""
        return self._with(replace(self._changes, removed_uids=self._changes.removed_uids | {uid}))

    def remove_state(self, uid: str, state: str) -> SavepointWriter:
        """Leave out a state; ``event-timers`` and ``processing-timers`` are the timers of a step."""
        return self._with(replace(self._changes, removed_states=self._changes.removed_states | {(uid, state)}))

    def with_max_parallelism(self, max_parallelism: int) -> SavepointWriter:
        """Move every key to the key group that it has among so many, 1 to 32,768. A job that starts from the savepoint has so many."""
        return replace(self, _max_parallelism=max_parallelism)

    def with_state(
        self, uid: str, descriptor: StateDescriptor, rows: Rows, *, key_columns: Sequence[str], merge: bool = False
    ) -> SavepointWriter:
        """Add a state with a row per key, of a map with a row per entry. Replace a state by ``remove_state`` and this.

        The columns are those of the state's table (docs/state-tables.md) without ``key_group``: the key columns, ``map_key`` of maps, and ``value``
        or the fields of a ``ROW``. With time to live there may be ``expires_ms``; by default values expire as if written now.

        >>> import pyarrow as pa
        >>> from statefulspark import Types, ValueStateDescriptor
        >>> carts = pa.table({"user": ["ada"], "value": [3]})
        >>> writer = SavepointWriter.new_savepoint(128)
        >>> writer = writer.with_state("orders", ValueStateDescriptor("cart", Types.LONG()), carts, key_columns=["user"])

        Args:
            uid: The keyed step, as the new savepoint names it.
            descriptor: As the job declares the state: value, list, map, reducing or aggregating (rows have accumulators).
            rows: A Spark DataFrame, a pyarrow Table or RecordBatchReader, which is read once, or a pandas DataFrame. Row numbers in errors begin
                with 0; rows of Spark have none. Spark encodes and sorts the rows of a DataFrame, and memory is bounded here.
            key_columns: The key, with the names, the order and the types that it has in the stream.
            merge: True to replace what an existing state has of these keys (of maps, of these entries); False for a new state.
        """
        state = NewState(uid=uid, declared=Declaration.of(descriptor), rows=rows, key_columns=tuple(key_columns), merge=merge)
        return replace(self, _added=(*self._added, state))

    def write(self, target: str) -> WrittenSavepoint:
        """Write the savepoint, which is canonical. The existing one is only read.

        The local disk needs space for one slot's files three times. With another maximum parallelism, also for all entries twice, uncompressed.

        Args:
            target: Folder in which the savepoint is made, under a new name.

        Raises:
            InvalidInputError: There is no such checkpoint, or a change cannot be made, or a row does not fit: the message says which. Nothing
                was published.
            CorruptDataError: A file or an entry of the existing savepoint is damaged; the message names it. Nothing was published.
            UnavailableError: Storage did not answer, or the local disk is full. Nothing was published, unless the text names a savepoint.
        """
        opener = partial(open_store, settings=self._storage)
        if self._path is None:
            if self._changes:
                raise InvalidInputError("a new savepoint has nothing to rename or remove", field="changes", remedy="Leave it out")
            return write_new(self._name, self._max_parallelism or 1, target, self._added, open_store=opener)
        origin = open_checkpoint(self._path, opener)
        return rewrite(origin, target, self._changes, max_parallelism=self._max_parallelism, added=self._added, open_store=opener)

    def _with(self, changes: Changes) -> SavepointWriter:
        return replace(self, _changes=changes)


def _added(known: Mapping[_K, str], key: _K, new: str, field: str) -> dict[_K, str]:
    if known.get(key, new) != new:
        raise InvalidInputError(f"{key!r} has two new names", field=field, remedy="Give it one")
    return {**known, key: new}
