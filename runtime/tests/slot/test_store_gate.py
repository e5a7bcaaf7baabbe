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


def test_a_query_reads_while_nobody_changes_the_state() -> None:
    """It waits for a writer, for a snapshot, and for batches that begin beside one; none of them gets in while it reads."""
    gate = StoreGate()
    with gate.turn(can_hold=False), pytest.raises(UnavailableError), gate.reading(0.01):
        pass
    gate.close(0)
    with pytest.raises(UnavailableError), gate.reading(0.01):
        pass
    with gate.turn(can_hold=True) as free:
        assert not free
        gate.open()
        with pytest.raises(UnavailableError), gate.reading(0.01):
            pass
    with gate.reading(0), ThreadPoolExecutor() as pool:
        with pytest.raises(UnavailableError):
            gate.close(0)
        with pytest.raises(UnavailableError), gate.reading(0.01):
            pass
        batch = pool.submit(lambda: gate.turn(can_hold=True).__enter__())
        assert not batch.done()
        gate._leave()
        assert batch.result(timeout=5)


def test_a_batch_that_waits_goes_before_a_query_that_waits() -> None:
    """So queries delay a batch by one query at most, however many there are."""
    gate = StoreGate()
    entered: list[str] = []
    reading = gate.reading(0)
    reading.__enter__()

    def batch() -> None:
        with gate.turn(can_hold=True):
            entered.append("batch")

    def query() -> None:
        with gate.reading(5):
            entered.append("query")

    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(query)]
        while gate._queries < 1:
            threading.Event().wait(0.001)
        waiting.append(pool.submit(batch))
        while gate._waiting < 1:
            threading.Event().wait(0.001)
        assert gate.wanted
        reading.__exit__(None, None, None)
        for each in waiting:
            each.result(timeout=5)
    assert entered == ["batch", "query"]
