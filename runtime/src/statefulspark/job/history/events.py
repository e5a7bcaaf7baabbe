"""Snapshots and events of a job's history, bounded in number and length. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from statefulspark.config.savepoints import SavepointFormat
from statefulspark.coordinator.controls import CheckpointInfo, JobError
from statefulspark.coordinator.history import HistoryEvent, HistorySnapshot
from statefulspark.job.history.texts import clipped, name

SNAPSHOTS_MAX: Final = 200
EVENTS_MAX: Final = 100
_REPEATED_WITHIN: Final = 3
"""The same failure is looked for in so many latest events: one of a slot is often followed by one of the query."""
MESSAGE_BYTES_MAX: Final = 4096
"""Of an event; a traceback that is longer loses its middle, because its end says what was raised."""
REASON_BYTES_MAX: Final = 500
"""Of the error of a snapshot."""
PATH_BYTES_MAX: Final = 1000


def snapshot_of(
    outcome: CheckpointInfo | BaseException, *, savepoint: bool, wanted: SavepointFormat = "native", now_ms: int
) -> HistorySnapshot:
    """Return the record of a snapshot that has ended; ``wanted`` is the format of one that has failed."""
    if not isinstance(outcome, CheckpointInfo):
        error = JobError.of(outcome)
        text = clipped(f"{error.reason}: {error.message}", REASON_BYTES_MAX)
        return HistorySnapshot(ended_ms=now_ms, kind="savepoint" if savepoint else "checkpoint", format=wanted, error=text)
    return HistorySnapshot(
        ended_ms=outcome.completed_ms,
        kind=outcome.kind,
        id=outcome.id,
        batch=outcome.batch,
        duration_ms=outcome.duration_ms,
        sync_ms=outcome.sync_ms,
        size_bytes=outcome.size_bytes,
        uploaded_bytes=outcome.uploaded_bytes,
        path=name(outcome.path, PATH_BYTES_MAX),
        format=outcome.format,
    )


class EventLog:
    """The latest snapshots and events. Used by one thread at a time."""

    def __init__(self, snapshots: Iterable[HistorySnapshot] = (), events: Iterable[HistoryEvent] = ()) -> None:
        self.snapshots = deque(snapshots, maxlen=SNAPSHOTS_MAX)
        self.events: deque[HistoryEvent] = deque(maxlen=EVENTS_MAX)
        for event in events:
            self.add(event)

    def add(self, event: HistoryEvent) -> None:
        """Add an event; one that only repeats the last of its kind is counted there, so that a job that fails forever keeps its history."""
        event = replace(event, message=clipped(event.message, MESSAGE_BYTES_MAX), reason=name(event.reason, PATH_BYTES_MAX))
        for at in range(max(0, len(self.events) - _REPEATED_WITHIN), len(self.events)):
            last = self.events[at]
            if event.reason and (last.kind, last.reason, last.slot, last.message) == (event.kind, event.reason, event.slot, event.message):
                self.events[at] = replace(last, last_ms=max(last.last_ms, event.last_ms), count=last.count + event.count)
                return
        self.events.append(event)
