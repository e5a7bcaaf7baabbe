"""Translates keyed steps into ordinary Spark operations around the exchange.

source → key hash, slot → (union second input, or broadcast stream exploded over all slots) → (union tick source) → repartitionById(slot) → mapInArrow(exchange) → the user's further steps.

Column names may contain any characters, and Spark reads some of them as syntax where it looks a column up by name. So expressions refer to columns by
their positions (`_numbered`), and the exchange gives the rows their names back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql import types as T  # noqa: N812  Spark's own convention

from statefulspark.checkpoint.formats.pipeline import SAME_KEY, KeyColumn, StepKey
from statefulspark.errors import InvalidInputError
from statefulspark.exchange.config import ExchangeConfig
from statefulspark.exchange.rendezvous import present
from statefulspark.exchange.task import exchange_partition, spare_collector
from statefulspark.keygroups import slot_expression
from statefulspark.pipeline.column_names import quoted
from statefulspark.pipeline.tagged_streams import TaggedStream, tagged_struct
from statefulspark.process.api.output_tag import OutputTag
from statefulspark.process.rows.reserved_columns import FIRST, KEY_HASH, PART, SECOND, SECOND_SOURCES, SLOT, SOURCE
from statefulspark.process.rows.step_spec import StepSpec
from statefulspark.rpc.messages.batches import PartitionRun

if TYPE_CHECKING:
    from statefulspark.pipeline.job import Job

__all__ = ["Keyed", "add_step", "exchange_function"]

_BATCH_ID = "streaming.sql.batchId"
_EXECUTION_ID = "spark.sql.execution.id"

Keyed: TypeAlias = tuple[DataFrame, tuple[str, ...]]
"""A stream, and the columns that it is keyed by."""


def add_step(
    job: Job,
    step: StepSpec,
    inputs: Sequence[Keyed],
    schema: T.StructType,
    side_outputs: Sequence[OutputTag] | None,
    *,
    broadcast: DataFrame | None = None,
) -> DataFrame | TaggedStream:
    """Add a keyed step to the job, and return its result: a TaggedStream if it has side outputs.

    Args:
        job: The job.
        step: What slots run.
        inputs: One keyed stream, or two.
        schema: The rows of the main output.
        side_outputs: The tags of the others; None for none.
        broadcast: A stream of which every slot gets every row.

    Raises:
        InvalidInputError: The uid is taken.
    """
    key = _step_key(job, step.uid, inputs)
    job.add_step(step, key, [*(df for df, _ in inputs), *(() if broadcast is None else (broadcast,))])
    if side_outputs is None:
        return _exchange(job, inputs, broadcast, key, schema)
    stream = TaggedStream(step.uid, _exchange(job, inputs, broadcast, key, tagged_struct(schema, side_outputs)))
    job.add_tagged_stream(stream)
    return stream


def _step_key(job: Job, uid: str, inputs: Sequence[Keyed]) -> StepKey:
    df = inputs[0][0]
    columns = tuple(
        KeyColumn(name=SAME_KEY.join(names), type=df.schema[names[0]].dataType.simpleString())
        for names in zip(*(keys for _, keys in inputs), strict=True)
    )
    return StepKey(uid=uid, hashing=job.hashing(uid), columns=columns)


def _exchange(job: Job, inputs: Sequence[Keyed], broadcast: DataFrame | None, key: StepKey, schema: T.StructType) -> DataFrame:
    """The Spark plan of one keyed step."""
    parallelism, groups = job.parallelism, job.max_parallelism
    rows = _rows(inputs, key) if broadcast is None else _keyed_structs(inputs, 0, [inputs[0][0], _with_part(broadcast)], key)
    columns = rows.schema.fields[2:]
    rows = rows.withColumn(SLOT, F.expr(slot_expression(KEY_HASH, parallelism, groups)))
    if broadcast is not None:
        rows = rows.union(_in_every_slot(broadcast, columns, parallelism))
    ticks = job.tick_stream(key.uid).select(F.explode(F.sequence(F.lit(0), F.lit(parallelism - 1))).alias(SLOT))
    ticks = ticks.select(
        F.lit(None).cast("bigint").alias(KEY_HASH),
        F.col(SLOT).alias(SOURCE),
        *[F.lit(None).cast(field.dataType).alias(field.name) for field in columns],
        F.col(SLOT),
    )
    united = rows.union(ticks).repartitionById(parallelism, F.col(SLOT)).drop(SLOT)
    names = (KEY_HASH, SOURCE, *(field.name for field in columns))
    config = ExchangeConfig(coordinator=job.endpoint, uid=key.uid, max_parallelism=groups, parallelism=parallelism)
    return _numbered(united).mapInArrow(exchange_function(config, names), schema)


def _rows(inputs: Sequence[Keyed], key: StepKey) -> DataFrame:
    """The rows with hash and source: the columns of one input, or a struct for each of two, of which one is not null."""
    if len(inputs) == 1:
        df, keys = inputs[0]
        named = [F.col(place).alias(name) for place, name in zip(_places(df), df.columns, strict=True)]
        return _numbered(df).select(_key_hash(df, keys, key), F.spark_partition_id().alias(SOURCE), *named)
    dfs = [df for df, _ in inputs]
    return _keyed_structs(inputs, 0, dfs, key).union(_keyed_structs(inputs, 1, dfs, key))


def _keyed_structs(inputs: Sequence[Keyed], number: int, both: Sequence[DataFrame], key: StepKey) -> DataFrame:
    """The rows of one of two inputs, in the struct of its place; the other struct is null."""
    df, keys = inputs[number]
    source = F.spark_partition_id() + F.lit(SECOND_SOURCES) if number else F.spark_partition_id()
    structs = [_packed(df) if place == number else F.lit(None).cast(_struct(other)) for place, other in enumerate(both)]
    named = [struct.alias(name) for struct, name in zip(structs, (FIRST, SECOND), strict=True)]
    return _numbered(df).select(_key_hash(df, keys, key), source.alias(SOURCE), *named)


def _places(df: DataFrame) -> list[str]:
    return [f"c{place}" for place in range(len(df.columns))]


def _numbered(df: DataFrame) -> DataFrame:
    """The same rows, with the columns named by their positions."""
    return df.toDF(*_places(df))


def _packed(df: DataFrame) -> Column:
    """The row in one column; ``df`` is read by position."""
    return F.struct(*[F.col(place).alias(name) for place, name in zip(_places(df), df.columns, strict=True)])


def _with_part(broadcast: DataFrame) -> DataFrame:
    """The rows of a broadcast stream, each with the partition of the source that it comes from."""
    named = [F.col(place).alias(name) for place, name in zip(_places(broadcast), broadcast.columns, strict=True)]
    return _numbered(broadcast).select(F.spark_partition_id().alias(PART), *named)


def _in_every_slot(broadcast: DataFrame, columns: Sequence[T.StructField], parallelism: int) -> DataFrame:
    """The rows of a broadcast stream once for each slot: without a key hash, and with the slot as their source, as ticks."""
    df = _with_part(broadcast)
    rows = _numbered(df).select(_packed(df).alias(SECOND))
    every = rows.select(F.explode(F.sequence(F.lit(0), F.lit(parallelism - 1))).alias(SLOT), F.col(SECOND))
    return every.select(
        F.lit(None).cast("bigint").alias(KEY_HASH),
        F.col(SLOT).alias(SOURCE),
        F.lit(None).cast(columns[0].dataType).alias(FIRST),
        F.col(SECOND),
        F.col(SLOT),
    )


def _struct(df: DataFrame) -> T.StructType:
    # Without metadata: Spark would take the delay of an earlier withWatermark for a watermark of the output.
    return T.StructType([T.StructField(field.name, field.dataType, field.nullable) for field in df.schema.fields])


def _key_hash(df: DataFrame, keys: Sequence[str], key: StepKey) -> Column:
    """The hash of the key columns of ``df``, by position; a null key fails the batch in Spark, before any state is touched."""
    columns = [F.col(_places(df)[df.columns.index(name)]) for name in keys]
    hashed = [column.cast(kind) for column, (_, kind) in zip(columns, key.hashed, strict=True)]
    null_key = F.lit(False)
    for column in columns:
        null_key = null_key | column.isNull()
    first = keys[0] if keys[0].isidentifier() else quoted(keys[0])
    message = (
        f"InvalidInputError: key_by: a row of uid '{key.uid}' has a null key in {', '.join(keys)}. "
        f"Filter such rows before key_by, for example df.where('{first} is not null')"
    )
    return F.when(null_key, F.raise_error(F.lit(message)).cast("bigint")).otherwise(F.xxhash64(*hashed)).alias(KEY_HASH)


def exchange_function(config: ExchangeConfig, names: Sequence[str]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function Spark runs on each partition of a keyed step, whose columns have these names."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context: Any = TaskContext.get()
        batch_id = context.getLocalProperty(_BATCH_ID) if context is not None else None
        if batch_id is None:
            raise InvalidInputError(
                "a keyed step ran outside its streaming query",
                field=config.uid,
                remedy="Start the job with `statefulspark run`, or with start() in a notebook. In threads of foreachBatch, use pyspark.InheritableThread: the "
                "threads of a ThreadPoolExecutor do not know which batch they work for",
            )
        spare_collector()
        here = replace(config, coordinator=present(config.coordinator))
        task = PartitionRun(str(context.getLocalProperty(_EXECUTION_ID)), context.partitionId(), context.taskAttemptId())
        named = (batch.rename_columns(names) for batch in batches)
        return exchange_partition(here, int(batch_id), task, named)

    return run
