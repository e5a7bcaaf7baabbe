"""Type checkers and editors know what a state holds. ``make lint`` proves it: mypy checks each ``assert_type``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, assert_type

from statefulspark import (
    AggregatingState,
    AggregatingStateDescriptor,
    BroadcastState,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    Row,
    RuntimeContext,
    Types,
    ValueState,
    ValueStateDescriptor,
)
from statefulspark.testing import KeyedProcessHarness

from .mean import Mean

COLUMNS = "user STRING, amount BIGINT"


class Typed(KeyedProcessFunction):
    """Uses each kind of state once."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))
        self.amounts = runtime_context.get_list_state(ListStateDescriptor("amounts", Types.LONG()))
        self.seen = runtime_context.get_map_state(MapStateDescriptor("seen", Types.STRING(), Types.SQL_TIMESTAMP()))
        self.total = runtime_context.get_reducing_state(ReducingStateDescriptor("total", lambda a, b: a + b, Types.LONG()))
        self.mean = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("mean", Mean(), Types.TUPLE([Types.LONG(), Types.LONG()]))
        )
        assert_type(self.count, ValueState[int])
        assert_type(self.amounts, ListState[int])
        assert_type(self.seen, MapState[str, datetime])
        assert_type(self.total, ReducingState[int])
        assert_type(self.mean, AggregatingState[int, float])

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        count = assert_type(self.count.value(), int | None)
        self.count.update((count or 0) + 1)
        self.amounts.add(value.amount)
        assert_type(self.amounts.get(), Iterator[int])
        self.seen.put(value.user, datetime(2026, 1, 1))  # noqa: DTZ001  # times in rows have no zone
        assert_type(self.seen.get("ada"), datetime | None)
        self.total.add(value.amount)
        self.mean.add(value.amount)
        yield value.user, assert_type(self.total.get(), int | None)


if TYPE_CHECKING:

    def other_types(store: RuntimeContext, context: KeyedBroadcastProcessFunction.Context) -> None:
        """What is nested, what an editor cannot know, and what a wrong type is."""
        assert_type(store.get_state(ValueStateDescriptor("s", Types.LIST(Types.BIG_DEC()))), ValueState[list[Decimal]])
        assert_type(store.get_state(ValueStateDescriptor("s", Types.MAP(Types.STRING(), Types.DOUBLE()))), ValueState[dict[str, float]])
        anything = store.get_state(ValueStateDescriptor("s", Types.PICKLED_BYTE_ARRAY()))
        assert_type(anything, ValueState[Any])
        row: ValueState[Row] = store.get_state(ValueStateDescriptor("s", Types.ROW_NAMED(["n"], [Types.LONG()])))
        del row
        assert_type(context.get_broadcast_state(MapStateDescriptor("rules", Types.STRING(), Types.DOUBLE())), BroadcastState[str, float])
        store.get_state(ValueStateDescriptor("s", Types.INT())).update("1")  # type: ignore[arg-type]  # the mistake
        nullable: ValueState[list[str | None]] = store.get_state(ValueStateDescriptor("s", Types.LIST(Types.STRING())))
        del nullable
        several = [MapStateDescriptor("a", Types.STRING(), Types.DOUBLE()), MapStateDescriptor("b", Types.INT(), Types.STRING())]
        assert_type(several[0].get_name(), str)
        bare: ValueStateDescriptor = ValueStateDescriptor("s", Types.INT())
        assert_type(store.get_state(bare), ValueState[Any])


def test_typed_states_work() -> None:
    """The types are those of the values, also while the function runs."""
    with KeyedProcessHarness(Typed(), COLUMNS, "user STRING, total BIGINT", key="user") as harness:
        harness.process_elements([("ada", 1), ("ada", 2)])
        assert harness.get_output() == [("ada", 1), ("ada", 3)]
