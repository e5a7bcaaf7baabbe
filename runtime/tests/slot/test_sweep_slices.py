"""Sweeps beside batches and snapshots: they run in slices, and whoever wants the state gets it after one of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from statefulspark.process.api.functions import KeyedProcessFunction
from statefulspark.rpc.messages.slot_control import Settle
from statefulspark.slot.idle_deletes import IDLE_S, IdleDeletes
from statefulspark.state.api.descriptors import MapStateDescriptor
from statefulspark.state.api.ttl import StateTtlConfig
from statefulspark.state.times import Time
from statefulspark.state.types.types import Types

from .one_slot import UID, Slot

WAIT_S = 30.0
ENTRIES = 10_000


class Remembers(KeyedProcessFunction):
    """Keeps many map entries per key for 100 ms."""

    def open(self, runtime_context: Any) -> None:
        descriptor = MapStateDescriptor("seen", Types.LONG(), Types.LONG())
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(100)).build())
        self.seen = runtime_context.get_map_state(descriptor)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        if value.key == 1:
            self.seen.put_all(dict.fromkeys(range(ENTRIES), 1))


class Interrupted:
    """A slot's store that calls ``begun`` in the first scan of a sweep, and counts scans."""

    def __init__(self, slot: Slot, begun: Callable[[], None]) -> None:
        self.scans = 0
        self._scan = slot.store.scan
        self._begun = begun

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        entries = list(self._scan(first, end))
        if len(entries) > 1:
            self.scans += 1
            if self.scans == 1:
                self._begun()
        return iter(entries)


def left(slot: Slot) -> int:
    return len(list(slot.store.scan(b"", b"\xff\xff")))


def files_bytes(slot: Slot) -> int:
    """Size of the table files that the store uses."""
    return sum(int(file["size"]) for file in slot.store._open().live_files())


@pytest.mark.parametrize("who", ["batch", "snapshot"])
def test_a_sweep_makes_way_after_one_slice(make_slot: Callable[..., Slot], monkeypatch: pytest.MonkeyPatch, who: str) -> None:
    """A batch or a snapshot that asks for the state during a long sweep has it after at most 1,000 entries; the sweep continues later."""
    slot = make_slot(1 << 24, Remembers())
    slot.run(0, [1])
    slot.settle(0)
    assert left(slot) == ENTRIES
    step = slot.service.keyed_steps[UID]
    wants = threading.Thread(target=lambda: slot.run(1, [2], now_ms=300) if who == "batch" else slot.begin_snapshot(0))

    def begun() -> None:
        wants.start()
        wanted = threading.Event()
        while not step.waiting:
            assert wants.is_alive()
            wanted.wait(0.001)

    interrupted = Interrupted(slot, begun)
    monkeypatch.setattr(slot.store, "scan_unchecked", interrupted.scan)
    slot.service.sweep(300)
    monkeypatch.undo()
    wants.join(WAIT_S)
    assert interrupted.scans == 1
    if who == "snapshot":
        slot.service.sweep(300)
        assert left(slot) >= ENTRIES - 1000, "nothing is swept while the snapshot is taken"
        slot.end_snapshot()
    assert left(slot) >= ENTRIES - 1000 - 6000
    slot.service.sweep(300)
    assert left(slot) == 0


def test_a_sweep_makes_way_for_another_step(make_slot: Callable[..., Slot], monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps share the store: a batch of another step that waits for its turn to write has it after one slice."""
    slot = make_slot(1 << 24, Remembers())
    slot.run(0, [1])
    slot.settle(0)
    gate = slot.service._gate
    turns: list[bool] = []

    def takes_its_turn() -> None:
        with gate.turn(can_hold=False) as is_free:
            turns.append(is_free)

    other = threading.Thread(target=takes_its_turn)

    def begun() -> None:
        other.start()
        wanted = threading.Event()
        while not gate.wanted:
            assert other.is_alive()
            wanted.wait(0.001)

    interrupted = Interrupted(slot, begun)
    monkeypatch.setattr(slot.store, "scan_unchecked", interrupted.scan)
    slot.service.sweep(300)
    other.join(WAIT_S)
    assert (interrupted.scans, turns) == (1, [True])


def test_the_files_of_an_idle_slot_shrink(make_slot: Callable[..., Slot], monkeypatch: pytest.MonkeyPatch) -> None:
    """Deletes are flushed once no batch has changed the slot for a minute, and RocksDB compacts them away."""
    slot = make_slot(1 << 24, Remembers())
    now_s = 1000.0
    slot.service._sweeps.idle_deletes = IdleDeletes(lambda: now_s)
    slot.run(0, [1])
    slot.settle(0)
    slot.store.flush()
    flushes: list[int] = []
    flush = slot.store.flush

    def flushed() -> None:
        flushes.append(files_bytes(slot))
        flush()

    monkeypatch.setattr(slot.store, "flush", flushed)
    slot.service.sweep(300)
    assert left(slot) == 0
    for batch in range(1, 4):
        now_s += IDLE_S - 1
        slot.service.sweep(300)
        slot.run(batch, [2], now_ms=300)
        slot.service.sweep(300)
    assert flushes == [], "a job whose batches are a minute apart is not idle"
    for _ in range(3):
        now_s += IDLE_S
        slot.service.sweep(300)
    assert len(flushes) == 1
    assert flushes[0] > 5 * ENTRIES
    waiting = threading.Event()
    for _ in range(int(WAIT_S * 100)):
        if files_bytes(slot) < flushes[0] // 10:
            break
        waiting.wait(0.01)
    assert files_bytes(slot) < flushes[0] // 10


def test_the_notice_of_a_commit_sweeps(make_slot: Callable[..., Slot]) -> None:
    """After the changes of the committed batch are written, by its processing time."""
    slot = make_slot(1 << 24, Remembers())
    slot.run(0, [1])
    slot.settle(0)
    slot.run(1, [2], now_ms=99)
    slot.settle(1)
    assert left(slot) == ENTRIES
    slot.run(2, [2], now_ms=200)
    assert left(slot) == ENTRIES, "the batch is not committed"
    slot.settle(2)
    assert left(slot) == 0


def test_the_answer_to_the_notice_of_a_commit_does_not_wait_for_sweeps(
    make_slot: Callable[..., Slot], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver has few threads for such calls. A slot that closes lets the slice that runs end."""
    slot = make_slot(1 << 24, Remembers())
    slot.run(0, [1])
    slot.settle(0)
    slot.run(1, [2], now_ms=200)
    begun, goes_on = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        assert goes_on.wait(WAIT_S)

    monkeypatch.setattr(slot.store, "scan_unchecked", Interrupted(slot, wait).scan)
    slot.service.settle(Settle(epoch=1, expected={UID: 1}))
    assert begun.wait(WAIT_S)
    closing = threading.Thread(target=slot.service._sweeps.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive(), "a slice still uses the store"
    goes_on.set()
    closing.join(WAIT_S)
    monkeypatch.undo()
    assert 0 < left(slot) < ENTRIES, "one slice was run"
    slot.service._sweeps.begin()
