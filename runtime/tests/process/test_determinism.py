"""The function runner against a direct simulation, and against other ways of cutting the same stream into batches."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from statefulspark import KeyedProcessFunction, MapStateDescriptor, RuntimeContext, Types, ValueStateDescriptor

OUTPUT = pa.schema([("what", pa.string()), ("user", pa.string()), ("at", pa.int64()), ("n", pa.int64())])
Event = tuple[str, int, int]
"""user, event time, amount"""


class Windows(KeyedProcessFunction):
    """Sums amounts per ten milliseconds of event time, gives them when the window is over; a negative amount drops its window."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.sums = runtime_context.get_map_state(MapStateDescriptor("sums", Types.LONG(), Types.LONG()))
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[Any, ...]]:
        end = value.at // 10 * 10 + 10
        if value.amount < 0:
            self.sums.remove(end)
            ctx.timer_service().delete_event_time_timer(end)
        else:
            self.sums.put(end, (self.sums.get(end) or 0) + value.amount)
            ctx.timer_service().register_event_time_timer(end)
        self.total.update((self.total.value() or 0) + 1)
        yield "row", value.user, value.at, self.total.value()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[tuple[Any, ...]]:
        yield "window", ctx.get_current_key(), timestamp, self.sums.get(timestamp)
        self.sums.remove(timestamp)


@dataclass
class Simulation:
    """The same function on plain dicts, by the documented order: due timers by (time, key group, key), then rows by key hash."""

    sums: dict[tuple[str, int], int] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def batch(self, events: list[Event], watermark: int | None) -> list[tuple[Any, ...]]:
        output = self._fire(watermark)
        for user, at, amount in sorted(events, key=lambda event: (hash_of(event[0]), event[1])):
            end = at // 10 * 10 + 10
            if amount < 0:
                self.sums.pop((user, end), None)
            else:
                self.sums[user, end] = self.sums.get((user, end), 0) + amount
            self.totals[user] += 1
            output.append(("row", user, at, self.totals[user]))
        return output + self._fire(watermark)

    def _fire(self, watermark: int | None) -> list[tuple[Any, ...]]:
        due = [(end, hash_of(user) % 16, user) for user, end in self.sums if watermark is not None and end <= watermark]
        return [("window", user, end, self.sums.pop((user, end))) for end, _, user in sorted(due)]


def hash_of(user: str) -> int:
    return int.from_bytes(blake2b(user.encode(), digest_size=8).digest(), "big", signed=True)


in_order = st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 5), st.integers(-1, 3)), max_size=40).map(
    lambda steps: [(user, at, amount) for (user, _, amount), at in zip(steps, _running([gap for _, gap, _ in steps]), strict=True)]
)
splits = st.lists(st.integers(0, 7), min_size=1, max_size=60)


def _running(gaps: list[int]) -> list[int]:
    times, now = [], 0
    for gap in gaps:
        now += gap
        times.append(now)
    return times


def cut(events: list[Event], sizes: list[int]) -> list[list[Event]]:
    batches, at = [], 0
    for size in sizes:
        batches.append(events[at : at + size])
        at += size
    return [*batches, events[at:]]


def run(make: Any, batches: list[list[Event]], sort_bytes: int) -> tuple[list[list[tuple[Any, ...]]], list[int | None]]:
    """Run batches as a job does: the watermark is the latest event time of the batches before; a last batch closes everything."""
    with tempfile.TemporaryDirectory() as directory:
        slot = make(Windows(), OUTPUT, Path(directory), sort_bytes=sort_bytes)
        latest: int | None = None
        outputs: list[list[tuple[Any, ...]]] = []
        watermarks: list[int | None] = []
        for events in [*batches, []]:
            watermark = latest if events or len(outputs) < len(batches) else 1 << 40
            outputs.append(slot.run([(hash_of(user), 0, user, at, amount) for user, at, amount in events], watermark=watermark))
            watermarks.append(watermark)
            if slot.runner.max_event_time_ms is not None:
                latest = max(latest or 0, slot.runner.max_event_time_ms)
        return outputs, watermarks


@given(events=in_order, sizes=splits, sort_bytes=st.sampled_from([1, 1 << 20]))
def test_equals_a_direct_simulation(slot_class: Any, events: list[Event], sizes: list[int], sort_bytes: int) -> None:
    """Output and its order equal those of plain dicts, batch by batch, whether rows are spilled or not."""
    batches = cut(events, sizes)
    outputs, watermarks = run(slot_class, batches, sort_bytes)
    simulation = Simulation()
    assert outputs == [simulation.batch(events, watermark) for events, watermark in zip([*batches, []], watermarks, strict=True)]


@given(events=in_order, one=splits, other=splits)
def test_batches_are_invisible_to_functions_over_event_time(slot_class: Any, events: list[Event], one: list[int], other: list[int]) -> None:
    """In-order data cut in two ways gives each key the same rows and windows."""

    def per_user(outputs: list[list[tuple[Any, ...]]]) -> dict[tuple[str, str], list[tuple[Any, ...]]]:
        result = defaultdict(list)
        for what, user, at, n in (row for output in outputs for row in output):
            result[what, user].append((at, n))
        return dict(result)

    assert per_user(run(slot_class, cut(events, one), 1 << 20)[0]) == per_user(run(slot_class, cut(events, other), 1 << 20)[0])
