"""Timers of one key and window: a timer of the key fires, and a map state says for which windows."""

from __future__ import annotations

from typing import cast

from statefulspark.process.api.functions import RuntimeContext, TimeDomain, TimerService
from statefulspark.process.windows.window_states import BYTES
from statefulspark.state.api.descriptors import MapStateDescriptor
from statefulspark.state.api.names import RuntimeName
from statefulspark.state.tables.maps import KeyedMapState
from statefulspark.state.types.types import Types

__all__ = ["WindowTimers"]


class WindowTimers:
    """The timers of the current key's windows, of both clocks.

    Args:
        context: Of the step.
        scope: Kinds of windows and contents, part of the names of the states.
        width: Bytes of a window.
    """

    def __init__(self, context: RuntimeContext, scope: str, width: int) -> None:
        self._width = width
        self._windows = {
            domain: cast(
                "KeyedMapState",
                context.get_map_state(MapStateDescriptor(RuntimeName(f"_window_timers({scope}, {name})"), Types.LONG(), BYTES)),
            )
            for domain, name in ((TimeDomain.EVENT_TIME, "event"), (TimeDomain.PROCESSING_TIME, "processing"))
        }

    def may_exist(self, *, look_again: bool) -> bool:
        """Return False if no key of the current key's key group has a timer of a window; see `KeyedMapState.may_have_entries`."""
        return any(windows.may_have_entries(look_again=look_again) for windows in self._windows.values())

    def has(self, domain: TimeDomain, time: int, window: bytes) -> bool:
        """Return True if a timer of a window is registered for ``time``."""
        return window in self._split(self._windows[domain].get(time) or b"")

    def register(self, domain: TimeDomain, service: TimerService, time: int, window: bytes) -> None:
        """Let a timer of a window fire at ``time``, in milliseconds since the epoch. Registering it again changes nothing."""
        if self.note(domain, time, window):
            if domain is TimeDomain.EVENT_TIME:
                service.register_event_time_timer(time)
            else:
                service.register_processing_time_timer(time)

    def note(self, domain: TimeDomain, time: int, window: bytes) -> bool:
        """Note that a timer which the key has fires for a window, too.

        Returns:
            True if it fired for no window before.
        """
        windows = self._windows[domain]
        registered: bytes | None = windows.get(time)
        if registered is None:
            windows.put(time, window)
            return True
        if window not in self._split(registered):
            windows.put(time, registered + window)
        return False

    def delete(self, domain: TimeDomain, service: TimerService, time: int, window: bytes) -> None:
        """Forget a timer of a window; without such a timer nothing happens."""
        windows = self._windows[domain]
        registered: bytes | None = windows.get(time)
        if registered is None:
            return
        remaining = [each for each in self._split(registered) if each != window]
        if remaining:
            windows.put(time, b"".join(remaining))
            return
        windows.remove(time)
        if domain is TimeDomain.EVENT_TIME:
            service.delete_event_time_timer(time)
        else:
            service.delete_processing_time_timer(time)

    def fired(self, domain: TimeDomain, time: int) -> list[bytes]:
        """Remove and return the windows of a timer that fires, in their order."""
        windows = self._windows[domain]
        registered: bytes | None = windows.get(time)
        if registered is None:
            return []
        windows.remove(time)
        return sorted(self._split(registered))

    def _split(self, windows: bytes) -> list[bytes]:
        width = self._width
        return [windows[at : at + width] for at in range(0, len(windows), width)] if width else [b""]
