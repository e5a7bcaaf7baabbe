"""SessionRows: sessions with the default trigger, read once for all rows of a key in a batch and written once."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Any, Final

from statefulspark.errors import InvalidInputError
from statefulspark.process.functions import RuntimeContext, TimeDomain, TimerService
from statefulspark.process.windows.assigners import event_time
from statefulspark.process.windows.merging_windows import merging_windows_state
from statefulspark.process.windows.session_assigners import event_time_gap
from statefulspark.process.windows.triggers import EventTimeTrigger
from statefulspark.process.windows.window_contents import CombinedContents, WindowContents
from statefulspark.process.windows.window_timers import WindowTimers
from statefulspark.process.windows.windowing import Windowing
from statefulspark.process.windows.windows import TimeWindow
from statefulspark.state.tables.maps import ABSENT
from statefulspark.state.timers import TIMESTAMP_MS_MAX

__all__ = ["SessionRows"]

_SIGN: Final = 1 << 63
_PAIR: Final = struct.Struct(">QQ16s")
_WINDOW: Final = struct.Struct(">QQ")
_UNREAD: Final = object()
_START: Final = attrgetter("start")

Emit = Callable[[TimeWindow, Any], list[Any]]
"""Makes output rows of a window and the entry of its contents."""


class _Session:
    """A session of the current key.

    Attributes:
        start: As in TimeWindow.
        end: As in TimeWindow.
        kept: The bytes under which its contents are kept.
        entry: Its contents, `_UNREAD` until they are needed.
        stored_end: Its end as it is stored, with the timers of that end; None if it is new.
        is_touched: True if a row was added.
    """

    __slots__ = ("end", "entry", "is_touched", "kept", "start", "stored_end", "stored_start")

    def __init__(self, start: int, end: int, kept: bytes, *, is_stored: bool) -> None:
        self.start = start
        self.end = end
        self.kept = kept
        self.entry: Any = _UNREAD if is_stored else ABSENT
        self.stored_start = start
        self.stored_end = end if is_stored else None
        self.is_touched = False


class SessionRows:
    """Adds the rows of a key to its sessions as the window operator does, row by row, but in memory.

    The state is that of the window operator: either may go on where the other has stopped.

    Args:
        context: Of the step.
        scope: Kinds of windows and contents, part of the names of the states.
        windowing: Its trigger is an EventTimeTrigger.
        contents: What sessions keep.
        gap_of: Returns the gap of a row in milliseconds.
        timers: Of the windows.
    """

    def __init__(
        self,
        context: RuntimeContext,
        scope: str,
        windowing: Windowing,
        contents: CombinedContents,
        gap_of: Callable[[Any], int],
        timers: WindowTimers,
    ) -> None:
        self._state = merging_windows_state(context, scope)
        self._contents = contents
        self._gap_of = gap_of
        self._timers = timers
        self._lateness_ms = windowing.allowed_lateness_ms
        self._sessions: list[_Session] = []

    @staticmethod
    def of(context: RuntimeContext, scope: str, windowing: Windowing, contents: WindowContents, timers: WindowTimers) -> SessionRows | None:
        """Return None if assigner, trigger or contents are others, for which the window operator handles each row by itself."""
        gap_of = event_time_gap(windowing.assigner)
        # A subclass may do anything.
        if gap_of is None or type(windowing.trigger) is not EventTimeTrigger or not isinstance(contents, CombinedContents):
            return None
        return SessionRows(context, scope, windowing, contents, gap_of, timers)

    def load(self, watermark_ms: int) -> bool:
        """Read the sessions of the current key.

        Returns:
            False if some touch each other or are late, which other code of the step has left so.
        """
        sessions = []
        before = None
        for start, end, kept in _PAIR.iter_unpack(self._state.value() or b""):
            if (before is not None and start <= before) or end - _SIGN - 1 + self._lateness_ms <= watermark_ms:
                return False
            before = end
            sessions.append(_Session(start - _SIGN, end - _SIGN, kept, is_stored=True))
        self._sessions = sessions
        return True

    def add(self, rows: Iterable[tuple[Any, int | None]], service: TimerService, emit: Emit, late: Callable[[Any], Any]) -> Iterator[Any]:
        """Add rows to the sessions that `load` has read, and write these after the last row.

        Args:
            rows: Each with its event time in milliseconds since the epoch.
            service: Timers of the key.
            emit: Called for a session that a late row changes.
            late: Returns what becomes of a row that is too late.
        """
        watermark, contents = service.current_watermark(), self._contents
        removed: list[_Session] = []
        for row, time in rows:
            session = self._placed(row, event_time(time), watermark, removed)
            if session is None:
                yield from late(row) or ()
                continue
            if session.entry is _UNREAD:
                session.entry = contents.entry(session.kept)
            session.entry = contents.with_row(session.entry, row)
            session.is_touched = True
            if session.end - 1 <= watermark:
                yield from emit(TimeWindow(session.start, session.end), session.entry)
        self._save(removed, service, watermark)

    def ends(self, window: bytes, time_ms: int) -> bool:
        """Return True if a timer at ``time_ms`` means that the session is emitted and removed."""
        return not self._lateness_ms and _WINDOW.unpack(window)[1] - _SIGN - 1 == time_ms

    def fire(self, window: bytes, time_ms: int, emit: Emit, cleared: Callable[[TimeWindow], None]) -> list[Any]:
        """Emit and remove a session of the current key, which `ends`. Nothing happens if it is no longer in flight.

        Sessions that ended before go too. Only other code of the step can have left such a session, with a timer at a time of its own,
        which a session that ends at that time replaces.

        Args:
            window: The bytes of the session.
            time_ms: Of the timer.
            emit: Called with its contents.
            cleared: Called for each session that is gone.
        """
        data = self._state.value() or b""
        at = data.find(window)
        while at % _PAIR.size and at >= 0:
            at = data.find(window, at + 1)
        if at < 0:
            return []
        start, end, kept = _PAIR.unpack_from(data, at)
        ended = TimeWindow(start - _SIGN, end - _SIGN)
        entry = self._contents.entry(kept)
        emitted = emit(ended, entry)
        if entry is not ABSENT:
            self._contents.put(kept, ABSENT)
        cleared(ended)
        first = 0
        rest = data[:at] + data[at + _PAIR.size :]
        while first < len(rest):
            start, end, kept = _PAIR.unpack_from(rest, first)
            if end - _SIGN > time_ms:
                break
            self._contents.clear(kept)
            cleared(TimeWindow(start - _SIGN, end - _SIGN))
            first += _PAIR.size
        self._state.update(rest[first:] or None)
        return emitted

    def _placed(self, row: Any, start: int, watermark: int, removed: list[_Session]) -> _Session | None:
        """Return the session that a row belongs to, extended and merged with others if need be; None if the row is late."""
        end = start + self._gap_of(row)
        if end > TIMESTAMP_MS_MAX:
            raise InvalidInputError("a session ends after 64 bits of milliseconds", field="window", remedy="Correct the event time or gap")
        sessions = self._sessions
        # Of sessions that do not touch each other, those that touch the row's window stand together. Mostly it is the last one.
        last = len(sessions) if not sessions or sessions[-1].start <= end else bisect_right(sessions, end, key=_START)
        first = last
        while first and sessions[first - 1].end >= start:
            first -= 1
        if first == last:
            if end - 1 + self._lateness_ms <= watermark:
                return None
            session = _Session(start, end, _WINDOW.pack(start + _SIGN, end + _SIGN), is_stored=False)
            sessions.insert(first, session)
            return session
        session = sessions[first]
        if last - first > 1:
            self._join(session, sessions[first + 1 : last], removed)
            del sessions[first + 1 : last]
        session.start = min(session.start, start)
        session.end = max(session.end, end)
        return session

    def _join(self, session: _Session, others: list[_Session], removed: list[_Session]) -> None:
        """Move the contents of other sessions to the one that was there first."""
        contents = self._contents
        session.end = others[-1].end
        for each in (session, *others):
            if each.entry is _UNREAD:
                each.entry = contents.entry(each.kept)
        for other in others:
            session.entry = contents.joined(session.entry, other.entry)
            if other.stored_end is not None:
                removed.append(other)

    def _save(self, removed: list[_Session], service: TimerService, watermark: int) -> None:
        """Write what has changed."""
        is_changed = bool(removed)
        for session in removed:
            self._contents.put(session.kept, ABSENT)
            self._delete_timers(session, service)
        for session in self._sessions:
            if session.is_touched:
                self._contents.put(session.kept, session.entry)
                is_extended = session.end != session.stored_end or session.start != session.stored_start
                if session.stored_end is not None and is_extended:
                    self._delete_timers(session, service)
                self._register_timers(session, service, watermark, is_new=is_extended)
                is_changed = is_changed or is_extended
        if is_changed:
            parts = [_PAIR.pack(each.start + _SIGN, each.end + _SIGN, each.kept) for each in self._sessions]
            self._state.update(b"".join(parts))

    def _register_timers(self, session: _Session, service: TimerService, watermark: int, *, is_new: bool) -> None:
        window = _WINDOW.pack(session.start + _SIGN, session.end + _SIGN)
        last = session.end - 1
        if not self._lateness_ms:
            if is_new:
                # No other session of the key has a timer then: each has one, at its end, and they do not touch.
                self._timers.put(service, last, window)
            else:
                self._timers.register(TimeDomain.EVENT_TIME, service, last, window)
            return
        if last > watermark:
            self._timers.register(TimeDomain.EVENT_TIME, service, last, window)
        cleanup = last + self._lateness_ms
        if cleanup < TIMESTAMP_MS_MAX:
            self._timers.register(TimeDomain.EVENT_TIME, service, cleanup, window)

    def _delete_timers(self, session: _Session, service: TimerService) -> None:
        """Delete the timers of a session as it is stored."""
        if session.stored_end is None:
            return
        window = _WINDOW.pack(session.stored_start + _SIGN, session.stored_end + _SIGN)
        last = session.stored_end - 1
        if not self._lateness_ms:
            self._timers.remove(service, last)
            return
        self._timers.delete(TimeDomain.EVENT_TIME, service, last, window)
        cleanup = last + self._lateness_ms
        if cleanup < TIMESTAMP_MS_MAX:
            self._timers.delete(TimeDomain.EVENT_TIME, service, cleanup, window)
