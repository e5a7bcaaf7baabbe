"""A pipeline of small functions, for test_transformations.py."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from statefulspark import FilterFunction, RuntimeContext, Types, ValueStateDescriptor

INPUT = "account string, at timestamp, amount int, shop string"


class NotTheFirst(FilterFunction):
    """Drops the first row of each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.BOOLEAN()))

    def filter(self, value: Any) -> bool:
        seen = self.seen.value() is not None
        self.seen.update(True)
        return seen


def pipeline(job: Any) -> Any:
    """Filter by a computed key, sum up by shop, and show the sums."""
    rows = job.spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1).json(job.args[0])
    later = job.key_by(rows, lambda row: F.upper(row.account)).filter(NotTheFirst(), uid="later", event_time="at")
    sums = job.key_by(later, "shop").sum("amount", uid="sums", event_time="at")
    output = Types.ROW_NAMED(["shop", "account", "total"], [Types.STRING(), Types.STRING(), Types.LONG()])
    shown = job.key_by(sums, lambda row: row.shop).map(lambda row: (row.shop, row.account, row.amount), output, uid="shown")
    return shown.writeStream.format("parquet").option("path", job.args[1]).outputMode("append")
