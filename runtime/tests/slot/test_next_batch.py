"""What a slot reads for a batch before its rows come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from statefulspark.process.api.functions import KeyedProcessFunction
from statefulspark.rpc.messages.slot_control import NextBatch

from .one_slot import UID, Count, Slot

KEYS = list(range(100))
ANOTHER = 1000


class CountLater(Count):
    """Counts the rows of a key, and gives the number when 5 ms have passed."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[int, int]]:
        ctx.timer_service().register_processing_time_timer(ctx.timer_service().current_processing_time() + 5)
        for _ in super().process_element(value, ctx):
            yield from ()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[tuple[int, int]]:
        yield ctx.get_current_key(), self.count.value() or 0


class Reads:
    """Counts what a slot reads from its store."""

    def __init__(self, slot: Slot, monkeypatch: pytest.MonkeyPatch) -> None:
        self.timers = self.values = 0
        scan, get_many = slot.store.scan, slot.store.get_many

        def scanned(first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
            for entry in scan(first, end):
                self.timers += 1
                yield entry

        def got(keys: Sequence[bytes]) -> list[bytes | None]:
            self.values += len(keys)
            return get_many(keys)

        monkeypatch.setattr(slot.store, "scan", scanned)
        monkeypatch.setattr(slot.store, "get_many", got)

    def take(self) -> tuple[int, int]:
        """Return timers and values since the last call."""
        found = self.timers, self.values
        self.timers = self.values = 0
        return found


@pytest.fixture
def slot(make_slot: Callable[..., Slot]) -> Slot:
    """A slot whose timers of 100 keys are stored, and not in memory."""
    slot = make_slot(1 << 24, CountLater())
    slot.run(0, KEYS)
    slot.settle(0)
    slot.close()
    return make_slot(1 << 24, CountLater(), cache_bytes=1 << 20, batch=0)


@pytest.mark.parametrize("told", [True, False])
def test_timers_that_are_due_are_read_before_the_rows_come(slot: Slot, monkeypatch: pytest.MonkeyPatch, told: bool) -> None:
    """With the states of their keys. A slot that is not told, because the call was lost, reads them in the batch."""
    reads = Reads(slot, monkeypatch)
    slot.settle(0, NextBatch(watermarks_ms={UID: None}, processing_time_ms=7) if told else None)
    ahead = reads.take()
    assert ahead == ((100, 100) if told else (0, 0))
    fired = slot.run(1, [ANOTHER], now_ms=7)
    assert fired == [(key, 1) for key in KEYS]
    timers, values = reads.take()
    assert (timers, values) == ((0, 1) if told else (100, 101))


@pytest.mark.parametrize("processing_time_ms", [0, 4, 1000])
def test_another_time_than_was_said_changes_nothing(slot: Slot, processing_time_ms: int) -> None:
    """What was read ahead for one time serves a batch of another one: timers fire that are due in it, and no others."""
    slot.settle(0, NextBatch(watermarks_ms={UID: None}, processing_time_ms=processing_time_ms))
    assert slot.run(1, [ANOTHER], now_ms=4) == []
    slot.settle(1, NextBatch(watermarks_ms={UID: None}, processing_time_ms=processing_time_ms))
    assert slot.run(2, [ANOTHER], now_ms=5) == [(key, 1) for key in KEYS]


def test_a_late_call_changes_nothing(slot: Slot) -> None:
    """One about a batch that has ended since reads nothing: the state stands at another batch."""
    assert slot.run(1, [ANOTHER], now_ms=4) == []
    slot.settle(0, NextBatch(watermarks_ms={UID: None}, processing_time_ms=5))
    assert slot.run(2, [ANOTHER], now_ms=9) == [(key, 1) for key in [*KEYS, ANOTHER]]
