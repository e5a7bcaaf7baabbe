"""The gate before a slot's store: one writer, nobody during a snapshot, and who had to wait how long."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from statefulspark.errors import UnavailableError
from statefulspark.slot.store_gate import StoreGate


def test_a_batch_that_can_hold_does_not_wait_for_a_snapshot() -> None:
    """It gets its turn while the snapshot is taken, several of them at once, and is told to leave the store alone."""
    gate = StoreGate()
    gate.close(0)
    with gate.turn(can_hold=True) as first, gate.turn(can_hold=True) as second:
        assert (first, second) == (False, False)
    gate.open()
    with gate.turn(can_hold=True) as free:
        assert free


def test_a_batch_that_cannot_hold_waits_for_the_snapshot() -> None:
    """It gets the store when the snapshot ends, and the wait is the snapshot's delay."""
    gate = StoreGate()
    gate.close(0)
    inside, waited = threading.Event(), threading.Event()

    def write() -> bool:
        with gate.turn(can_hold=False) as free:
            inside.set()
            return free

    with ThreadPoolExecutor() as pool:
        written = pool.submit(write)
        assert not inside.wait(0.05)
        waited.set()
        gate.open()
        assert written.result(timeout=5)
    assert gate.delay_ms >= 50


def test_writers_take_turns_and_a_snapshot_waits_for_them() -> None:
    """A second writer and a snapshot both wait until the first writer has left; without a snapshot nothing counts as delay."""
    gate = StoreGate()
    with gate.turn(can_hold=True) as free:
        assert free
        with ThreadPoolExecutor() as pool:
            second = pool.submit(lambda: gate.turn(can_hold=True).__enter__())
            assert not second.done()
            with pytest.raises(UnavailableError):
                gate.close(0)
            with pytest.raises(UnavailableError):
                gate.close(0.01)
            gate._leave()
            assert second.result(timeout=5), "a writer is waited for, not held over"
    assert gate.delay_ms == 0


def test_a_snapshot_forgets_the_delays_of_the_one_before() -> None:
    """What kept the whole process from running counts as delay of that snapshot alone."""
    gate = StoreGate()
    gate.close(0)
    gate.open(held_up_ms=7.5)
    assert gate.delay_ms == 7.5
    gate.close(0)
    gate.open()
    assert gate.delay_ms == 0
