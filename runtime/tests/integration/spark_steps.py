"""Pipelines with stateful steps of Spark's own around a keyed step. Rows are JSON lines with account, at, amount and shop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from statefulspark import KeyedProcessFunction, RuntimeContext, Types, ValueStateDescriptor

INPUT = "account string, at timestamp, amount bigint, shop string"
NUMBERED = "account string, at timestamp, number bigint, total bigint, shop string"


def rows_of(job: Any) -> Any:
    """The source: one file per batch."""
    return job.spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1).json(job.args[0])


class Number(KeyedProcessFunction):
    """Numbers the rows of a key and sums them up."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.number = runtime_context.get_state(ValueStateDescriptor("number", Types.LONG()))
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.number.update((self.number.value() or 0) + 1)
        self.total.update((self.total.value() or 0) + value.amount)
        yield value.account, value.at, self.number.value(), self.total.value(), value.shop


def numbered(job: Any, rows: Any) -> Any:
    """The keyed step."""
    return job.key_by(rows, "account").process(Number(), NUMBERED, uid="number", event_time="at")


def collected(job: Any, df: Any, mode: str) -> Any:
    """A sink that writes each batch's rows to a file of its own; a batch that comes again replaces its file."""
    out = Path(job.args[1])

    def sink(batch: Any, number: int) -> None:
        rows = [list(row) for row in batch.collect()]
        out.mkdir(exist_ok=True)
        hidden = out / f".{number:04d}"
        hidden.write_text(json.dumps(rows))
        hidden.rename(out / f"{number:04d}.json")

    return df.writeStream.outputMode(mode).foreachBatch(sink)


def per_shop(job: Any) -> Any:
    """An aggregation after the keyed step: rows and largest running total per shop."""
    return numbered(job, rows_of(job)).groupBy("shop").agg(F.count("*").alias("n"), F.max("total").alias("top"))


def complete(job: Any) -> Any:
    """All groups in every batch."""
    return collected(job, per_shop(job), "complete")


def update(job: Any) -> Any:
    """Changed groups in every batch."""
    return collected(job, per_shop(job), "update")


def windows(job: Any) -> Any:
    """Equal rows are dropped before the keyed step; after it, windows of 100 ms, each given out once, go to Parquet."""
    rows = numbered(job, rows_of(job).dropDuplicates(["account", "at", "amount", "shop"])).withWatermark("at", "50 milliseconds")
    counted = rows.groupBy(F.window("at", "100 milliseconds"), "shop").agg(F.count("*").alias("n"), F.sum("number").alias("numbers"))
    flat = counted.select(F.unix_millis("window.start").alias("start"), "shop", "n", "numbers")
    return flat.writeStream.format("parquet").option("path", job.args[1]).partitionBy("shop").outputMode("append")


def joined(job: Any) -> Any:
    """What the keyed step gives out is joined with the stream itself, and the first pairs are kept."""
    left = numbered(job, rows_of(job)).select("account", "at", "number").alias("l")
    right = rows_of(job).select("account", "at", "amount").alias("r")
    pairs = left.join(right, F.expr("l.account = r.account and l.at > r.at")).select("l.account", "number", "amount")
    return pairs.limit(600).writeStream.format("parquet").option("path", job.args[1]).outputMode("append")
