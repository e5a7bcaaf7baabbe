"""When a slot counts as lost, and when it is submitted again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from statefulspark.coordinator.slots.replacement import (
    CRASHES_IN_RESTORE,
    LOST_AFTER_S,
    SILENT_AFTER_S,
    SlotRestarts,
    is_back,
    is_lost,
    occupies,
    resubmit_pause_s,
)
from statefulspark.coordinator.slots.state import LOST, READY, RESTORING, STARTING, Slot
from statefulspark.job.failures.restarts import FixedDelay, NoRestart

NEVER_SERVED = Slot(0, state=RESTORING)
RESTORES_AGAIN = Slot(0, state=RESTORING, ready_epoch=1)
SERVES = Slot(0, state=READY, ready_epoch=1, location="grpc://x")


def test_a_slot_that_never_serves_is_given_up() -> None:
    """Whatever the strategy: trying again does not cure a missing module. Each slot counts for itself."""
    restarts = SlotRestarts(strategy=FixedDelay(attempts=100).next_pause_s)
    assert [restarts.next_pause_s(NEVER_SERVED, 0.0) for _ in range(3)] == [0.4, 0.8, None]
    assert restarts.next_pause_s(Slot(1, state=RESTORING), 0.0) is not None


def test_a_slot_that_dies_while_it_restores_is_a_matter_of_the_strategy() -> None:
    """It is submitted again as often as the strategy restarts a query."""
    restarts = SlotRestarts(strategy=FixedDelay(attempts=4, delay_s=7.0).next_pause_s)
    assert [restarts.next_pause_s(RESTORES_AGAIN, 0.0) for _ in range(5)] == [7.0, 7.0, 7.0, 7.0, None]


def test_a_slot_whose_process_dies_in_each_restore_is_given_up() -> None:
    """A strategy without an end restarted it for ever. Once it has served in between, the count begins again."""
    restarts = SlotRestarts(strategy=FixedDelay(attempts=100, delay_s=7.0).next_pause_s)
    pauses = [restarts.next_pause_s(RESTORES_AGAIN, 0.0, crashed=True) for _ in range(CRASHES_IN_RESTORE)]
    assert pauses == [7.0] * (CRASHES_IN_RESTORE - 1) + [None]
    assert restarts.next_pause_s(replace(RESTORES_AGAIN, ready_epoch=9), 0.0, crashed=True) == 7.0
    assert restarts.next_pause_s(SERVES, 0.0, crashed=True) == 0.2


def test_a_slot_that_is_lost_while_it_serves_costs_no_restart() -> None:
    """It did not fail to start."""
    restarts = SlotRestarts(strategy=NoRestart().next_pause_s)
    assert all(restarts.next_pause_s(SERVES, 0.0) == 0.2 for _ in range(10))
    assert restarts.next_pause_s(RESTORES_AGAIN, 0.0) is None


def test_a_slot_that_cannot_be_reached_is_lost_only_if_its_heartbeats_stopped_as_well() -> None:
    assert not is_lost(SERVES, LOST_AFTER_S)
    assert is_lost(SERVES, LOST_AFTER_S + 0.1)
    assert not is_lost(RESTORES_AGAIN, 1e9)


@pytest.mark.parametrize("location", ["grpc://x", ""])
def test_a_heartbeat_brings_a_slow_slot_back_but_not_a_fenced_one(location: str) -> None:
    """A slot that was fenced because its state may be wrong has no location any more."""
    assert is_back(Slot(0, state=LOST, location=location)) is bool(location)


def test_a_silent_slot_frees_its_executor() -> None:
    assert occupies(SERVES, SILENT_AFTER_S - 0.1)
    assert occupies(NEVER_SERVED, SILENT_AFTER_S - 0.1)
    assert not occupies(SERVES, SILENT_AFTER_S)
    assert not occupies(Slot(0, state=LOST), 0.0)
    assert not occupies(Slot(0, state=STARTING), 0.0)


def test_a_declined_slot_waits_before_it_asks_again() -> None:
    assert resubmit_pause_s(declined=True) > resubmit_pause_s(declined=False) == 0.0
