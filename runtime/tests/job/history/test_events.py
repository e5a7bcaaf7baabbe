"""Snapshots and events are bounded, and a failure that repeats does not push out all others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.coordinator.history import EventKind, HistoryEvent
from statefulspark.errors import UnavailableError
from statefulspark.job.history.events import EVENTS_MAX, MESSAGE_BYTES_MAX, SNAPSHOTS_MAX, EventLog, snapshot_of
from statefulspark.job.history.texts import clipped, name


def failure(at_ms: int, message: str, kind: EventKind = "query", slot: int | None = None) -> HistoryEvent:
    return HistoryEvent(first_ms=at_ms, last_ms=at_ms, kind=kind, message=message, reason="UserFunction", slot=slot)


def test_a_failure_that_repeats_is_one_event() -> None:
    """Also if a slot and the query fail in turn."""
    log = EventLog()
    log.add(HistoryEvent(first_ms=1, last_ms=1, kind="driver", message="started"))
    for i in range(1000):
        log.add(failure(10 + i, "boom", "slot", 1))
        log.add(failure(10 + i, "boom"))
    assert [(event.kind, event.count, event.first_ms, event.last_ms) for event in log.events] == [
        ("driver", 1, 1, 1),
        ("slot", 1000, 10, 1009),
        ("query", 1000, 10, 1009),
    ]


def test_other_failures_are_events_of_their_own_and_changes_never_join() -> None:
    log = EventLog()
    for event in (failure(1, "a"), failure(2, "b"), failure(3, "a", "slot", 1), failure(4, "a", "slot", 2)):
        log.add(event)
    for _ in range(2):
        log.add(HistoryEvent(first_ms=5, last_ms=5, kind="rescale", message="rescaled from 2 to 3 slots"))
    assert [event.count for event in log.events] == [1] * 6


def test_only_the_latest_are_kept() -> None:
    log = EventLog()
    for i in range(EVENTS_MAX + 30):
        log.add(failure(i, f"number {i}"))
    for i in range(SNAPSHOTS_MAX + 30):
        log.snapshots.append(snapshot_of(UnavailableError(str(i)), savepoint=False, now_ms=i))
    assert [event.first_ms for event in log.events] == list(range(30, EVENTS_MAX + 30))
    assert [one.ended_ms for one in log.snapshots] == list(range(30, SNAPSHOTS_MAX + 30))


@given(st.text(st.characters() | st.sampled_from("\x00\x1b\u202e\n\t\ud800😀"), max_size=400), st.integers(20, 200))
def test_texts_are_bounded_valid_and_without_control_characters(text: str, most: int) -> None:
    for short in (clipped(text, most), name(text, most)):
        assert len(short.encode()) <= most, "also: it can be encoded, so it has no lone surrogate"
        assert all(char.isprintable() or char in "\n\t" for char in short)


def test_a_long_traceback_keeps_its_end() -> None:
    """Which says what was raised."""
    text = clipped("the function raised\n" + "  File x\n" * 100_000 + "ValueError: what was raised", MESSAGE_BYTES_MAX)
    assert text.startswith("the function raised\n")
    assert text.endswith("ValueError: what was raised")


def test_the_reason_of_a_failed_snapshot_is_kept() -> None:
    failed = snapshot_of(UnavailableError("slot 1 does not answer"), savepoint=True, now_ms=7)
    assert (failed.kind, failed.ended_ms, failed.id, failed.error) == ("savepoint", 7, None, "Unavailable: slot 1 does not answer")
    assert failed.format == "native"
    assert snapshot_of(UnavailableError("full"), savepoint=True, wanted="canonical", now_ms=7).format == "canonical"
    info = CheckpointInfo(id=3, path="s3://b/chk-3", batch=9, completed_ms=5, duration_ms=4, sync_ms=1, size_bytes=20, uploaded_bytes=2)
    done = snapshot_of(info, savepoint=False, now_ms=7)
    assert (done.kind, done.ended_ms, done.id, done.duration_ms, done.sync_ms, done.size_bytes, done.error) == (
        "checkpoint",
        5,
        3,
        4,
        1,
        20,
        None,
    )
