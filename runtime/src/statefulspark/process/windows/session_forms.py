"""SessionForms: the two forms in which the sessions of a key are stored, and the way from one to the other."""

from __future__ import annotations

import struct
from typing import Final

from statefulspark.process.api.functions import RuntimeContext, TimeDomain, TimerService
from statefulspark.process.windows.merging_windows import merging_windows_state
from statefulspark.process.windows.session_state import Session, SessionsTypeInfo, sessions_state
from statefulspark.process.windows.window_contents import CombinedContents
from statefulspark.process.windows.window_states import WindowStates
from statefulspark.process.windows.window_timers import WindowTimers
from statefulspark.state.tables.maps import ABSENT
from statefulspark.state.timers import TIMESTAMP_MS_MAX

__all__ = ["SessionForms", "next_due"]

_JOINT_SESSIONS_MAX: Final = 8
"""Sessions that a key may have in the joint form, which writes the contents of all of them when one changes."""
_VISITS: Final = 4096
"""Visits of a key group after which it is looked again whether it has separate sessions."""
_SIGN: Final = 1 << 63
_PAIR: Final = struct.Struct(">QQ16s")
_WINDOW: Final = struct.Struct(">QQ")


def next_due(service: TimerService) -> int:
    """Return the first time whose timers may not have fired yet when a row comes."""
    return min(service.current_watermark() + 1, TIMESTAMP_MS_MAX)


class SessionForms:
    """Stored form of the current key's sessions. A key has them in one form only.

    * **joint**: one value with the windows and contents of all sessions (`session_state`). A session has one timer of the key, at its end, or at its cleanup once
      that has fired, and nothing says for which window it fires.
    * **separate**: the value of `MergingWindows`, an entry of contents for each, and the windows of each timer (`WindowTimers`), as any trigger may leave them.

    A key group in which nothing is separate is remembered, so that its keys pay nothing for the other form.

    Args:
        context: Of the step.
        scope: Kinds of windows and contents, part of the names of the states.
        contents: What sessions keep.
        timers: Of the windows.
        trigger_states: Of the windows.
        lateness_ms: Allowed lateness.

    Attributes:
        joint: The sessions of the current key in the joint form.
        numbers: Packs sessions in that form; None if their contents are not numbers.
        all_joint: True if `load` would return True for every key, with nothing to do.
    """

    def __init__(
        self,
        context: RuntimeContext,
        scope: str,
        contents: CombinedContents,
        timers: WindowTimers,
        trigger_states: WindowStates,
        *,
        lateness_ms: int,
    ) -> None:
        type_ = SessionsTypeInfo(contents.value_type())
        self._packed = type_.packed
        self.numbers = type_.numbers
        self.joint = sessions_state(context, scope, type_)
        self._put_entry = self.joint.put_entry
        self._windows = merging_windows_state(context, scope)
        self._contents = contents
        self._timers = timers
        self._trigger_states = trigger_states
        self._lateness_ms = lateness_ms
        # Not read again for each row: only `split` makes sessions separate, and a batch that was undone is retried by a fresh function.
        self._joint_groups: set[bytes] = set()
        own = context.get_key_group_range()
        self._groups = own.last - own.first + 1
        self._visits: dict[bytes, int] = {}
        self.all_joint = False

    def load(self, service: TimerService, fires_ms: int | None = None) -> bool:
        """Bring the sessions of the current key into the joint form.

        Args:
            service: Timers of the key.
            fires_ms: Time of the timer that fires now; None if a row comes. For what windows it fires is forgotten.

        Returns:
            False if they cannot be joint: they touch each other or are many, one is empty or has no timer at its end, as other triggers and assigners
            leave them, or a trigger may have state.
        """
        group = self.joint.current_key_group()
        if group in self._joint_groups:
            return True
        visits = self._visits[group] = self._visits.get(group, -1) + 1
        look_again = visits % _VISITS == _VISITS - 1
        if self._trigger_states.may_exist(look_again=look_again):
            return False
        if (
            self._windows.may_have_entries(look_again=look_again)
            or self._contents.may_exist(look_again=look_again)
            or self._timers.may_exist(look_again=look_again)
        ):
            due_ms = next_due(service) if fires_ms is None else fires_ms
            return self._join(service, due_ms, fires=fires_ms is not None)
        self._joint_groups.add(group)
        self.all_joint = len(self._joint_groups) == self._groups
        return True

    def save(self, sessions: tuple[Session, ...], service: TimerService, watermark_ms: int) -> None:
        """Store the sessions of the current key, which has none in the separate form; in that form if they are many."""
        self._put_entry(self._packed(sessions) or sessions)
        if len(sessions) > _JOINT_SESSIONS_MAX:
            self.split(service, watermark_ms + 1)

    def put(self, sessions: tuple[Session, ...]) -> None:
        """Store the sessions of the current key, at least one, in the joint form."""
        self._put_entry(self._packed(sessions) or sessions)

    def split(self, service: TimerService, due_ms: int) -> None:
        """Bring the sessions of the current key into the separate form.

        Args:
            service: Timers of the key.
            due_ms: Timers before this time have fired; one at this time may fire now.
        """
        if not self.joint.may_have_entries():
            return
        sessions = self.joint.value()
        if sessions is None:
            return
        self._joint_groups.discard(self.joint.current_key_group())
        self.all_joint = False
        parts = []
        for start, end, entry in sessions:
            window = _WINDOW.pack(start + _SIGN, end + _SIGN)
            parts.append(window + window)
            self._contents.put(window, entry)
            last, cleanup = end - 1, end - 1 + self._lateness_ms
            if last >= due_ms:
                self._timers.note(TimeDomain.EVENT_TIME, last, window)
            elif cleanup < TIMESTAMP_MS_MAX:
                # If the lateness is less than before, the cleanup may have passed, and a timer at the end would emit the session again.
                self._timers.register(TimeDomain.EVENT_TIME, service, max(cleanup, due_ms), window)
        self._windows.update(b"".join(parts))
        self.joint.update(None)

    def _join(self, service: TimerService, due_ms: int, *, fires: bool) -> bool:
        stored = self._windows.value()
        if stored:
            joint = self._joinable(stored, due_ms)
            if joint is None:
                return False
            for _, _, kept in _PAIR.iter_unpack(stored):
                self._contents.clear(kept)
            self._join_timers(service, joint, due_ms, fires=fires)
            self._windows.update(None)
            self.joint.update(joint)
        if fires:
            self._timers.fired(TimeDomain.EVENT_TIME, due_ms)
        return True

    def _joinable(self, stored: bytes, due_ms: int) -> tuple[Session, ...] | None:
        """Return separate sessions with their contents; None if they cannot be joint."""
        if len(stored) > _JOINT_SESSIONS_MAX * _PAIR.size:
            return None
        joint: list[Session] = []
        before = None
        for start, end, kept in _PAIR.iter_unpack(stored):
            entry = self._contents.entry(kept)
            touches = before is not None and before >= start
            before = end
            if touches or entry is ABSENT or not self._is_timed(start - _SIGN, end - _SIGN, due_ms):
                return None
            joint.append((start - _SIGN, end - _SIGN, entry))
        return tuple(joint)

    def _is_timed(self, start: int, end: int, due_ms: int) -> bool:
        """Return False if the end of a session is to come and nothing will fire then."""
        return end - 1 < due_ms or self._timers.has(TimeDomain.EVENT_TIME, end - 1, _WINDOW.pack(start + _SIGN, end + _SIGN))

    def _join_timers(self, service: TimerService, joint: tuple[Session, ...], due_ms: int, *, fires: bool) -> None:
        """Let the timers of sessions fire for the key, and not for their windows."""
        for start, end, _ in joint:
            window = _WINDOW.pack(start + _SIGN, end + _SIGN)
            for time in {end - 1, min(end - 1 + self._lateness_ms, TIMESTAMP_MS_MAX)}:
                self._timers.delete(TimeDomain.EVENT_TIME, service, time, window)
        for _, end, _ in joint:
            time = end - 1 if end - 1 >= due_ms else end - 1 + self._lateness_ms
            if time < TIMESTAMP_MS_MAX and not (fires and time == due_ms):
                service.register_event_time_timer(time)
