"""A value that a state cannot keep is refused by one sentence that names the state once and ends with the remedy, wherever the value is put."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from datetime import time as clock
from typing import Any

import pytest

from statefulspark import (
    AggregatingStateDescriptor,
    CheckpointedFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    Row,
    RuntimeContext,
    StateTtlConfig,
    Time,
    Types,
    ValueStateDescriptor,
)
from statefulspark.errors import InvalidInputError
from statefulspark.state.types.types import TypeInformation
from statefulspark.testing import KeyedProcessHarness

from .mean import Mean

NOW = datetime(2026, 10, 25, 2, 30, tzinfo=UTC)
REFUSED: list[tuple[TypeInformation, Any, str]] = [
    (Types.INT(), 1 << 31, "does not fit the 4 byte(s) of Types.INT(). Declare a wider type."),
    (Types.LONG(), 1 << 63, "does not fit"),
    (Types.LONG(), True, "expected int for Types.LONG(), got bool"),
    (Types.DOUBLE(), 10**400, "the number does not fit Types.DOUBLE(). Declare Types.BIG_INT() or Types.BIG_DEC()."),
    (Types.STRING(), "\ud800", "cannot store. Replace it: text.encode(errors='replace').decode()"),
    (Types.SQL_TIMESTAMP(), NOW, "Give value.astimezone(UTC).replace(tzinfo=None)"),
    (Types.SQL_DATE(), NOW, "got datetime. Give its .date()"),
    (Types.SQL_TIME(), clock(1, tzinfo=UTC), "Give value.replace(tzinfo=None)"),
    (Types.TUPLE([Types.INT()]), (1 << 31,), "Declare a wider type."),
    (Types.PICKLED_BYTE_ARRAY(), sys, "Keep plain data."),
    (Types.LIST(Types.STRING()), ["\ud800"], "Replace it: text.encode(errors='replace').decode()"),
    (Types.PRIMITIVE_ARRAY(Types.INT()), [1 << 31], "Declare a wider type."),
    (Types.ROW_NAMED(["a"], [Types.LONG()]), Row(b=1), "the fields of the Row are not those of"),
]
PUT: dict[str, Callable[[RuntimeContext, TypeInformation, Any], Any]] = {
    "value": lambda context, type_, value: context.get_state(ValueStateDescriptor("s", type_)).update(value),
    "list": lambda context, type_, value: context.get_list_state(ListStateDescriptor("s", type_)).add(value),
    "map": lambda context, type_, value: context.get_map_state(MapStateDescriptor("s", Types.LONG(), type_)).put(0, value),
    "map key": lambda context, type_, value: context.get_map_state(MapStateDescriptor("s", type_, Types.LONG())).put(value, 0),
    "reducing": lambda context, type_, value: context.get_reducing_state(ReducingStateDescriptor("s", lambda _, new: new, type_)).add(
        value
    ),
}


class Puts(KeyedProcessFunction):
    """Puts one value into one state; it is refused when it is put, or when the batch ends."""

    def __init__(self, put: str, type_: TypeInformation, number: int) -> None:
        self.put, self.type, self.number = put, type_, number

    def open(self, runtime_context: RuntimeContext) -> None:
        self.context = runtime_context

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        PUT[self.put](self.context, self.type, REFUSED[self.number][1])


@pytest.mark.parametrize("put", PUT)
@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_the_state_is_named_once_and_the_remedy_comes_last(put: str, number: int) -> None:
    """For each kind of state and each kind of mistake, nested ones too."""
    type_, _, remedy = REFUSED[number]
    with KeyedProcessHarness(Puts(put, type_, number), "key STRING", "key STRING", key="key") as harness:
        with pytest.raises(InvalidInputError) as caught:
            harness.process_element(("a",))
        text = str(caught.value)
        assert text.count("state 's' of uid 'harness'") == 1
        assert text.count(remedy) == 1
        assert ".. " not in text
        assert "\n" not in text
        assert caught.value.remedy is None or text.endswith(caught.value.remedy)


class Declares(KeyedProcessFunction):
    """Declares what a test gives."""

    def __init__(self, declare: Callable[[RuntimeContext], Any]) -> None:
        self.declare = declare

    def open(self, runtime_context: RuntimeContext) -> None:
        self.state = self.declare(runtime_context)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.state.update(0)
        yield str(self.state.value())


def declared(declare: Callable[[RuntimeContext], Any]) -> Any:
    with KeyedProcessHarness(Declares(declare), "key STRING", "out STRING", key="key") as harness:
        harness.set_processing_time(1_800_000_000_000)
        harness.process_element(("a",))
        return harness.get_output()


def mean() -> AggregatingStateDescriptor:
    return AggregatingStateDescriptor("s", Mean(), Types.TUPLE([Types.LONG(), Types.LONG()]))


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda context: context.get_state(ListStateDescriptor("s", Types.LONG())), "expected a ValueStateDescriptor, got a ListStateDescriptor"),
        (lambda context: context.get_state("s"), "expected a ValueStateDescriptor, got a str"),
        (lambda context: context.get_list_state(ValueStateDescriptor("s", Types.LONG())), "expected a ListStateDescriptor"),
        (lambda context: context.get_map_state(mean()), "expected a MapStateDescriptor"),
        (lambda context: context.get_reducing_state(mean()), "expected a ReducingStateDescriptor"),
        (lambda context: context.get_aggregating_state(ValueStateDescriptor("s", Types.LONG())), "expected an? AggregatingStateDescriptor"),
        (lambda _: ValueStateDescriptor(5, Types.LONG()), "state name: expected text, got an int. Give a short stable name"),  # type: ignore[arg-type]  # the mistake
        (lambda _: ValueStateDescriptor("\ud800", Types.LONG()), "state name: the text contains an unpaired surrogate"),
        (lambda _: ValueStateDescriptor("", Types.LONG()), "expected 1 to 255 bytes of text. Give"),
        (lambda _: ValueStateDescriptor("s", Types.LONG()).enable_time_to_live(Time.hours(1)), "expected a StateTtlConfig, got a Time"),  # type: ignore[arg-type]  # the mistake
        (lambda _: StateTtlConfig.new_builder(Time.seconds(0.0005)), "at least one millisecond, and whole. Give it as Time"),  # type: ignore[arg-type]  # the mistake
        (lambda _: StateTtlConfig.new_builder(Time(0)), "at least one millisecond"),
    ],
)  # fmt: skip
def test_a_wrong_declaration_is_refused(declare: Callable[[Any], Any], message: str) -> None:
    """By the method that gets it, not by whatever uses the state later."""
    with pytest.raises(InvalidInputError, match=message):
        declared(declare)


def test_two_times_to_live_of_one_state_are_told() -> None:
    """The types alone would be the same twice."""

    def declare(context: RuntimeContext) -> Any:
        fading = ValueStateDescriptor("s", Types.LONG())
        fading.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
        context.get_state(ValueStateDescriptor("s", Types.LONG()))
        return context.get_state(fading)

    with pytest.raises(InvalidInputError, match=r"declared as value of Types.LONG\(\) before, now as .*ttl=3600000 ms"):
        declared(declare)


@pytest.mark.parametrize("ttl_ms", [(1 << 63) - 1, 1 << 62, 1 << 70])
def test_the_longest_time_to_live_means_for_ever(ttl_ms: int) -> None:
    """``Long.MAX_VALUE`` is how Java's users say it; added to the time of today it does not fit 64 bits."""

    def declare(context: RuntimeContext) -> Any:
        descriptor = ValueStateDescriptor("s", Types.LONG())
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(ttl_ms)).build())
        return context.get_state(descriptor)

    assert declared(declare) == [("0",)]


class NoneInOperatorState(KeyedProcessFunction, CheckpointedFunction):
    """Adds None to operator state."""

    def initialize_state(self, context: Any) -> None:
        context.get_operator_state_store().get_list_state(ListStateDescriptor("rows", Types.LONG())).add(None)

    def snapshot_state(self, context: Any) -> None: ...

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None: ...


def test_none_in_operator_state_is_refused_by_name() -> None:
    """As in keyed lists."""
    harness = KeyedProcessHarness(NoneInOperatorState(), "key STRING", "key STRING", key="key")
    with pytest.raises(InvalidInputError, match=r"'rows'.*: None cannot be added"):
        harness.open()
