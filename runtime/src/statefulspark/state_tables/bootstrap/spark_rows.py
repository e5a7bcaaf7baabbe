"""Takes the rows of a Spark DataFrame: Spark's tasks encode and sort them, and the driver writes the entries to its local disk.

The encoded rows are kept on the disks of the executors until all of them are sound and their size is known. They are then sorted in as many partitions
as keep each small, and the driver fetches one partition after the other, in blocks of Arrow: its memory holds two partitions at most.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from statefulspark.errors import InvalidInputError
from statefulspark.state_tables.bootstrap.given_rows import numbered
from statefulspark.state_tables.bootstrap.state_rows import ROWS_MAX, StateRows
from statefulspark.state_tables.write.sorted_entries import Entry, SortedEntries

_ENCODED: Final = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("error", pa.string())])
"""An entry or, of a row that does not fit, the error."""
_HASH: Final = "hash"
_BLOCK: Final = "block"
_PARTITION_BYTES: Final = 8 << 20
"""Keys and values that a sorted partition should have. The JVM of the driver needs several times as much for each: with 32 MiB, two exhausted 1 GiB."""

Batches = Iterator[pa.RecordBatch]


class SparkRows:
    """The rows of a DataFrame; `GivenRows` says what the methods do.

    Args:
        frame: Not a streaming one. Spark reads it once, or again where an executor is lost.
        partition_bytes: Keys and values that a sorted partition should have.

    Raises:
        InvalidInputError: It is a streaming DataFrame, or has a column of a type that Arrow does not have.
    """

    def __init__(self, frame: DataFrame, *, partition_bytes: int = _PARTITION_BYTES) -> None:
        if frame.isStreaming:
            raise InvalidInputError(
                "a streaming DataFrame has no end", field="rows", remedy="Read the rows with spark.read, not with spark.readStream"
            )
        self._frame = frame
        self._partition_bytes = partition_bytes
        self.schema = _arrow_schema(frame.schema)

    def add_to(self, added: SortedEntries, rows: StateRows) -> None:
        encoded = self._encoded(rows).persist(StorageLevel.DISK_ONLY)
        try:
            ((count, size_bytes, error),) = encoded.agg(
                F.count("key"), F.sum(F.length("key") + F.length("value")), F.min("error")
            ).collect()
            if error is not None:
                raise InvalidInputError(**json.loads(error))
            entries = _Counted(_sorted(encoded, 1 + (size_bytes or 0) // self._partition_bytes))
            added.add_runs(iter(entries))
        finally:
            encoded.unpersist()
        if entries.repeated:
            names = ", ".join(json.dumps(name, ensure_ascii=False) for name in rows.identity)
            raise InvalidInputError(
                f"keys with several rows: {entries.repeated:,}",
                field=f"rows of state {rows.info.name!r} of uid {rows.info.uid!r}",
                remedy=f"Keep one row for each, for example with dropDuplicates([{names}])",
            )
        if entries.count != count:
            raise InvalidInputError(
                f"Spark found {count:,} rows and then {entries.count:,}",
                field="rows",
                remedy="Write the DataFrame to a table first, and pass that: it gives other rows each time",
            )

    def _encoded(self, rows: StateRows) -> DataFrame:
        """Return the entries of all rows; key groups follow from Spark's own hash, which is the one by which a job shuffles."""
        # Names may have any character, also those that Spark's expressions take for syntax.
        names = self.schema.names
        plain = self._frame.toDF(*(f"c{number}" for number in range(len(names))))
        hashed: list[Column] = [F.col(f"c{names.index(name)}").cast(kind) for name, kind in rows.hashed]
        return plain.withColumn(_HASH, F.xxhash64(*hashed)).mapInArrow(
            partial(_entries, rows, names), "key binary, value binary, error string"
        )


class _Counted:
    """Entries without those of repeated keys, which are counted: equal keys follow each other."""

    def __init__(self, entries: Iterator[Entry]) -> None:
        self._entries = entries
        self.count = 0
        self.repeated = 0

    def __iter__(self) -> Iterator[Entry]:
        last: bytes | None = None
        first = True
        for key, value in self._entries:
            self.count += 1
            if key == last:
                self.repeated += first
                first = False
                continue
            last, first = key, True
            yield key, numbered(value, None)


def _sorted(encoded: DataFrame, partitions: int) -> Iterator[Entry]:
    """Fetch all entries, sorted within each partition; the entries of a key are in one partition."""
    ordered = encoded.select("key", "value").repartition(partitions, "key").sortWithinPartitions("key")
    blocks = ordered.mapInArrow(_packed, f"{_BLOCK} binary").toLocalIterator(prefetchPartitions=True)
    for row in blocks:
        with pa.ipc.open_stream(pa.py_buffer(row[_BLOCK])) as reader:
            for batch in reader:
                yield from zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)


def _packed(batches: Batches) -> Batches:
    """Pack each batch into one value. Runs in a task of Spark."""
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield pa.RecordBatch.from_arrays([pa.array([sink.getvalue().to_pybytes()], pa.binary())], names=[_BLOCK])


def _entries(rows: StateRows, names: list[str], batches: Batches) -> Batches:
    """Encode rows, up to the first that does not fit. Runs in a task of Spark."""
    for whole in batches:
        for start in range(0, whole.num_rows, ROWS_MAX):
            *columns, hashes = whole.slice(start, ROWS_MAX).columns
            try:
                entries = list(rows.entries(pa.RecordBatch.from_arrays(columns, names=names), None, hashes))
            except InvalidInputError as error:
                # Raised, it would be in a stack of Spark, after as many attempts as a task has.
                text = json.dumps({"message": error.message, "field": error.field, "remedy": error.remedy})
                yield pa.RecordBatch.from_pylist([{"error": text}], _ENCODED)
                return
            keys, values = (pa.array([entry[part] for entry in entries], pa.binary()) for part in (0, 1))
            yield pa.RecordBatch.from_arrays([keys, values, pa.nulls(len(entries), pa.string())], schema=_ENCODED)


def _arrow_schema(schema: StructType) -> pa.Schema:
    convert: Callable[[StructType], pa.Schema] = partial(to_arrow_schema, timezone="UTC")
    fields = []
    for field in schema.fields:
        try:
            fields.append(convert(StructType([field])).field(0))
        except PySparkException:
            raise InvalidInputError(
                f"column {field.name!r} has the type {field.dataType.simpleString()}, which Arrow does not have",
                field="rows",
                remedy="Cast it, for example to string",
            ) from None
    return pa.schema(fields)
