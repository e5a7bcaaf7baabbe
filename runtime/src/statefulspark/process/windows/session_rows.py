"""SessionRows: sessions with the default trigger, read once for all rows of a key in a batch and written once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Final

from statefulspark.errors import InvalidInputError
from statefulspark.process.api.functions import TimerService
from statefulspark.process.windows.assigners import event_time
from statefulspark.process.windows.session_assigners import event_time_gap, fixed_gap
from statefulspark.process.windows.session_forms import SessionForms
from statefulspark.process.windows.session_state import Session
from statefulspark.process.windows.triggers import EventTimeTrigger
from statefulspark.process.windows.window_contents import CombinedContents
from statefulspark.process.windows.windowing import Windowing
from statefulspark.process.windows.windows import TimeWindow
from statefulspark.state.tables.maps import ABSENT
from statefulspark.state.timers import TIMESTAMP_MS_MAX

__all__ = ["SessionRows"]

_START: Final = attrgetter("start")

Emit = Callable[[TimeWindow, Any], list[Any]]
"""Makes output rows of a window and the entry of its contents."""


class _Session:
    """A session of the current key. ``is_touched`` is True if a row was added."""

    __slots__ = ("end", "entry", "is_touched", "start")

    def __init__(self, start: int, end: int, entry: Any, *, is_touched: bool = False) -> None:
        self.start = start
        self.end = end
        self.entry = entry
        self.is_touched = is_touched


class SessionRows:
    """Adds the rows of a key to its sessions as the window operator does, row by row, but in memory, and in the joint form.

    Args:
        windowing: Its trigger is an EventTimeTrigger.
        contents: What sessions keep.
        gap_of: Returns the gap of a row in milliseconds.
        forms: Where sessions are stored.
    """

    def __init__(self, windowing: Windowing, contents: CombinedContents, gap_of: Callable[[Any], int], forms: SessionForms) -> None:
        self._state = forms.joint
        self._forms = forms
        self._contents = contents
        self._gap_of = gap_of
        self._fixed_gap_ms = fixed_gap(windowing.assigner)
        self._lateness_ms = windowing.allowed_lateness_ms

    @staticmethod
    def of(windowing: Windowing, contents: CombinedContents, forms: SessionForms) -> SessionRows | None:
        """Return None if assigner or trigger are others, for which the window operator handles each row by itself."""
        gap_of = event_time_gap(windowing.assigner)
        # A subclass may do anything.
        if gap_of is None or type(windowing.trigger) is not EventTimeTrigger:
            return None
        return SessionRows(windowing, contents, gap_of, forms)

    def add(
        self,
        rows: Sequence[Any],
        times: Sequence[int | None],
        service: TimerService,
        emit: Emit,
        late: Callable[[Any], Iterable[Any] | None],
        cleared: Callable[[TimeWindow], None] | None,
    ) -> list[Any]:
        """Add rows to the sessions of the current key, which are joint, and write these once.

        Args:
            rows: The rows.
            times: Their event times in milliseconds since the epoch.
            service: Timers of the key.
            emit: Called for a session that a late row changes.
            late: Returns what becomes of a row that is too late.
            cleared: Called for a session that should have ended, because the lateness is less than before; None if nobody asks.

        Returns:
            Output rows.
        """
        watermark = service.current_watermark()
        stored: tuple[Session, ...] = self._state.value() or ()
        taken = 0
        if not stored or stored[0][1] - 1 > watermark:
            appended, taken = self._appended(stored, rows, times, watermark)
            if taken == len(rows):
                self.save_appended(stored, appended, service, watermark)
                return []
            sessions = [_Session(*each, is_touched=taken > 0) for each in appended]
        else:
            stored = self._in_flight(stored, watermark, cleared)
            sessions = [_Session(*each) for each in stored]
        emitted: list[Any] = []
        for row, time in zip(rows[taken:], times[taken:], strict=True):
            start, end = self._window(row, time)
            session = self._placed(sessions, start, end, watermark)
            if session is None:
                emitted.extend(late(row) or ())
                continue
            session.entry = self._contents.with_row(session.entry, row)
            session.is_touched = True
            if session.end - 1 <= watermark:
                emitted.extend(emit(TimeWindow(session.start, session.end), session.entry))
        self._save(stored, sessions, service, watermark)
        return emitted

    def _appended(
        self, stored: tuple[Session, ...], rows: Sequence[Any], times: Sequence[int | None], watermark: int
    ) -> tuple[list[Session], int]:
        """Add rows as long as each belongs to the last session or begins one after it, and none has ended: that is what nearly all keys cost.

        Returns:
            The sessions, and how many rows they have taken.
        """
        sessions = [*stored]
        start, end, entry = sessions.pop() if sessions else (0, 0, ABSENT)
        with_row, gap_ms, taken = self._contents.with_row, self._fixed_gap_ms, 0
        for row, time in zip(rows, times, strict=True):
            if gap_ms is None or time is None or time > TIMESTAMP_MS_MAX - gap_ms:
                first, last = self._window(row, time)
            else:
                first, last = time, time + gap_ms
            if entry is ABSENT or first > end:
                if last - 1 <= watermark:
                    break
                if entry is not ABSENT:
                    sessions.append((start, end, entry))
                start, end, entry = first, last, ABSENT
            elif first < start:
                if last < start or (sessions and sessions[-1][1] >= first):
                    break
                start, end = first, max(end, last)
            elif last > end:
                end = last
            entry = with_row(entry, row)
            taken += 1
        if entry is not ABSENT:
            sessions.append((start, end, entry))
        return sessions, taken

    def fire(self, time_ms: int, service: TimerService, emit: Emit, cleared: Callable[[TimeWindow], None] | None) -> list[Any]:
        """Emit the session of the current key that ends with ``time_ms``, and remove those whose lateness is over.

        Sessions are joint. The lateness may have changed since a timer was registered, so a session that has ended and stays gets one at its cleanup.

        Args:
            time_ms: Of the timer.
            service: Timers of the key.
            emit: Called with the contents.
            cleared: Called for each session that is removed; None if nobody asks.
        """
        emitted: list[Any] = []
        removed, lateness_ms = 0, self._lateness_ms
        sessions: tuple[Session, ...] = self._state.value() or ()
        for start, end, entry in sessions:
            last = end - 1
            if last > time_ms:
                break
            if last == time_ms:
                emitted += emit(TimeWindow(start, end), entry)
            cleanup = last + lateness_ms
            if cleanup <= time_ms:
                removed += 1
                if cleared is not None:
                    cleared(TimeWindow(start, end))
            elif cleanup < TIMESTAMP_MS_MAX:
                service.register_event_time_timer(cleanup)
        if removed and removed == len(sessions):
            self._state.clear()
        elif removed:
            self._forms.put(sessions[removed:])
        return emitted

    def _in_flight(self, stored: tuple[Session, ...], watermark: int, cleared: Callable[[TimeWindow], None] | None) -> tuple[Session, ...]:
        """Remove the sessions that are late, and return the others."""
        late = 0
        for start, end, _ in stored:
            if end - 1 + self._lateness_ms > watermark:
                break
            late += 1
            if cleared is not None:
                cleared(TimeWindow(start, end))
        if late:
            stored = stored[late:]
            self._state.update(stored or None)
        return stored

    def _window(self, row: Any, time: int | None) -> tuple[int, int]:
        """Return start and end of a row's own window."""
        start = event_time(time) if time is None else time
        end = start + self._gap_of(row)
        if end > TIMESTAMP_MS_MAX:
            raise InvalidInputError("a session ends after 64 bits of milliseconds", field="window", remedy="Correct the event time or gap")
        return start, end

    def _placed(self, sessions: list[_Session], start: int, end: int, watermark: int) -> _Session | None:
        """Return the session that a row's window belongs to, extended and merged with others if need be; None if the row is late."""
        # Of sessions that do not touch each other, those that touch the row's window stand together. Mostly it is the last one.
        last = len(sessions) if not sessions or sessions[-1].start <= end else bisect_right(sessions, end, key=_START)
        first = last
        while first and sessions[first - 1].end >= start:
            first -= 1
        if first == last:
            if end - 1 + self._lateness_ms <= watermark:
                return None
            session = _Session(start, end, ABSENT)
            sessions.insert(first, session)
            return session
        session = sessions[first]
        for other in sessions[first + 1 : last]:
            session.end = other.end
            session.entry = self._contents.joined(session.entry, other.entry)
        del sessions[first + 1 : last]
        session.start = min(session.start, start)
        session.end = max(session.end, end)
        return session

    def save_appended(self, stored: tuple[Session, ...], sessions: list[Session], service: TimerService, watermark: int) -> None:
        """Write sessions that have not ended, with their timers. The last one that was stored may have another end, and others have come after it."""
        known = len(stored)
        if known and stored[-1][1] != sessions[known - 1][1]:
            service.delete_event_time_timer(stored[-1][1] - 1)
            known -= 1
        for _, end, _ in sessions[known:]:
            service.register_event_time_timer(end - 1)
        self._forms.save(tuple(sessions), service, watermark)

    def _save(self, stored: tuple[Session, ...], sessions: list[_Session], service: TimerService, watermark: int) -> None:
        """Write what has changed, with its timers."""
        if not any(each.is_touched for each in sessions):
            return
        before = {self._timer_of(end, watermark) for _, end, _ in stored}
        after = {self._timer_of(each.end, watermark) for each in sessions}
        for time in before - after:
            if time < TIMESTAMP_MS_MAX:
                service.delete_event_time_timer(time)
        for each in sessions:
            time = self._timer_of(each.end, watermark)
            # Of a session that has ended, the timer may be that of another lateness.
            is_new = time not in before or (each.is_touched and each.end - 1 <= watermark)
            if is_new and time < TIMESTAMP_MS_MAX:
                service.register_event_time_timer(time)
        self._forms.save(tuple([(each.start, each.end, each.entry) for each in sessions]), service, watermark)

    def _timer_of(self, end: int, watermark: int) -> int:
        """Return when the timer of a session fires; `TIMESTAMP_MS_MAX` without one."""
        return end - 1 if end - 1 > watermark else min(end - 1 + self._lateness_ms, TIMESTAMP_MS_MAX)
