"""Pipelines that count, each an entry point of its own: as they should be, and with mistakes in function, key or sink.

Rows are JSON lines with account, at, amount and shop. Pipelines with timers, two steps or every kind of state are beside this file.
"""

from __future__ import annotations

import json
import logging
import os
import signal
from pathlib import Path
from typing import Any

from statefulspark import KeyedProcessFunction, RuntimeContext, Types, ValueStateDescriptor

SHOP = logging.getLogger("shop")
INPUT = "account string, at timestamp, amount bigint, shop string"
COUNTED = "key string, number bigint, total bigint"


def rows_of(job: Any) -> Any:
    """The source: one file per batch."""
    return job.spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1).json(job.args[0])


def written(job: Any, df: Any) -> Any:
    """The sink."""
    return df.writeStream.format("parquet").option("path", job.args[1]).outputMode("append")


class Count(KeyedProcessFunction):
    """Numbers the rows of a key and sums them up."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.number = runtime_context.get_state(ValueStateDescriptor("number", Types.LONG()))
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.number.update((self.number.value() or 0) + 1)
        self.total.update((self.total.value() or 0) + value.amount)
        yield ctx.get_current_key(), self.number.value(), self.total.value()


def one_step(function: Count, key: str = "account", uid: str = "count") -> Any:
    """A pipeline of one step."""
    return lambda job: written(job, job.key_by(rows_of(job), key).process(function, COUNTED, uid=uid, event_time="at"))


counts = one_step(Count())
other_key = one_step(Count(), key="shop")
renamed = one_step(Count(), uid="count-2")


def beside(job: Any) -> Any:
    """A step for rows with an amount; those without go past it to the sink. A batch takes all files there are."""
    source = job.spark.readStream.schema(INPUT).json(job.args[0])
    keyed = job.key_by(source.where("amount > 0"), "account").process(Count(), COUNTED, uid="count", event_time="at")
    past = source.where("amount = 0").selectExpr("account as key", "cast(0 as bigint) as number", "amount as total")
    return written(job, keyed.union(past))


class Misspelt(Count):
    """What a hasty edit of Count makes of it."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.number = runtime_context.get_state(ValueStateDescriptor("number", Types.LONG()))
        self.total = runtime_context.get_state(ValueStateDescriptor("totl", Types.LONG()))


misspelt = one_step(Misspelt())


class Numbered(KeyedProcessFunction):
    """Numbers the rows of a key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.number = runtime_context.get_state(ValueStateDescriptor("number", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.number.update((self.number.value() or 0) + 1)
        yield ctx.get_current_key(), self.number.value()


def rates(job: Any) -> Any:
    """Three rows of each of three keys per batch, for ever, into a sink that skips batches it has."""
    out = Path(job.args[1])
    out.mkdir(exist_ok=True)

    def sink(df: Any, batch: int) -> None:
        rows, path = [list(row) for row in df.collect()], out / f"{batch:04d}.json"
        if not path.exists():
            hidden = out / f".{batch}"
            hidden.write_text(json.dumps(rows))
            hidden.rename(path)

    source = job.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 9).load().selectExpr("value % 3 AS key")
    numbered = job.key_by(source, "key").process(Numbered(), "key bigint, number bigint", uid="count")
    return numbered.writeStream.outputMode("append").foreachBatch(sink).trigger(processingTime="300 milliseconds")


def deleting(job: Any) -> Any:
    """A source whose files Spark deletes once it has read them."""
    source = job.spark.readStream.schema(INPUT).option("CleanSource", "delete").json(job.args[0])
    return written(job, job.key_by(source, "account").process(Count(), COUNTED, uid="count", event_time="at"))


def branches(job: Any) -> Any:
    """Two steps side by side, whose tasks are one stage."""
    source = rows_of(job)
    accounts = job.key_by(source, "account").process(Count(), COUNTED, uid="accounts", event_time="at")
    shops = job.key_by(source, "shop").process(Count(), COUNTED, uid="shops", event_time="at")
    return written(job, accounts.union(shops))


def counted_twice(job: Any) -> Any:
    """A foreachBatch sink that evaluates its DataFrame twice: it counts, then writes."""
    out = Path(job.args[1])

    def sink(df: Any, batch: int) -> None:
        number = df.count()
        rows = [list(row) for row in df.collect()]
        out.mkdir(exist_ok=True)
        (out / f"{batch:04d}.json").write_text(json.dumps({"count": number, "rows": rows}))

    counted = job.key_by(rows_of(job), "account").process(Count(), COUNTED, uid="count", event_time="at")
    return counted.writeStream.foreachBatch(sink)


class Fragile(Count):
    """Count, until it meets the amount that a job parameter names; notes each time that happens, and what it remembers of that before."""

    def __init__(self, calls: Path) -> None:
        self.calls = calls
        self.raised = 0

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self.unlucky = int(runtime_context.get_job_parameter("unlucky", "0"))
        self.attempt = runtime_context.get_attempt_number()

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        for result in super().process_element(value, ctx):
            if value.amount == self.unlucky:
                self.raised += 1
                SHOP.info("the unlucky amount, attempt %s", self.attempt)
                SHOP.debug("not to be seen")
                print("printed by the function")  # noqa: T201  users do
                refuse_amount(self.calls, f"attempt {self.attempt} raised {self.raised}\n")
            yield result


def refuse_amount(calls: Path, note: str) -> None:
    with calls.open("a") as file:
        file.write(note)
    raise ValueError("thirteen is not for me")


def fragile(job: Any) -> Any:
    """The step of ``counts`` with a defect."""
    function = Fragile(Path(job.args[1]).parent / "calls")
    return written(job, job.key_by(rows_of(job), "account").process(function, COUNTED, uid="count", event_time="at"))


def printing(job: Any) -> Any:
    """``fragile``, which prints."""
    print("printed by the pipeline")  # noqa: T201  users do
    return fragile(job)


def misspelt_column(job: Any) -> Any:
    """``counts`` of a column that does not exist."""
    return written(job, job.key_by(rows_of(job).select("acount"), "account").process(Count(), COUNTED, uid="count", event_time="at"))


class Misfit(Count):
    """Gives out text where the schema says a number."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        for key, number, _ in super().process_element(value, ctx):
            yield key, number, "a lot"


misfit = one_step(Misfit())


def with_key_of(expression: str) -> Any:
    """A pipeline keyed by an expression."""

    def pipeline(job: Any) -> Any:
        rows = rows_of(job).selectExpr("amount", "at", f"{expression} as k")
        return written(job, job.key_by(rows, "k").process(Count(), COUNTED, uid="count", event_time="at"))

    return pipeline


by_map = with_key_of("map(account, amount)")
by_array = with_key_of("array(account)")
by_double = with_key_of("cast(amount as double)")


def filtered(job: Any) -> Any:
    """``counts`` without rows that have no account."""
    return written(
        job, job.key_by(rows_of(job).where("account is not null"), "account").process(Count(), COUNTED, uid="count", event_time="at")
    )


def wide(job: Any) -> Any:
    """Count over parquet files of wide rows, one batch for all of them."""
    rows = job.spark.readStream.schema(INPUT).parquet(job.args[0])
    return written(job, job.key_by(rows, "account").process(Count(), COUNTED, uid="count", event_time="at"))


def stubborn(job: Any) -> Any:
    """A sink that raises as long as there is a file named broken beside the input."""
    counted = job.key_by(rows_of(job), "account").process(Count(), COUNTED, uid="count", event_time="at")
    broken = Path(job.args[0]).parent / "broken"

    def write(df: Any, batch: int) -> None:
        df.write.mode("overwrite").parquet(f"{job.args[1]}/{batch}")
        if broken.exists():
            raise ConnectionError("the warehouse is closed")

    return counted.writeStream.foreachBatch(write)


def misspelt_sink(job: Any) -> Any:
    """A format that Spark does not have."""
    return counts(job).format("parqet")


def from_kafka(job: Any) -> Any:
    """A source whose jars were not added."""
    return (
        job.spark.readStream.format("kafka").option("kafka.bootstrap.servers", "127.0.0.1:1").option("subscribe", "in").load().writeStream
    )


def to_kafka(job: Any) -> Any:
    """A sink whose jars were not added."""
    return counts(job).format("kafka")


def wrong_output_mode(job: Any) -> Any:
    """A mode that is for aggregations."""
    return counts(job).outputMode("complete")


def sink_without_path(job: Any) -> Any:
    """A file sink that does not say where."""
    return job.key_by(rows_of(job), "account").process(Count(), COUNTED, uid="count", event_time="at").writeStream.format("parquet")


def sink_that_cannot_start(job: Any) -> Any:
    """Spark looks for the partition column when the query starts, not before."""
    return counts(job).partitionBy("nosuch")


def raises(job: Any) -> Any:
    """A mistake in the pipeline function itself."""
    return counts(job).option("path", 1 // len(job.args[2:]))


class Deadly(Count):
    """Like Count; a row of account deadly ends the slot's process, as a crash in native code would."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        if value.account == "deadly":
            os.kill(os.getpid(), signal.SIGKILL)
        yield from super().process_element(value, ctx)


deadly = one_step(Deadly())


class DeadlyRestore(Count):
    """Like Count; the process of the first slot dies before it serves, as a file that crashes RocksDB would end it."""

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        slot = runtime_context.get_index_of_this_subtask()
        with (Path(runtime_context.get_job_parameter("lives", "")) / f"slot-{slot}").open("a") as lives:
            lives.write(f"{os.getpid()}\n")
        if slot == 0:
            os.kill(os.getpid(), signal.SIGSEGV)


deadly_restore = one_step(DeadlyRestore())


CARELESS = (
    lambda df: None,
    lambda df: df.take(3),
    lambda df: df.isEmpty(),
    lambda df: (df.collect(), df.take(1)),
    lambda df: df.coalesce(1).collect(),
    lambda df: df.union(df).coalesce(3).take(1),
    lambda df: df.where("false").collect(),
    lambda df: df.collect(),
)
"""What sinks do with a batch: most read a part of it, or nothing."""


def careless(job: Any) -> Any:
    """A sink that does something else with each batch."""
    keyed = job.key_by(rows_of(job), "account").process(Count(), COUNTED, uid="count", event_time="at")
    return keyed.writeStream.outputMode("append").foreachBatch(lambda df, number: CARELESS[number % len(CARELESS)](df) and None)


def takes_what_is_available(job: Any) -> Any:
    """A query that ends by itself, whose sink takes a few rows of each batch."""
    keyed = job.key_by(rows_of(job), "account").process(Count(), COUNTED, uid="count", event_time="at")
    return keyed.writeStream.foreachBatch(lambda df, _: df.take(2) and None).trigger(availableNow=True)
