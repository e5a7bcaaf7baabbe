"""A pipeline in three versions: steps and sources are added, change places, and are dropped, and a key column becomes wider."""

from __future__ import annotations

from typing import Any

from statefulspark import KeyedProcessFunction, RuntimeContext, Types, ValueStateDescriptor

INPUT = "account string, at timestamp, amount bigint, shop string"
COUNTED = "step string, key string, number bigint"


class Number(KeyedProcessFunction):
    """Numbers the rows of a key."""

    def __init__(self, step: str) -> None:
        self.step = step

    def open(self, runtime_context: RuntimeContext) -> None:
        self.number = runtime_context.get_state(ValueStateDescriptor("number", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.number.update((self.number.value() or 0) + 1)
        yield self.step, str(ctx.get_current_key()), self.number.value()


def _rows(job: Any, folder: str) -> Any:
    return job.spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1).json(f"{job.args[0]}/{folder}")


def _step(job: Any, df: Any, key: str, uid: str) -> Any:
    return job.key_by(df, key).process(Number(uid), COUNTED, uid=uid, event_time="at")


def _written(job: Any, df: Any) -> Any:
    return df.writeStream.format("parquet").option("path", job.args[1]).outputMode("append")


def first(job: Any) -> Any:
    """Two steps over one source; one of them has an int for a key."""
    rows = _rows(job, "one")
    amounts = _step(job, rows.selectExpr("cast(amount as int) as amount", "at"), "amount", "amounts")
    return _written(job, _step(job, rows, "account", "accounts").union(amounts))


def only_amounts(job: Any) -> Any:
    """The second step of ``first`` alone."""
    return _written(job, _step(job, _rows(job, "one").selectExpr("cast(amount as int) as amount", "at"), "amount", "amounts"))


def second(job: Any) -> Any:
    """A step over a new source comes first, the others change places, and the int is a bigint."""
    rows = _rows(job, "one")
    shops = _step(job, _rows(job, "two"), "shop", "shops")
    return _written(job, shops.union(_step(job, rows, "amount", "amounts")).union(_step(job, rows, "account", "accounts")))


def third(job: Any) -> Any:
    """One of the two steps over the first source is dropped, and the sources change places."""
    return _written(job, _step(job, _rows(job, "one"), "account", "accounts").union(_step(job, _rows(job, "two"), "shop", "shops")))
