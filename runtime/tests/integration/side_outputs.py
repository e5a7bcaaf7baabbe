"""The pipelines of the tests of side outputs: an amount per row, checked against the sum so far."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from statefulspark import KeyedProcessFunction, OutputTag, RuntimeContext, Types, ValueStateDescriptor

INPUT = "account string, at timestamp, amount bigint, shop string"
BOOKED = "account string, total bigint"
REFUSED = OutputTag("refused", "account string, at timestamp, amount bigint")
IDLE = OutputTag("idle-accounts", "account string not null, at bigint")


class Book(KeyedProcessFunction):
    """Books an amount unless the account would be overdrawn; tells when an account was idle for ten seconds of event time."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
        self.calls = runtime_context.get_job_parameter("calls", "")

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        if self.calls:
            with Path(self.calls).open("a") as calls:
                calls.write(".")
        total = (self.total.value() or 0) + value.amount
        ctx.timer_service().register_event_time_timer((ctx.timestamp() or 0) + 10_000)
        if total < 0:
            yield REFUSED, (value.account, value.at, value.amount)
        else:
            self.total.update(total)
            yield value.account, total

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        yield IDLE, {"account": ctx.get_current_key(), "at": timestamp}


def _booked(job: Any, *tags: OutputTag) -> Any:
    rows = job.spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1).json(job.args[0])
    return job.key_by(rows, "account").process(Book(), BOOKED, uid="book", event_time="at", side_outputs=list(tags))


def _into(job: Any, name: str) -> Any:
    """A sink that has each batch in a folder of its own, so that a batch that runs again replaces itself."""
    folder = Path(job.args[1]) / name
    return lambda df, batch_id: df.write.mode("overwrite").parquet(str(folder / f"batch={batch_id}"))


def three_outputs(job: Any) -> Any:
    """Each output has a sink of its own; one of them is transformed first."""

    def refused(df: Any, batch_id: int) -> None:
        _into(job, "refused")(df.groupBy("account").agg({"amount": "sum", "at": "max"}).toDF("account", "amount", "at"), batch_id)

    return job.outputs(_booked(job, REFUSED, IDLE), main=_into(job, "main"), refused=refused, **{"idle-accounts": _into(job, "idle")})


def discarding(job: Any) -> Any:
    """One output alone is wanted, and its sink reads a single row of it."""
    seen = Path(job.args[1])

    def refused(df: Any, batch_id: int) -> None:
        seen.mkdir(exist_ok=True)
        (seen / str(batch_id)).write_text(str(len(df.take(1))))

    return job.outputs(_booked(job, REFUSED, IDLE), main=None, refused=refused, **{"idle-accounts": None})


def dies_between(job: Any) -> Any:
    """The second output fails for batch 1 until a file says otherwise."""
    write, mark = _into(job, "refused"), Path(job.args[1]) / "failed"

    def refused(df: Any, batch_id: int) -> None:
        if batch_id == 1 and not mark.exists():
            mark.touch()
            raise RuntimeError("the disk of this sink is full")
        write(df, batch_id)

    return job.outputs(_booked(job, REFUSED, IDLE), main=_into(job, "main"), refused=refused, **{"idle-accounts": None})


def unwritten(job: Any) -> Any:
    """The result of the step goes nowhere."""
    _booked(job, REFUSED)
    rows = job.spark.readStream.schema(INPUT).json(job.args[0])
    return rows.writeStream.format("parquet").option("path", job.args[1])


def same_name(job: Any) -> Any:
    """Two tags of one name."""
    return job.outputs(_booked(job, REFUSED, OutputTag("refused", "account string")), main=_into(job, "main"), refused=None)


def keyed_again(job: Any) -> Any:
    """A step that reads an output of another step."""
    again = job.key_by(_booked(job, REFUSED), "account").process(Book(), BOOKED, uid="again", event_time="at")
    return again.writeStream.format("parquet").option("path", job.args[1])
