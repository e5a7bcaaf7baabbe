"""What the coordinator knows of batches."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.checkpoint.formats.records import ChangelogRef
from statefulspark.coordinator.batches.log import Adopted, BatchLog
from statefulspark.rpc.messages.batches import Acknowledge, RunMetrics


def ack(batch: int, *, uid: str = "u", slot: int = 0, seen: int | None = None, event: int | None = None, key: str = "key") -> Acknowledge:
    return Acknowledge(
        uid=uid,
        slot=slot,
        epoch=1,
        batch=batch,
        changelog=ChangelogRef(
            uid=uid, slot=slot, first=slot, last=slot, batch=batch, epoch=1, key=key, size_bytes=1, checksum="sha256:" + "0" * 64
        ),
        max_event_time_ms=seen,
        event_timer_ms=event,
        processing_timer_ms=None,
        rows_in=1,
        rows_out=1,
        metrics=RunMetrics(timers_fired=0, timers_registered=0, seconds={}, exchange_seconds={}),
    )


def changelog_of(acknowledged: Acknowledge) -> ChangelogRef:
    assert acknowledged.changelog is not None
    return acknowledged.changelog


def run_batch(log: BatchLog, batch: int, *acks: Acknowledge) -> None:
    log.commit_current()
    log.begin(log.next_parameters(batch, 1000))
    for one in acks:
        assert log.acknowledge(one)


def test_the_watermark_of_a_batch_comes_from_committed_batches_only() -> None:
    log = BatchLog(delays_ms={"u": (10,)})
    run_batch(log, 0, ack(0, seen=100))
    assert log.watermark("u") is None
    run_batch(log, 1)
    assert log.current is not None
    assert log.current.watermarks == {"u": 90}


def test_a_later_acknowledgement_of_the_same_batch_replaces_the_earlier() -> None:
    log = BatchLog(delays_ms={"u": (0,)})
    run_batch(log, 0, ack(0, key="first"), ack(0, key="second"))
    log.commit_current()
    assert [ref.key for ref in log.changelogs] == ["second"]
    assert log.rows_in == 1


def test_rows_of_a_slot_count_from_the_last_rescale() -> None:
    """A slot of the same number had other key groups before; totals, which metrics count, go on."""
    log = BatchLog(delays_ms={"u": (0,), "v": (0,)})
    run_batch(log, 0, ack(0), ack(0, uid="v"), ack(0, slot=1))
    log.commit_current()
    assert log.slot_rows() == {0: 2, 1: 1}
    log.reset_slots()
    assert log.slot_rows() == {0: 0, 1: 0}
    run_batch(log, 1, ack(1), ack(1, slot=2))
    log.commit_current()
    assert log.slot_rows() == {0: 1, 1: 0, 2: 1}
    assert log.totals["u", 0].rows_in == 2


def test_an_acknowledgement_of_a_committed_batch_is_refused() -> None:
    log = BatchLog(delays_ms={"u": (0,)})
    run_batch(log, 0, ack(0))
    log.commit_current()
    assert not log.acknowledge(ack(0))


def test_a_tick_is_due_when_the_next_watermark_reaches_a_timer() -> None:
    log = BatchLog(delays_ms={"u": (10,)})
    run_batch(log, 0, ack(0, seen=100, event=90))
    assert log.tick_due("u", 0)
    run_batch(log, 1, ack(1, event=91))
    assert not log.tick_due("u", 0)
    assert log.tick_due("u", 0, drain=True)


def test_processing_time_never_goes_back() -> None:
    log = BatchLog(delays_ms={"u": (0,)})
    log.begin(log.next_parameters(0, 5000))
    assert log.next_parameters(1, 4000).processing_time_ms == 5000


@given(st.lists(st.lists(st.integers(0, 2), max_size=4), min_size=1, max_size=12), st.integers(0, 11))
def test_a_slot_is_expected_at_the_last_committed_batch_that_reached_it(batches: list[list[int]], base: int) -> None:
    log = BatchLog(delays_ms={"u": (0,)})
    reached: dict[int, int] = {}
    for number, contacts in enumerate(batches):
        run_batch(log, number, *[ack(number, slot=slot, key=f"{number}-{slot}") for slot in contacts])
        if number < len(batches) - 1:
            reached |= dict.fromkeys(contacts, number)
    for slot in range(3):
        assert log.expected_batch("u", slot) == reached.get(slot, -1)
    log.rebase(base)
    assert all(ref.batch > base for ref in log.changelogs)


def test_an_adopted_batch_of_a_step_that_the_job_no_longer_has() -> None:
    """Its changelogs and its event time count; no slot runs it, so nothing waits for its timers."""
    log = BatchLog(delays_ms={"u": (0,)})
    dropped = changelog_of(ack(0, seen=70)).model_copy(update={"uid": "dropped", "key": "dropped"})
    taken = [
        Adopted(changelog=changelog_of(ack(0, seen=50)), max_event_time_ms=50, second_max_event_time_ms=None),
        Adopted(changelog=dropped, max_event_time_ms=70, second_max_event_time_ms=60, event_times_by_value=({}, {'{"p":1}': 60})),
    ]
    log.adopt(log.next_parameters(0, 1000), taken, [taken[0].changelog.key_groups])
    assert log.changelogs == [each.changelog for each in taken]
    assert log.event_times.by_value() == {"dropped": ({}, {'{"p":1}': 60})}
    assert (log.event_times.of_input(0), log.event_times.of_input(1)) == ({"u": 50, "dropped": 70}, {"dropped": 60})
    assert list(log.timers) == list(log.expected) == [("u", 0)]


@pytest.mark.parametrize("delays", [(None,), (0,), (0, 0), (None, None)])
def test_a_tick_goes_to_a_slot_that_has_an_adopted_batch_to_catch_up_with(delays: tuple[int | None, ...]) -> None:
    """Also while there is no watermark, because a step has no event time or an input had no row: it may have processing-time timers."""
    log = BatchLog(delays_ms={"u": delays})
    ref = changelog_of(ack(0))
    done = Adopted(changelog=ref, max_event_time_ms=5, second_max_event_time_ms=None)
    log.adopt(log.next_parameters(0, 1000), [done], [ref.key_groups])
    assert log.tick_due("u", 1000)


def test_what_a_new_incarnation_of_a_slot_can_restore() -> None:
    """Everything while batches leave changelogs. After a batch without: nothing until a checkpoint has it, and nobody who acknowledged such a running batch."""
    log = BatchLog(delays_ms={"u": (0,)})
    run_batch(log, 0, ack(0))
    assert log.can_restore(0)
    log.commit_current()
    log.begin(log.next_parameters(1, 1000, with_changelogs=False))
    assert log.acknowledge(replace(ack(1, slot=1), changelog=None))
    assert log.can_restore(0)
    assert not log.can_restore(1)
    log.commit_current()
    assert not log.can_restore(0)
    assert log.lacks(0, 1)
    assert not log.lacks(1, 2)
    assert [ref.batch for ref in log.changelogs] == [0]
    log.rebase(1)
    assert log.can_restore(0)
    assert log.can_restore(1)
