"""The sessions of a key: against a model that merges all of them for each row, and what a row costs where a key has many."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from statefulspark import EventTimeSessionWindows, ProcessWindowFunction, Time, TimeWindow
from statefulspark.process.windows.assigners import MergingWindowAssigner
from statefulspark.process.windows.merging_windows import MergingWindows
from statefulspark.process.windows.windows import TimeWindowSerializer
from statefulspark.testing import WindowHarness

Sessions = dict[TimeWindow, TimeWindow]
"""The window under which each session keeps its contents."""


class Apart(EventTimeSessionWindows):
    """Merges windows only if they overlap, and leaves those that touch."""

    def merge_windows(self, windows: Any, callback: MergingWindowAssigner.MergeCallback) -> None:
        shorter = {TimeWindow(window.start, window.end - 1): window for window in windows}

        class Restored(MergingWindowAssigner.MergeCallback):
            def merge(self, to_be_merged: Any, merge_result: TimeWindow) -> None:
                callback.merge([shorter[each] for each in to_be_merged], TimeWindow(merge_result.start, merge_result.end + 1))

        TimeWindow.merge_windows(shorter, Restored())


class Cell:
    """A value state of several keys."""

    def __init__(self) -> None:
        self.key = 0
        self.values: dict[int, bytes | None] = {}

    def value(self) -> bytes | None:
        return self.values.get(self.key)

    def update(self, value: bytes | None) -> None:
        self.values[self.key] = value


def stored(data: bytes | None) -> Sessions:
    serializer, found = TimeWindowSerializer(), {}
    for at in range(0, len(data or b""), 32):
        pair = cast("bytes", data)[at : at + 32]
        found[serializer.deserialize(pair[:16])] = serializer.deserialize(pair[16:])
    assert list(found) == sorted(found)
    return found


def merged_by_model(sessions: Sessions, window: TimeWindow, *, touching: bool) -> TimeWindow:
    """Add a window as the description says: as long as any two windows belong together, make them one."""
    everything = {**sessions, window: sessions.get(window, window)}
    parts: dict[TimeWindow, list[TimeWindow]] = {each: [each] for each in everything}
    while pair := next(
        (
            (a, b)
            for a in parts
            for b in parts
            if a != b and (a.start <= b.end and b.start <= a.end if touching else a.start < b.end and b.start < a.end)
        ),
        None,
    ):
        together = parts.pop(pair[0]) + parts.pop(pair[1])
        parts.setdefault(pair[0].cover(pair[1]), []).extend(together)
    before = dict(sessions)
    sessions.clear()
    for result, members in parts.items():
        kept = [before[each] for each in sorted(members) if each in before]
        sessions[result] = kept[0] if kept else result
    return next(result for result, members in parts.items() if window in members)


step = st.tuples(
    st.sampled_from(["add", "add", "add", "retire", "abort", "reopen", "other code"]),
    st.integers(0, 2),
    st.integers(0, 30),
    st.integers(1, 6),
)


@example(steps=[("other code", 0, 0, 1), ("add", 0, 0, 5), ("add", 0, 5, 5), ("other code", 0, 0, 1), ("add", 0, 20, 5)])
@given(steps=st.lists(step, max_size=40))
def test_sessions_are_those_of_the_model(steps: list[tuple[str, int, int, int]]) -> None:
    """Whatever key comes next, what was undone in between, and which assigner the windows in flight are of."""
    cell = Cell()
    context = cast("Any", SimpleNamespace(get_state=lambda _: cell))
    codes: list[EventTimeSessionWindows] = [EventTimeSessionWindows(1), Apart(1)]
    merging = MergingWindows(context, "", codes[0])
    model: dict[int, Sessions] = {key: {} for key in range(3)}
    for action, key, start, length in steps:
        cell.key = key
        if action in {"reopen", "other code"}:
            codes = codes[::-1] if action == "other code" else codes
            merging = MergingWindows(context, "", codes[0])
            continue
        merging.load()
        assert merging.in_flight() == sorted(model[key])
        window = TimeWindow(start, start + length)
        if action == "retire":
            gone = next(iter(sorted(model[key])), window)
            merging.retire(gone)
            model[key].pop(gone, None)
        elif action == "abort":
            merging.add(window, lambda *_: None)
            cell.values[key] = bytes(cell.values.get(key) or b"") or None
            continue  # it is not saved: an error has ended the batch
        else:
            calls: list[tuple[Any, ...]] = []
            before = dict(model[key])
            placed = merging.add(window, lambda *call, calls=calls: calls.append(call))
            assert placed == merged_by_model(model[key], window, touching=codes[0].__class__ is EventTimeSessionWindows)
            for result, merged, kept, moved in calls:
                assert [before[each] for each in merged] == [kept, *moved]
                assert model[key][result] == kept
        merging.save()
        assert stored(cell.value()) == model[key]
        assert {each: merging.state_window(each) for each in merging.in_flight()} == model[key]


class Lengths(ProcessWindowFunction):
    def process(self, key: Any, context: ProcessWindowFunction.Context, elements: list[Any]) -> Any:
        yield key, len(elements)


@pytest.mark.parametrize("how", ["one batch", "batches"])
def test_a_row_costs_the_same_however_many_sessions_its_key_has(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Counted in windows that are encoded and decoded: twice the sessions in a batch are twice the work, and not four times."""
    counts: list[int] = []
    for name in ("serialize", "deserialize"):
        work = getattr(TimeWindowSerializer, name)

        def counted(self: Any, given: Any, work: Any = work) -> Any:
            counts[-1] += 1
            return work(self, given)

        monkeypatch.setattr(TimeWindowSerializer, name, counted)
    sessions = WindowHarness(EventTimeSessionWindows.with_gap(Time.seconds(1)), "user STRING, at TIMESTAMP", key="user")
    for number in (100, 200):
        counts.append(0)
        with sessions.process(Lengths(), "user STRING, n BIGINT", uid="sessions", event_time="at") as harness:
            rows = [("ada", datetime.fromtimestamp(10 * at, UTC)) for at in range(number)]
            for first in range(0, number, number if how == "one batch" else 50):
                harness.process_elements(rows[first : first + (number if how == "one batch" else 50)])
            harness.process_watermark(10_000 * number)
            assert len(harness.get_output()) == number
    assert counts[1] < 2.2 * counts[0]
    assert counts[1] < 30 * 200
