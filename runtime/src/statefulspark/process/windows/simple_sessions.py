"""SimpleSessions: adds rows to sessions, and fires them, for many keys at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from statefulspark.process.api.contexts import SlotTimerService
from statefulspark.process.runner.key_rows import FiredTimers, KeyedRows
from statefulspark.process.windows.number_sessions import NumberSessions
from statefulspark.process.windows.session_assigners import fixed_gap
from statefulspark.process.windows.session_forms import SessionForms
from statefulspark.process.windows.session_rows import Emit, SessionRows
from statefulspark.process.windows.session_state import Session
from statefulspark.process.windows.window_contents import AggregatedContents, CombinedContents
from statefulspark.process.windows.windowing import Windowing
from statefulspark.process.windows.windows import TimeWindow
from statefulspark.state.tables.maps import ABSENT
from statefulspark.state.timers import TIMESTAMP_MS_MAX

__all__ = ["SimpleSessions"]

_Begun = tuple[int, int, int, Any]
"""Number of a key; start, end and contents of the session that its rows change, or of a new one, whose contents are absent."""


class SimpleSessions:
    """Does what `SessionRows` does for the keys that are simple, as nearly all are: in one loop, without making each of them current.

    A key is simple if it has one session, which has not ended, or none, and its first row belongs to that session or begins one that is not late.

    Args:
        sessions: For what is rare.
        forms: Where sessions are stored. A caller has found that all are joint.
        numbers: Packs sessions.
        contents: What sessions keep: numbers.
        gap_ms: The gap.
    """

    def __init__(
        self, sessions: SessionRows, forms: SessionForms, numbers: NumberSessions, contents: AggregatedContents, gap_ms: int
    ) -> None:
        self._sessions = sessions
        self._state = forms.joint
        self._numbers = numbers
        self._contents = contents
        self._gap_ms = gap_ms

    @staticmethod
    def of(windowing: Windowing, contents: CombinedContents, forms: SessionForms, sessions: SessionRows) -> SimpleSessions | None:
        """Return None if no key is simple: the gap varies, contents are no numbers, or a key must be current when they are combined."""
        gap_ms, numbers = fixed_gap(windowing.assigner), forms.numbers
        if gap_ms is None or numbers is None or not isinstance(contents, AggregatedContents) or contents.needs_key:
            return None
        return SimpleSessions(sessions, forms, numbers, contents, gap_ms)

    def add(self, keyed: KeyedRows, service: SlotTimerService) -> list[int]:
        """Add the rows of simple keys to their sessions, and return the numbers of the other keys."""
        entries = self._state.entries(keyed.idents)
        begun, others = self._begun(keyed, entries, service.watermark_ms)
        rows, times, firsts, gap_ms = keyed.rows, keyed.times, keyed.firsts, self._gap_ms
        with_row, packed = self._contents.with_row, self._numbers.packed
        changes = _Changes()
        number = 0
        try:
            for each in begun:
                number, start, end, entry = each
                stored_end = None if entry is ABSENT else end
                before: list[Session] = []
                for place in range(firsts[number], firsts[number + 1]):
                    time: int = times[place]  # type: ignore[assignment]  # a key with a row without time is not simple
                    if time > end:
                        before.append((start, end, entry))
                        start, end, entry = time, time + gap_ms, ABSENT
                    elif time + gap_ms > end:
                        end = time + gap_ms
                    entry = with_row(entry, rows[place])
                before.append((start, end, entry))
                value = packed(before)
                if value is not None:
                    changes.note(keyed.idents[number], value, before, stored_end)
                    continue
                # They are many, or have a number that does not fit and is refused, or None.
                keyed.select(number)
                stored = None if stored_end is None else self._numbers.unpacked(entries[number])
                self._sessions.save_appended(stored or (), before, service, service.watermark_ms)
        except BaseException:
            keyed.select(number)  # errors name the current one
            raise
        self._state.put_entries(changes.idents, changes.values)
        service.delete_event_time_timers(changes.deleted, changes.deleted_of)
        service.register_event_time_timers(changes.registered, changes.registered_of)
        return others

    def _begun(self, keyed: KeyedRows, entries: Sequence[Any], watermark_ms: int) -> tuple[list[_Begun], list[int]]:
        """Return the simple keys with the session that each begins with, and the numbers of the others."""
        times, firsts, gap_ms = keyed.times, keyed.firsts, self._gap_ms
        one_bytes, unpack, latest_ms = self._numbers.one_bytes, self._numbers.unpack_one, TIMESTAMP_MS_MAX - self._gap_ms
        begun: list[_Begun] = []
        others: list[int] = []
        for number, entry in enumerate(entries):
            first, last = times[firsts[number]], times[firsts[number + 1] - 1]
            # Rows without a time come first.
            if first is not None and last is not None and last <= latest_ms:
                if entry is None:
                    if first + gap_ms - 1 > watermark_ms:
                        begun.append((number, first, first + gap_ms, ABSENT))
                        continue
                elif entry.__class__ is bytes and len(entry) == one_bytes:
                    start, end, contents = unpack(entry)
                    if start <= first and end - 1 > watermark_ms:
                        begun.append((number, start, end, contents))
                        continue
            others.append(number)
        return begun, others

    def fire(self, fired: FiredTimers, service: SlotTimerService, emit: Emit, *, read_ahead: bool) -> Iterator[Any]:
        """Emit the sessions that end with a timer, and remove them; no lateness is allowed, and the window function has no ``clear``.

        Args:
            fired: The timers.
            service: Of the step.
            emit: Makes output rows; its key is current.
            read_ahead: True if ``emit`` reads states of the key.
        """
        entries = self._state.entries(fired.idents)
        if read_ahead:
            fired.prefetch(fired.idents)
        # Of two timers of a key, the second finds what the first has left.
        are_distinct = len(set(fired.idents)) == len(fired.idents)
        one_bytes, unpack = self._numbers.one_bytes, self._numbers.unpack_one
        unpacked, packed = self._numbers.unpacked, self._numbers.packed
        gone: list[bytes] = []
        kept: list[bytes] = []
        values: list[bytes] = []
        for number, (time, ident, entry) in enumerate(zip(fired.times, fired.idents, entries, strict=True)):
            ended = time + 1
            sessions: Sequence[Session] | None = None
            if are_distinct and entry.__class__ is bytes:
                sessions = (unpack(entry),) if len(entry) == one_bytes else unpacked(entry)
            if sessions is None:
                fired.select(number)
                yield from self._sessions.fire(time, service, emit, None)
                continue
            for start, end, contents in sessions:
                if end == ended:
                    fired.select(number)
                    yield from emit(TimeWindow(start, end), contents)
            if sessions[-1][1] <= ended:
                gone.append(ident)
            elif sessions[0][1] <= ended and (rest := packed(sessions[1:])) is not None:
                kept.append(ident)
                values.append(rest)
        self._state.clear_entries(gone)
        self._state.put_entries(kept, values)


class _Changes:
    """Changes by `SimpleSessions.add`, in the lists in which they are written.

    Attributes:
        idents: Of the keys.
        values: The sessions of each.
        registered: Times of timers in milliseconds since the epoch.
        registered_of: Idents of their keys.
        deleted: Times of timers.
        deleted_of: Idents of their keys.
    """

    __slots__ = ("deleted", "deleted_of", "idents", "registered", "registered_of", "values")

    def __init__(self) -> None:
        self.idents: list[bytes] = []
        self.values: list[bytes] = []
        self.registered: list[int] = []
        self.registered_of: list[bytes] = []
        self.deleted: list[int] = []
        self.deleted_of: list[bytes] = []

    def note(self, ident: bytes, value: bytes, sessions: Sequence[Session], stored_end: int | None) -> None:
        """Note the sessions of a key; ``stored_end`` is the former end of the first one if it is stored."""
        self.idents.append(ident)
        self.values.append(value)
        is_first = True
        for _, end, _ in sessions:
            if not is_first or end != stored_end:
                self.registered.append(end - 1)
                self.registered_of.append(ident)
                if is_first and stored_end is not None:
                    self.deleted.append(stored_end - 1)
                    self.deleted_of.append(ident)
            is_first = False
