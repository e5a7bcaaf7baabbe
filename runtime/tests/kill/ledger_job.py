"""The job of the kill tests: a ledger per account with value, list and map state and both kinds of order-sensitive output.

Each row gives out its number within the account, the running balance and the number of distinct shops so far, so one row that is lost,
doubled or out of order changes every later row of its account. An event-time timer closes an account's quiet period.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from statefulspark import (
    AggregateFunction,
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    OutputTag,
    ProcessWindowFunction,
    RuntimeContext,
    Time,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
)

QUIET_MS = 5_000
OUTPUT = "account string, kind string, number bigint, balance bigint, shops bigint, at bigint"
INPUT = "account string, at timestamp, amount bigint, shop string"
QUIET = OutputTag("quiet", OUTPUT)


class Books:
    """Counts, sums and remembers per account."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get the states."""
        self.balance = runtime_context.get_state(ValueStateDescriptor("balance", Types.LONG()))
        self.number = runtime_context.get_state(ValueStateDescriptor("number", Types.LONG()))
        self.shops = runtime_context.get_map_state(MapStateDescriptor("shops", Types.STRING(), Types.LONG()))
        self.recent = runtime_context.get_list_state(ListStateDescriptor("recent", Types.LONG()))
        self.timer = runtime_context.get_state(ValueStateDescriptor("timer", Types.LONG()))

    def booked(self, shop: str, amount: int, ctx: Any) -> Any:
        """Book one row."""
        number = (self.number.value() or 0) + 1
        self.number.update(number)
        balance = (self.balance.value() or 0) + amount
        self.balance.update(balance)
        self.shops.put(shop, (self.shops.get(shop) or 0) + 1)
        recent = [*self.recent.get(), amount][-3:]
        self.recent.update(recent)
        due = self.timer.value()
        quiet = due is not None and due <= (ctx.timestamp() or 0)
        if due is not None:
            ctx.timer_service().delete_event_time_timer(due)
        if quiet:
            yield ctx.get_current_key(), "quiet", number - 1, balance - amount, 0, due
        at = ctx.timestamp() or 0
        self.timer.update(at + QUIET_MS)
        ctx.timer_service().register_event_time_timer(at + QUIET_MS)
        yield ctx.get_current_key(), "row", number, balance, sum(1 for _ in self.shops.keys()), at

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        """The account was quiet for a while."""
        self.timer.clear()
        yield ctx.get_current_key(), "quiet", self.number.value(), self.balance.value(), 0, timestamp


class Ledger(Books, KeyedProcessFunction):
    """The books of one input."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        """Book one row."""
        yield from self.booked(value.shop, value.amount, ctx)


def pipeline(job: Any) -> Any:
    """Files in, ledger, files out."""
    source, target = job.args[0], job.args[1]
    rows = job.spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1).parquet(source)
    ledger = job.key_by(rows, "account").process(Ledger(), OUTPUT, uid="ledger", event_time="at", watermark="1 second")
    return ledger.writeStream.format("parquet").option("path", target).outputMode("append")


class QuietAside(Ledger):
    """Tells of quiet periods in a side output, from rows and from timers."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        """Book one row."""
        for row in super().process_element(value, ctx):
            yield (QUIET, row) if row[1] == "quiet" else row

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        """The account was quiet for a while."""
        for row in super().on_timer(timestamp, ctx):
            yield QUIET, row


def two_outputs(job: Any) -> Any:
    """Files in, ledger, and a folder per output and batch, which a batch that runs again replaces."""
    source, target = job.args[0], Path(job.args[1])
    rows = job.spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1).parquet(source)
    ledger = job.key_by(rows, "account").process(
        QuietAside(), OUTPUT, uid="ledger", event_time="at", watermark="1 second", side_outputs=[QUIET]
    )

    def into(name: str) -> Any:
        return lambda df, batch_id: df.write.mode("overwrite").parquet(str(target / name / f"batch={batch_id}"))

    return job.outputs(ledger, main=into("main"), quiet=into("quiet"))


class TwoSided(Books, KeyedCoProcessFunction):
    """The books of two inputs: what the first brings, and what the second takes."""

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any:
        """Book one row of the first input."""
        yield from self.booked(value.shop, value.amount, ctx)

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any:
        """Book one row of the second input."""
        yield from self.booked(value.place, -value.taken, ctx)


def two_inputs(job: Any) -> Any:
    """Files of two folders in, books, files out. The columns of the inputs have other names and another order."""
    source, target = job.args[0], job.args[1]
    first = job.spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1).parquet(f"{source}/first")
    second = job.spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1).parquet(f"{source}/second")
    second = second.selectExpr("shop AS place", "amount AS taken", "at AS time", "account AS owner")
    books = (
        job.key_by(first, "account")
        .connect(job.key_by(second, "owner"))
        .process(TwoSided(), OUTPUT, uid="ledger", event_time1="at", watermark1="1 second", event_time2="time", watermark2="1 second")
    )
    return books.writeStream.format("parquet").option("path", target).outputMode("append")


def between_spark_steps(job: Any) -> Any:
    """Files in, each row once by Spark's memory of all before, ledger, Spark's windows per second and kind, files out."""
    source, target = job.args[0], job.args[1]
    rows = job.spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1).parquet(source)
    once = rows.dropDuplicates(["account", "at", "amount", "shop"])
    ledger = job.key_by(once, "account").process(Ledger(), OUTPUT, uid="ledger", event_time="at", watermark="1 second")
    timed = ledger.withColumn("time", F.timestamp_millis("at")).withWatermark("time", "10 seconds")
    summed = timed.groupBy(F.window("time", "1 second"), "kind").agg(
        F.count("*").alias("number"), F.sum("number").alias("numbers"), F.sum("balance").alias("balances"), F.sum("shops").alias("shops")
    )
    flat = summed.select(F.unix_millis("window.start").alias("start"), "kind", "number", "numbers", "balances", "shops")
    return flat.writeStream.format("parquet").option("path", target).outputMode("append")


class Remembering(Ledger, CheckpointedFunction):
    """Counts the rows of a slot in an attribute, which only snapshots write."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Go on counting."""
        self.counted = context.get_operator_state_store().get_list_state(ListStateDescriptor("rows", Types.LONG()))
        self.rows = sum(self.counted.get())

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Write the count."""
        self.counted.update([self.rows])

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        """Book one row."""
        self.rows += 1
        yield from super().process_element(value, ctx)


class Sums(AggregateFunction[Any, Any, Any]):
    """Number of rows, and sums of their numbers, balances and shops."""

    def create_accumulator(self) -> Any:
        """Nothing yet."""
        return 0, 0, 0, 0

    def add(self, value: Any, accumulator: Any) -> Any:
        """One more row."""
        return self.merge(accumulator, (1, value.number, value.balance, value.shops))

    def get_result(self, accumulator: Any) -> Any:
        """All of them."""
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        """One by one."""
        return tuple(a + b for a, b in zip(acc_a, acc_b, strict=True))


class PerSecond(ProcessWindowFunction):
    """Adds the second and the kind."""

    def process(self, key: Any, context: ProcessWindowFunction.Context, elements: list[Any]) -> Any:
        """Of one second."""
        yield context.window().max_timestamp() - 999, key, *elements[0]


def with_windows(job: Any) -> Any:
    """Files in, ledger with operator state, windows per second and kind, files out."""
    source, target = job.args[0], job.args[1]
    rows = job.spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1).parquet(source)
    ledger = job.key_by(rows, "account").process(Remembering(), OUTPUT, uid="ledger", event_time="at", watermark="1 second")
    windows = job.key_by(ledger.withColumn("time", F.timestamp_millis("at")), "kind").window(TumblingEventTimeWindows.of(Time.seconds(1)))
    columns = "start bigint, kind string, number bigint, numbers bigint, balances bigint, shops bigint"
    counted = windows.aggregate(
        Sums(), PerSecond(), Types.PICKLED_BYTE_ARRAY(), columns, uid="seconds", event_time="time", watermark="10 seconds"
    )
    return counted.writeStream.format("parquet").option("path", target).outputMode("append")
