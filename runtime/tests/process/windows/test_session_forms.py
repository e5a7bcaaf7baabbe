"""The two forms of sessions: a key changes from one to the other between batches, and goes on as if it had not."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from statefulspark import (
    AggregateFunction,
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    OutputTag,
    ProcessWindowFunction,
    PurgingTrigger,
    TimeWindow,
    Trigger,
    Types,
)
from statefulspark.errors import CorruptDataError
from statefulspark.process.windows import session_forms
from statefulspark.process.windows.session_state import SessionsTypeInfo
from statefulspark.state.encoding.layout import StateInfo
from statefulspark.state.encoding.values import Encoded, ValueCodec
from statefulspark.state.types.base import TypeInformation, type_from_json
from statefulspark.testing import KeyedProcessHarness, WindowHarness
from statefulspark.testing.process_harness import HarnessSnapshot

from .stored_sessions import sessions_of
from .window_functions import ROWS, stored

LATE = OutputTag("late", ROWS)
OUTPUT = "key STRING, start BIGINT, end BIGINT, value STRING"
GOLDEN: Final = json.loads(Path(__file__).with_name("golden_separate_sessions.json").read_text())
"""Written by the release in which all sessions were separate."""


class OneByOne(EventTimeTrigger):
    """Does the same, but its sessions are separate."""


class Listed(AggregateFunction[Any, list[int], str]):
    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: Any, accumulator: list[int]) -> list[int]:
        return [*accumulator, value.value]

    def get_result(self, accumulator: list[int]) -> str:
        return ",".join(map(str, accumulator))

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        return acc_a + acc_b


class Bounds(ProcessWindowFunction):
    def process(self, key: Any, context: ProcessWindowFunction.Context, elements: list[Any]) -> Iterable[Any]:
        window = context.window()
        assert isinstance(window, TimeWindow)
        (value,) = elements
        yield key, window.start, window.end, str(getattr(value, "value", value))


def made(method: str = "aggregate", lateness: int = 0, trigger: Trigger | None = None) -> KeyedProcessHarness:
    windows = WindowHarness(EventTimeSessionWindows(5), ROWS, key="key", max_parallelism=8).trigger(trigger or EventTimeTrigger())
    windows = windows.allowed_lateness(lateness).side_output_late_data(LATE)
    if method == "reduce":
        return windows.reduce(lambda a, b: (a.key, a.value + b.value, b.at), Bounds(), OUTPUT, uid="w", event_time="at")
    return windows.aggregate(Listed(), Bounds(), Types.LIST(Types.LONG()), OUTPUT, uid="w", event_time="at")


def golden(name: str) -> tuple[HarnessSnapshot, str, int]:
    case = GOLDEN[name]
    entries = tuple((bytes.fromhex(key), bytes.fromhex(value)) for key, value in case["entries"])
    states = tuple(map(StateInfo.from_json, case["states"]))
    return HarnessSnapshot(states, entries, case["watermark_ms"], 0), case["method"], case["lateness"]


def number_of_forms(harness: KeyedProcessHarness) -> tuple[int, int]:
    joint, separate = sessions_of(harness.snapshot())
    return len(joint), len(separate)


@pytest.mark.parametrize(
    ("name", "rows", "watermarks", "expected"),
    [
        ("in flight", [("a", 6, 15)], [5, 30], [("b", 1, 6, "4"), ("a", 0, 8, "1,2"), ("a", 10, 25, "5,3,6")]),
        ("in flight", [], [30], [("b", 1, 6, "4"), ("a", 0, 8, "1,2"), ("a", 10, 15, "5"), ("a", 20, 25, "3")]),
        ("late", [("a", 7, 2)], [30, 100], [("a", 0, 8, "10"), ("a", 20, 25, "3")]),
        ("late", [], [100], [("a", 20, 25, "3")]),
        ("many", [("a", 20, 24)], [200], [("a", 10 * n, 10 * n + 5 + 4 * (n == 2), "2,20" if n == 2 else str(n)) for n in range(12)]),
    ],
)
def test_sessions_of_the_release_before_are_emitted(
    name: str, rows: list[tuple[Any, ...]], watermarks: list[int], expected: list[Any]
) -> None:
    """Those in flight, those that have fired and wait for late rows, and many of a key; nothing is left of them."""
    snapshot, method, lateness = golden(name)
    with made(method, lateness) as newer:
        restored = made(method, lateness)
        restored.restore(snapshot)
        with restored:
            assert number_of_forms(restored)[0] == 0
            if rows:
                restored.process_elements(rows)
                assert number_of_forms(restored)[0] == (name != "many")
            for watermark in watermarks:
                restored.process_watermark(watermark)
            assert sorted(restored.get_output()) == sorted(expected)
            restored.process_watermark(1_000)
            assert stored(restored) == []
            assert len(restored.get_output()) == len(expected)
        newer.process_element(("a", 1, 0))
        assert number_of_forms(newer) == (1, 0)


LIVES = st.lists(
    st.one_of(
        st.tuples(st.just("rows"), st.lists(st.tuples(st.sampled_from("ab"), st.integers(-20, 60)), min_size=1, max_size=12)),
        st.tuples(st.just("watermark"), st.integers(0, 15)),
        st.tuples(st.just("lateness"), st.sampled_from([0, 3, 40])),
        st.tuples(st.sampled_from(["retry", "swap"]), st.none()),
    ),
    max_size=16,
)


@example(lives=[("rows", [("a", 0), ("a", 20)]), ("watermark", 30), ("swap", None), ("lateness", 3), ("rows", [("a", 1)])], most=1)
@example(lives=[("rows", [("a", -18), ("a", 0)]), ("lateness", 40), ("watermark", 7), ("lateness", 0), ("swap", None)], most=8)
@given(lives=LIVES, most=st.sampled_from([1, 2, 8]))
def test_forms_and_lateness_change_between_batches(lives: list[tuple[str, Any]], most: int) -> None:
    """Against sessions that are separate all the time, with the same changes of the lateness; many sessions of a key become separate by themselves."""
    triggers: list[Trigger] = [EventTimeTrigger(), OneByOne()]
    changing, lateness = triggers[0], 0
    both = [made(lateness=lateness, trigger=trigger) for trigger in triggers]
    watermark, number, can_retry = -20, 0, False
    with patch.object(session_forms, "_JOINT_SESSIONS_MAX", most):
        for harness in both:
            harness.open()
        for step, chosen in [*lives, ("watermark", 300)]:
            match step:
                case "rows":
                    rows = [(key, number + index, at) for index, (key, at) in enumerate(chosen)]
                    number += len(rows)
                    for harness in both:
                        harness.process_elements(rows)
                case "watermark":
                    watermark += chosen
                    for harness in both:
                        harness.process_watermark(watermark)
                case "retry":
                    for harness in both if can_retry else ():
                        harness.retry()
                case _:
                    lateness = chosen if step == "lateness" else lateness
                    changing = triggers[1 - triggers.index(changing)] if step == "swap" else changing
                    both = [_restarted(harness, lateness, trigger) for harness, trigger in zip(both, (changing, triggers[1]), strict=True)]
            can_retry = step in {"rows", "watermark"}
            _same(*both)
        assert [stored(harness) for harness in both] == [[], []]
        for harness in both:
            harness.close()


def _restarted(harness: KeyedProcessHarness, lateness: int, trigger: Trigger) -> KeyedProcessHarness:
    snapshot = harness.snapshot()
    harness.close()
    restored = made(lateness=lateness, trigger=trigger)
    restored.restore(snapshot)
    restored.open()
    return restored


def _same(one: KeyedProcessHarness, other: KeyedProcessHarness) -> None:
    assert one.get_output() == other.get_output()
    assert one.get_side_output(LATE) == other.get_side_output(LATE)


def test_a_session_that_a_trigger_has_emptied_stays_as_it_is() -> None:
    """It has no contents that could stand beside its window; it gets some with the next row, and is joint from then on."""
    with made(trigger=PurgingTrigger.of(CountTrigger.of(1))) as harness:
        harness.process_element(("a", 1, 0))
        snapshot = harness.snapshot()
    restored = made()
    restored.restore(snapshot)
    with restored:
        restored.process_element(("a", 2, 1))
        restored.process_watermark(20)
        restored.process_element(("a", 3, 30))
        restored.process_watermark(100)
        assert restored.get_output() == [("a", 0, 6, "2"), ("a", 30, 35, "3")]
        assert stored(restored) == []


def test_a_key_group_is_looked_at_again_once_nothing_separate_is_left() -> None:
    """A job that was restored from separate sessions need not be restarted to have the cost of joint ones."""
    snapshot, method, lateness = golden("in flight")
    restored = made(method, lateness)
    restored.restore(snapshot)
    with patch.object(session_forms, "_VISITS", 4), restored:
        restored.process_watermark(100)
        forms = restored._running.function.runner._function._forms  # type: ignore[union-attr]
        assert not forms._joint_groups
        for number in range(8):
            restored.process_element(("a", number, 200))
        assert forms._joint_groups


@pytest.mark.parametrize("most", [1, 8])
def test_many_sessions_of_a_key_are_separate_until_they_are_few(most: int) -> None:
    """One row then writes its own session only; afterwards the key is joint again."""
    with patch.object(session_forms, "_JOINT_SESSIONS_MAX", most), made() as harness:
        harness.process_elements([("a", number, 10 * number) for number in range(most)])
        assert number_of_forms(harness) == (1, 0)
        harness.process_element(("a", most, 10 * most))
        assert number_of_forms(harness) == (0, 1)
        harness.process_watermark(4)
        assert number_of_forms(harness) == (0, 1)
        harness.process_element(("a", 99, 10 * most + 1))
        assert number_of_forms(harness) == (1, 0)
        harness.process_watermark(1_000)
        assert len(harness.get_output()) == most + 1
        assert stored(harness) == []


CONTENTS: list[tuple[TypeInformation, st.SearchStrategy[Any]]] = [
    (Types.LONG(), st.integers(-(1 << 63), (1 << 63) - 1)),
    (Types.DOUBLE(), st.floats(allow_nan=False)),
    (Types.BOOLEAN(), st.booleans()),
    (Types.STRING(), st.text(max_size=5)),
    (Types.LIST(Types.LONG()), st.lists(st.integers(0, 9), max_size=3)),
    (Types.TUPLE([Types.LONG(), Types.STRING()]), st.tuples(st.integers(0, 9), st.text(max_size=3))),
]
TIMES = st.integers(-(1 << 63), (1 << 63) - 1)


@pytest.mark.parametrize(("contents", "values"), CONTENTS, ids=lambda each: getattr(each, "name", ""))
@given(data=st.data())
def test_the_bytes_are_those_of_the_described_type(contents: TypeInformation, values: st.SearchStrategy[Any], data: st.DataObject) -> None:
    """So inspection and evolution read them; cut or longer bytes are refused."""
    sessions = data.draw(st.lists(st.tuples(TIMES, TIMES, st.none() | values), min_size=1, max_size=3))
    type_ = SessionsTypeInfo(contents)
    described = type_from_json(type_.to_json())
    kept = tuple(
        (start, end, value if value is None or contents.immutable is True else Encoded(b"\x01" + contents.encode(value)))
        for start, end, value in sessions
    )
    payload = type_.encode(kept)
    assert payload == described.encode(sessions)
    assert type_.decode(payload) == kept
    assert type_.size_of(kept) >= len(payload)
    codec, packed = ValueCodec(type_, "sessions"), type_.packed(kept)
    assert codec.decode(codec.encode(kept)) == kept
    few_numbers = len(kept) in (1, 2) and all(each[2] is not None for each in kept) and contents.struct_format not in {None, "?"}
    assert packed == (codec.encode(kept) if few_numbers else None)
    cut = data.draw(st.integers(0, len(payload) - 1))
    for damaged in (payload[:cut], payload + b"\0"):
        with pytest.raises((ValueError, struct.error)):
            type_.decode(damaged)
        with pytest.raises(CorruptDataError):
            codec.decode(b"\x01" + damaged)
