"""Checks the list that a `TestingJob` gets, before anything of it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statefulspark.errors import InvalidInputError
from statefulspark.testing.events import (
    ADVANCE,
    DOWNTIME,
    DRAIN,
    FAIL_STORAGE,
    KILL_SLOT,
    PAUSE_DRIVER,
    RESCALE,
    RESTORE_FROM_SAVEPOINT,
    RESUME_DRIVER,
    SAVEPOINT,
    WITH_ARGUMENTS,
    AnyEvent,
    Event,
    strikes_batch,
)

if TYPE_CHECKING:
    from statefulspark.testing.job_events import EventRunner
    from statefulspark.testing.local_job import LocalJob

_SLOT_MOMENTS = ("idle", "before_changelog", "before_ack", "after_ack")


def is_event(item: Any) -> bool:
    """True for an event, False for a row."""
    return isinstance(item, (Event, *WITH_ARGUMENTS))


def name_of(event: AnyEvent) -> str:
    """Returns the name of an event as tests write it."""
    return event.value if isinstance(event, Event) else type(event).__name__


def check_items(items: list[Any], job: LocalJob, runner: EventRunner) -> None:
    """Refuse a list in which an item cannot be what its place makes it.

    Raises:
        InvalidInputError: Says which item, by its place in the list, counted from 0.
    """
    drained, paused, savepoints = runner.drained, runner.paused is not None, bool(runner.savepoints)
    rows_before = False
    for place, item in enumerate(items):
        if not is_event(item):
            if isinstance(item, type) and item in WITH_ARGUMENTS:
                raise _refused(place, f"{item.__name__} has no argument", f"Write {item.__name__}(...)")
            if drained:
                raise _refused(place, "a row follows DRAIN", "Let DRAIN be the last event before the end of the rows")
            job.batch_of([item])
            rows_before = True
            continue
        _check_event(place, item, rows_before=rows_before)
        if item is RESUME_DRIVER and not paused:
            raise _refused(place, "no driver is paused", "Put PAUSE_DRIVER before it")
        if item is PAUSE_DRIVER and paused:
            raise _refused(place, "a driver is paused already", "Put RESUME_DRIVER before it")
        if isinstance(item, RESTORE_FROM_SAVEPOINT) and not savepoints:
            raise _refused(place, "there is no savepoint", "Put SAVEPOINT before it")
        drained |= item is DRAIN
        savepoints |= item is SAVEPOINT
        paused = item is PAUSE_DRIVER or (paused and item is not RESUME_DRIVER)
        rows_before = False


def _check_event(place: int, event: AnyEvent, *, rows_before: bool) -> None:
    if strikes_batch(event) and not rows_before:
        raise _refused(place, f"{name_of(event)} happens within a batch, and no row stands right before it", "Put it after a row")
    if isinstance(event, KILL_SLOT) and event.when not in _SLOT_MOMENTS:
        raise _refused(place, f"{event.when!r} is no moment at which a slot can be killed", f"Use one of: {', '.join(_SLOT_MOMENTS)}")
    if isinstance(event, FAIL_STORAGE) and (event.writes < 1 or event.lost not in ("request", "answer")):
        raise _refused(place, f"it cannot fail {event.writes} writes by losing the {event.lost}", "Give at least 1, and request or answer")
    if isinstance(event, ADVANCE | DOWNTIME) and event.ms < 0:
        raise _refused(place, f"processing time cannot go back by {-event.ms} ms", "Give 0 or more")
    parallelism = event.parallelism if isinstance(event, RESCALE | RESTORE_FROM_SAVEPOINT) else None
    if parallelism is not None and parallelism < 1:
        raise _refused(place, f"a job cannot have {parallelism} slots", "Give at least 1")


def _refused(place: int, message: str, remedy: str) -> InvalidInputError:
    return InvalidInputError(message, field=f"items[{place}]", remedy=remedy)
