"""The table of slots."""

from __future__ import annotations

import pytest

from statefulspark.checkpoint.restore.progress import RestoredBytes
from statefulspark.coordinator.slots.state import LOST, READY
from statefulspark.coordinator.slots.table import SlotTable
from statefulspark.errors import FencedError, InvalidInputError
from statefulspark.rpc.messages.heartbeat import SlotReport

REPORT = SlotReport(restore_ms=0, rss_bytes=0, pss_bytes=0, baseline_bytes=0, state_bytes=0, coverage=1.0, states={}, steps={})


def test_each_incarnation_gets_a_greater_epoch_and_fences_the_one_before() -> None:
    table = SlotTable(2, slots_per_executor=None)
    first = table.register(0, "e1", "h", 1)
    second = table.register(0, "e1", "h", 2)
    assert first is not None
    assert second is not None
    assert second > first
    with pytest.raises(FencedError):
        table.ready(0, first, "grpc://x", "")
    table.ready(0, second, "grpc://x", "")
    assert table.get(0).state == READY
    assert table.get(0).restarts == 1


def test_an_executor_takes_no_more_slots_than_its_memory_is_made_for() -> None:
    table = SlotTable(3, slots_per_executor=1)
    assert table.register(0, "e1", "h", 1) is not None
    assert table.register(1, "e1", "h", 2) is None
    assert table.register(1, "e2", "h", 3) is not None
    assert table.register(0, "e1", "h", 4) is not None, "the slot's own next incarnation may come back"


def test_a_slot_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="slot 2 does not exist"):
        SlotTable(2, slots_per_executor=None).register(2, "e", "h", 1)


def test_slots_spread_over_executors_before_they_share_one() -> None:
    patient = SlotTable(2, slots_per_executor=2, executors=lambda: 2, spread_s=1e9)
    executors = patient.count_executors()
    assert patient.register(0, "e1", "h", 1, executors=executors) is not None
    assert patient.register(1, "e1", "h", 2, executors=executors) is None
    assert patient.register(1, "e2", "h", 3, executors=executors) is not None
    hasty = SlotTable(2, slots_per_executor=2, executors=lambda: 2, spread_s=-1)
    assert hasty.register(0, "e1", "h", 1) is not None
    assert hasty.register(1, "e1", "h", 2) is not None


def test_nobody_registers_while_slots_are_stopped() -> None:
    table = SlotTable(1, slots_per_executor=None)
    table.stopping = True
    assert table.register(0, "e", "h", 1) is None


def test_every_copy_of_the_function_has_an_attempt_number_of_its_own() -> None:
    """Restarts of the slot and functions opened anew within an incarnation count on, as attempts of a subtask do in Flink."""
    table = SlotTable(1, slots_per_executor=None)
    first = table.register(0, "e", "h", 1)
    assert first is not None
    numbers = [table.get(0).attempt, table.reopened(0, first)]
    second = table.register(0, "e", "h", 2)
    assert second is not None
    numbers += [table.get(0).attempt, table.reopened(0, second)]
    assert numbers == [0, 1, 2, 3]
    with pytest.raises(FencedError):
        table.reopened(0, first)


def test_slots_that_were_just_submitted_are_not_silent() -> None:
    """A rescale makes a new table whose slots have sent no heartbeat yet; a stop must not take that for lost executors."""
    assert 0 <= SlotTable(2, slots_per_executor=None).silence_s() < 60


def test_a_retired_incarnation_does_not_come_back() -> None:
    """One that was lost returns with its next heartbeat; one whose state may be wrong is told that it is over, so that it ends."""
    table = SlotTable(1, slots_per_executor=None)
    first = table.register(0, "e", "h", 1)
    assert first is not None
    table.ready(0, first, "grpc://x", "")
    table.retire(0, first)
    assert table.get(0).state == LOST
    with pytest.raises(FencedError):
        table.heartbeat(0, first, REPORT)
    with pytest.raises(FencedError):
        table.check(0, first)
    with pytest.raises(FencedError):
        table.ready(0, first, "grpc://x", "")
    assert table.get(0).state == LOST
    second = table.register(0, "e", "h", 1)
    assert second is not None
    table.retire(0, first)
    table.ready(0, second, "grpc://y", "")
    assert table.get(0).state == READY


def test_progress_of_a_restore_belongs_to_one_incarnation() -> None:
    """The next one begins with none; a report of the one before arrives late and is refused."""
    table = SlotTable(1, slots_per_executor=None)
    first = table.register(0, "e", "h", 1)
    assert first is not None
    half = RestoredBytes(downloaded_bytes=5, local_bytes=0, total_bytes=10)
    table.restoring(0, first, half)
    assert table.get(0).restored == half
    second = table.register(0, "e", "h", 2)
    assert second is not None
    assert table.get(0).restored is None
    with pytest.raises(FencedError):
        table.restoring(0, first, half)
    assert table.get(0).restored is None
