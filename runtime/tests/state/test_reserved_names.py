"""Names of states that the runtime makes: a function cannot take one, and any other name is its own, however near it is."""

from __future__ import annotations

import json
import pickle
import string
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from runtime.tests.depth import examples

from statefulspark import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ProcessWindowFunction,
    ReducingStateDescriptor,
    Time,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
)
from statefulspark.errors import InternalError, InvalidInputError, NotRestorableError
from statefulspark.process.adapters.function_adapters import REDUCE_STATE
from statefulspark.process.runner.checkpointed_functions import LIST_CHECKPOINTED_STATE
from statefulspark.state.api.names import RuntimeName, check_state_name
from statefulspark.state.encoding.layout import StateInfo
from statefulspark.state.encoding.runtime_states import is_of_late_declaration, is_of_windows
from statefulspark.state.operator.entries import RAW_OPERATOR_NAME
from statefulspark.state.registry import StateRegistry
from statefulspark.state.tables.raw_keyed import RAW_KEYED_NAME
from statefulspark.state.timers import TIMER_KINDS
from statefulspark.testing import WindowHarness

GOLDEN = Path(__file__).parent.parent / "checkpoint" / "golden"
FIXED = [str(name) for name in (*TIMER_KINDS, RAW_KEYED_NAME, RAW_OPERATOR_NAME, REDUCE_STATE, LIST_CHECKPOINTED_STATE)]
MADE = [
    "_sum(price)",
    "_max_by(a.b(c)",
    "_window(TimeWindow, list)",
    "_window.trigger(TimeWindow, list, seen)",
    "_window.window(TimeWindow, list, last)",
    "_sessions(MergingTimeWindow, aggregated)",
    "_assigner(count)",
]


class Last(AggregateFunction[int, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return value

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


DESCRIPTORS: list[Callable[[str], Any]] = [
    lambda name: ValueStateDescriptor(name, Types.LONG()),
    lambda name: ListStateDescriptor(name, Types.LONG()),
    lambda name: MapStateDescriptor(name, Types.LONG(), Types.LONG()),
    lambda name: ReducingStateDescriptor(name, max, Types.LONG()),
    lambda name: AggregatingStateDescriptor(name, Last(), Types.LONG()),
]


def taken(name: str) -> bool:
    """Whether the name is the runtime's; letter by letter, where the product has a pattern."""
    if name in FIXED:
        return True
    word = ""
    for letter in name:
        if letter in "(.":
            parts = word.split("_")
            return len(parts) > 1 and not parts[0] and all(parts[1:])
        if letter not in string.ascii_lowercase + "_":
            return False
        word += letter
    return False


@st.composite
def near(draw: st.DrawFn) -> str:
    """Names of the runtime with a letter more, less or changed, cut, or with something before or behind."""
    name: str = draw(st.sampled_from([*FIXED, *MADE]))
    at = draw(st.integers(0, len(name)))
    letter: str = draw(st.sampled_from([*"_.( )aZ0-\n\0é", "__", "window", "(", "."]))
    changed = [
        name,
        name[:at] or "_",
        name[:at] + letter + name[at:],
        name[:at] + letter + name[at + 1 :],
        name[:at] + name[at + 1 :],
        letter + name,
        name + letter,
        name.upper(),
        name.replace("_", "__", 1),
        name.lstrip("_"),
    ]
    return changed[draw(st.integers(0, len(changed) - 1))]


@given(near() | st.text(min_size=1, max_size=20))
@example("_")
@example("_(")
@example("_.x")
@example("__window(")
@example("_window")
@example("_window_(")
@example("_window(")
@example("_Window(x)")
def test_every_descriptor_refuses_the_runtimes_names_and_takes_all_others(name: str) -> None:
    """The error names the state and what to do, also with state that exists."""
    for make in DESCRIPTORS:
        if not taken(name):
            assert make(name).name == name
            continue
        with pytest.raises(InvalidInputError, match="the name is reserved for the runtime") as refused:
            make(name)
        assert refused.value.field == f"state {name!r}"
        assert "Choose another name" in str(refused.value)
        assert "statefulspark rewrite" in str(refused.value)
        assert make(RuntimeName(name)).name == name


@given(near())
def test_the_runtime_names_no_state_as_a_user_could(name: str) -> None:
    """Whatever part of the runtime adds a name: it has to be a reserved one, and stays one in another process."""
    if not taken(name):
        with pytest.raises(InternalError, match="is not reserved"):
            RuntimeName(name)
        return
    made = RuntimeName(name)
    check_state_name(pickle.loads(pickle.dumps(made)))
    descriptor = ValueStateDescriptor(made, Types.LONG())
    assert type(descriptor.name) is str


def test_every_state_in_golden_savepoints_is_told_from_users() -> None:
    """What every release has stored of windows, timers and raw state."""
    seen = 0
    for folder in GOLDEN.glob("savepoint-*/"):
        for state in json.loads((folder / "_metadata").read_text())["body"]["states"]:
            info, internal = StateInfo.from_json(state), state["name"].startswith("_") or "timers" in state["kind"]
            assert taken(info.name) == internal
            assert is_of_windows(info) == (info.name.startswith("_") and "raw" not in info.kind)
            assert is_of_late_declaration(info) == info.name.startswith("_window.")
            seen += internal
    assert seen > 40


class Counting(ProcessWindowFunction):
    """Counts firings in a state of the key and one of the window that have the same name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def process(self, key: Any, context: ProcessWindowFunction.Context, elements: list[Any]) -> Iterable[Any]:
        counts = []
        for store in (context.global_state(), context.window_state()):
            count = store.get_state(ValueStateDescriptor(self._name, Types.LONG()))
            count.update((count.value() or 0) + 1)
            counts.append(count.value())
        yield key, *counts


@settings(max_examples=examples(20, 100))
@given(near().filter(lambda name: not taken(name)))
def test_a_name_near_the_runtimes_is_a_state_of_its_own_beside_windows(name: str) -> None:
    """State of the key and of the window, before and after a restore."""
    windows = WindowHarness(TumblingEventTimeWindows.of(Time.milliseconds(10)), "key STRING, at BIGINT", key="key").allowed_lateness(100)

    def harness() -> Any:
        return windows.process(Counting(name), "key STRING, key_count BIGINT, window_count BIGINT", uid="w", event_time="at")

    with harness() as first:
        first.process_elements([("a", 5), ("a", 15)])
        first.process_watermark(30)
        snapshot = first.snapshot()
        assert first.get_output() == [("a", 1, 1), ("a", 2, 1)]
    infos = {info.name: info for info in snapshot.states}
    assert infos[name].kind == "value"
    assert not is_of_windows(infos[name])
    assert all(taken(other) for other in infos.keys() - {name})
    again = harness()
    again.restore(snapshot)
    with again:
        again.process_element(("a", 6))
        assert again.get_output() == [("a", 3, 2)]


def _stored(name: str, kind: str = "value") -> StateInfo:
    return StateInfo(1, "u", name, kind, [], Types.LONG().to_json())


@pytest.mark.parametrize(
    ("stored", "remedy"),
    [
        (_stored("_window.rates"), "Rename '_window.rates' in the snapshot to keep its values (statefulspark rewrite "),
        (_stored("_window.trigger(x)"), "Rename '_window.trigger(x)' in the snapshot"),
        (_stored("_reduce", "reducing"), "Rename '_reduce' in the snapshot"),
        (_stored("_window(TimeWindow, list)", "map"), "Keep the windows of the step"),
        (_stored("ratings"), "Declare it as 'ratings'"),
    ],
)
def test_state_of_an_earlier_release_is_not_left_behind(stored: StateInfo, remedy: str) -> None:
    """A function that declares another name instead would start empty; the error says how to keep the values."""
    registry = StateRegistry([stored])
    registry.register("u", "rates", "value", {"key_type": [], "type": Types.LONG().to_json(), "ttl_ms": None})
    with pytest.raises(NotRestorableError, match="state 'rates' of uid 'u': it is new and would start empty") as refused:
        registry.all_opened()
    assert str(refused.value.remedy).startswith(remedy)
    assert "allowNonRestoredState" in str(refused.value)
