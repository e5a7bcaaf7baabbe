"""What may be asked of a running job's memory, and what slots are told of it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.coordinator.controls import MemoryChange
from statefulspark.coordinator.slots.memory_tuning import MemoryTuner, waits_for
from statefulspark.coordinator.slots.state import LOST, READY, RESTORING, Slot
from statefulspark.errors import ConflictError, InvalidInputError
from statefulspark.memory.split import MemorySplit
from statefulspark.memory.tuning import MemoryTuning
from statefulspark.rpc.codec import decode, encode
from statefulspark.rpc.messages.heartbeat import HeartbeatAnswer, NativeMemory, SlotReport

MIB = 1 << 20


def tuner(**changes: Any) -> MemoryTuner:
    given: dict[str, Any] = {
        "backend": "rocksdb",
        "budget_bytes": 128 * MIB,
        "write_buffer_ratio": 0.5,
        "high_prio_pool_ratio": 0.1,
        "arena_bytes": MIB,
        "process_bytes": 400 * MIB,
    }
    return MemoryTuner(**given | changes)


def slot(index: int, state: str, revision: int | None) -> Slot:
    if revision is None:
        return Slot(index, state=state)
    tuning = MemoryTuning(revision=revision, managed_bytes=1, write_buffer_ratio=0.5, high_prio_pool_ratio=0.1)
    memory = NativeMemory(tuning=tuning, cache_bytes=1, cache_used_bytes=0, write_buffer_bytes=1, write_buffer_used_bytes=0)
    report = SlotReport(
        restore_ms=0, rss_bytes=0, pss_bytes=0, baseline_bytes=0, state_bytes=0, coverage=1.0, states={}, steps={}, memory=memory
    )
    return Slot(index, state=state, report=report)


def test_a_change_keeps_what_it_does_not_name_and_reaches_slots_as_it_is() -> None:
    one = tuner()
    assert one.tuning is not None
    assert one.tuning.revision == 0
    one.change(MemoryChange(write_buffer_ratio=0.3))
    two = one.change(MemoryChange(managed_bytes=96 * MIB))
    assert two == MemoryTuning(revision=2, managed_bytes=96 * MIB, write_buffer_ratio=0.3, high_prio_pool_ratio=0.1)
    answer = HeartbeatAnswer(stop=False, memory=one.tuning, processing_time_ms=None)
    assert decode(encode(answer), HeartbeatAnswer).memory == two
    assert two.split() == MemorySplit.of(96 * MIB, 0.3, 0.1)
    assert one.change(MemoryChange(write_buffer_ratio=0.3)).revision == 2, "nothing differs, so slots have nothing to do"


@given(
    st.none() | st.integers(0, 256 * MIB),
    st.none() | st.floats(0, 1.2, allow_nan=False),
    st.none() | st.floats(0, 1.2, allow_nan=False),
)
def test_what_is_accepted_is_within_the_budget_and_what_is_refused_changes_nothing(
    managed: int | None, write_buffers: float | None, pool: float | None
) -> None:
    """Cache capacity and the overshoot of write buffers never exceed what the process is sized for."""
    one = tuner()
    before = one.tuning
    change = MemoryChange(managed_bytes=managed, write_buffer_ratio=write_buffers, high_prio_pool_ratio=pool)
    with suppress(InvalidInputError):
        split = one.change(change).split()
        assert split.cache_bytes + split.write_buffer_bytes // 2 <= 128 * MIB
        assert split.high_prio_bytes + split.write_buffer_bytes <= split.cache_bytes
        return
    assert one.tuning == before


def test_more_than_the_process_is_sized_for_is_refused_with_both_sizes() -> None:
    with pytest.raises(InvalidInputError, match=r"managed_bytes: 129Mi per slot is more than the 128Mi .* at most 128Mi"):
        tuner().change(MemoryChange(managed_bytes=129 * MIB))


@pytest.mark.parametrize(
    ("changes", "what"), [({"backend": "memory"}, "spec.stateBackend.type"), ({"budget_bytes": None}, "memory.managed: true")]
)
def test_without_managed_memory_there_is_nothing_to_divide(changes: dict[str, Any], what: str) -> None:
    one = tuner(**changes)
    assert one.tuning is None
    assert one.budget_bytes is None
    with pytest.raises(ConflictError, match=what):
        one.change(MemoryChange(write_buffer_ratio=0.3))
    with pytest.raises(ConflictError, match=what):
        one.status([])


def test_the_status_names_the_slots_that_have_it_and_what_works_badly() -> None:
    """A slot that has not reported, or reported an older split, does not have it."""
    one = tuner(arena_bytes=8 * MIB)
    one.change(MemoryChange(managed_bytes=16 * MIB))
    status = one.status([slot(0, READY, 1), slot(1, READY, 0), slot(2, RESTORING, None), slot(3, LOST, 1)])
    assert status.slots == (0, 3)
    assert (status.revision, status.budget_bytes, status.managed_bytes) == (1, 128 * MIB, 16 * MIB)
    (warning,) = status.warnings
    assert "arena block" in warning


def test_only_slots_that_serve_are_waited_for() -> None:
    """One that is being started is given the newest split when it registers; one that has just become ready tells with its next beat."""
    slots = [slot(0, READY, 2), slot(1, READY, 1), slot(2, RESTORING, None), slot(3, LOST, 1), slot(4, READY, None)]
    assert waits_for(slots, 2) == [1, 4]
