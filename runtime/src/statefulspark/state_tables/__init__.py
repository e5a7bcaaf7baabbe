"""The states of a checkpoint or savepoint as tables: Arrow, pandas and Spark DataFrames (docs/state-tables.md).

>>> from statefulspark import state_tables
>>> state_tables.read_pandas("s3://bucket/checkpoints/shop/chk-7", "orders", "cart")  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from statefulspark.checkpoint.catalog import open_checkpoint
from statefulspark.checkpoint.inspect.decoding import type_text
from statefulspark.checkpoint.inspect.reader import state_infos
from statefulspark.state.store.own_backend import trust_backend
from statefulspark.state.types.arrow_types import Conversions
from statefulspark.state_tables.read.frames import frame_of
from statefulspark.state_tables.read.reading import StateReader
from statefulspark.state_tables.write.key_deletion import KeyDeletion, delete_keys_of
from statefulspark.state_tables.write.rewriting import WrittenSavepoint
from statefulspark.state_tables.write.savepoint_writer import SavepointWriter
from statefulspark.storage.open import open_store
from statefulspark.storage.storage_settings import StorageSettings

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession

__all__ = [
    "KeyDeletion",
    "SavepointWriter",
    "StateTable",
    "StorageSettings",
    "WrittenSavepoint",
    "delete_keys",
    "list_states",
    "read_arrow",
    "read_batches",
    "read_pandas",
    "register",
    "trust_backend",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTable:
    """A state that can be read as a table.

    Attributes:
        uid: The step.
        state: Name of the state; ``event-timers`` and ``processing-timers`` are the timers of a step.
        kind: ``value``, ``list``, ``map``, ``reducing``, ``aggregating``, ``event-timers``, ``processing-timers``, ``raw-keyed``,
            ``operator-list``, ``operator-union``, ``operator-broadcast`` or ``raw-operator``.
        type: The declared type, e.g. ``MAP(STRING, LONG)``; empty for timers and raw state.
        ttl_ms: Time to live in milliseconds, None if values do not expire.
        schema: Columns of the table.
    """

    uid: str
    state: str
    kind: str
    type: str
    ttl_ms: int | None
    schema: pa.Schema


def list_states(path: str, *, storage: StorageSettings | None = None) -> list[StateTable]:
    """List the states of a checkpoint or savepoint, by uid and name. Reads its ``_metadata`` only.

    Args:
        path: URL or path of a checkpoint, a savepoint, or a job's folder for its newest complete checkpoint.
        storage: Settings of an S3-compatible store. Credentials default to those of the AWS tools.

    Raises:
        InvalidInputError: There is no checkpoint.
        CorruptDataError: Its ``_metadata`` is damaged, or (IncompatibleFormatError) of an unknown version.
        UnavailableError: Storage did not answer.
    """
    checkpoint = open_checkpoint(path, partial(open_store, settings=storage))
    return [
        StateTable(
            uid=info.uid,
            state=info.name,
            kind=info.kind,
            type=type_text(info.type),
            ttl_ms=info.ttl_ms,
            schema=StateReader(checkpoint, info.uid, info.name).schema,
        )
        for info in sorted(state_infos(checkpoint), key=lambda info: (info.uid, info.name))
    ]


def read_batches(
    path: str,
    uid: str,
    state: str,
    *,
    keys: Iterable[Any] | None = None,
    include_expired: bool = False,
    with_expiry: bool = False,
    unpickle: bool = False,
    decimals_as_text: bool = False,
    storage: StorageSettings | None = None,
) -> pa.RecordBatchReader:
    """Read a state as a stream of record batches, in bounded memory.

    The files of one slot at a time are downloaded into a temporary folder and verified. Close the reader (it is a context manager) if you do
    not exhaust it.

    >>> for batch in read_batches("file:///checkpoints/shop/chk-7", "orders", "cart"):  # doctest: +SKIP
    ...     print(batch.num_rows)

    Args:
        path: URL or path of a checkpoint, a savepoint, or a job's folder for its newest complete checkpoint.
        uid: The step.
        state: Name of the state; ``event-timers`` and ``processing-timers`` are the timers of a step.
        keys: Only these keys, a tuple each for several key columns. Only the slots that have their key groups are read, if the checkpoint says
            how keys are hashed (since format version 3).
        include_expired: Also show values that have expired by the processing time of the checkpoint's last batch and are still stored.
        with_expiry: Add the column ``expires_ms``, when a value expires (milliseconds since the epoch; of a list its last element).
        unpickle: Show pickled objects as text (``repr``) and not as bytes. Unpickling runs code that the bytes name: only for checkpoints
            you trust.
        decimals_as_text: Show ``BIG_DEC`` as text and not as ``decimal(38, 18)``, ``BIG_INT`` as text and not as ``decimal(38, 0)``.
        storage: Settings of an S3-compatible store. Credentials default to those of the AWS tools.

    Returns:
        A reader with the schema of the table.

    Raises:
        InvalidInputError: There is no such checkpoint, uid, state or kind of key; the message lists what exists. Or a value does not fit its
            column.
        CorruptDataError: An object is missing or damaged; the message names it. Choose an older checkpoint.
        UnavailableError: Storage did not answer.
    """
    conversions = Conversions(unpickle=unpickle, decimals_as_text=decimals_as_text)
    checkpoint = open_checkpoint(path, partial(open_store, settings=storage))
    reader = StateReader(checkpoint, uid, state, include_expired=include_expired, with_expiry=with_expiry, conversions=conversions)
    parts = reader.parts(keys)

    def batches() -> Iterator[pa.RecordBatch]:
        for part in parts:
            yield from reader.batches(part)

    return pa.RecordBatchReader.from_batches(reader.schema, batches())


def read_arrow(path: str, uid: str, state: str, **options: Any) -> pa.Table:
    """Read a state as an Arrow table; arguments and errors as of `read_batches`.

    >>> read_arrow("file:///checkpoints/shop/chk-7", "orders", "cart", keys=["ada"])  # doctest: +SKIP
    """
    with read_batches(path, uid, state, **options) as batches:
        return batches.read_all()


def read_pandas(path: str, uid: str, state: str, **options: Any) -> pd.DataFrame:
    """Read a state as a pandas DataFrame; arguments and errors as of `read_batches`.

    Columns have Arrow types (``pandas.ArrowDtype``), so a null stays a null and an integer an integer.

    >>> read_pandas("file:///checkpoints/shop/chk-7", "orders", "cart").groupby("currency").size()  # doctest: +SKIP
    """
    return frame_of(read_arrow(path, uid, state, **options))


def delete_keys(path: str, target: str, uid: str, keys: Collection[Any], *, storage: StorageSettings | None = None) -> KeyDeletion:
    """Write a canonical savepoint without some keys: neither their state nor their timers, of one step.

    Everything else is as in the origin, which is only read: delete it yourself. Each call writes a complete savepoint; for keys in several
    steps, delete from the savepoint of the last call. The local disk needs space for one slot's files three times.

    >>> done = delete_keys("s3://bucket/savepoint-shop-1", "s3://bucket/erased", "orders", ["ada"])  # doctest: +SKIP
    >>> done.url, done.deleted, done.not_found, done.not_searched  # doctest: +SKIP
    ('s3://bucket/erased/savepoint-shop-1f2e3d4c5b6a', {'cart': 1, 'event-timers': 2}, (), ())

    Args:
        path: URL or path of a checkpoint, a savepoint, or a job's folder for its newest complete checkpoint.
        target: Folder in which the savepoint is made, under a new name.
        uid: The keyed step.
        keys: At least one, a tuple each for several key columns. Keys that are not there are no error; the result names them.
        storage: Settings of an S3-compatible store, for both places. Credentials default to those of the AWS tools.

    Returns:
        Where the savepoint is, and what it does not have. It also names what may hold data of the keys and cannot be searched.

    Raises:
        InvalidInputError: There is no such checkpoint or uid, a key is not of the key's types, or there are none. Nothing was written.
        CorruptDataError: A file or an entry of the origin is damaged; the message names it. Nothing was published.
        UnavailableError: Storage did not answer, or the local disk is full. Nothing was published, unless the text names a savepoint.
    """
    opener = partial(open_store, settings=storage)
    return delete_keys_of(open_checkpoint(path, opener), target, uid, keys, open_store=opener)


def register(spark: SparkSession, *, storage: StorageSettings | None = None) -> None:
    """Make ``spark.read.format("statefulspark")`` known to a session.

    >>> state_tables.register(spark)  # doctest: +SKIP
    >>> spark.read.format("statefulspark").option("uid", "orders").option("state", "cart").load("s3://bucket/savepoint-1")  # doctest: +SKIP

    Args:
        spark: The session.
        storage: Settings of an S3-compatible store. They travel to the executors in the class of the data source, never in options, which
            Spark prints. Credentials default to those of the AWS tools, on each executor.
    """
    from statefulspark.state_tables.read.data_source import register_in  # noqa: PLC0415  pyspark takes seconds to import

    register_in(spark, storage or StorageSettings())
