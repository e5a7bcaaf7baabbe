"""Timers of one key and window: a timer of the key fires, and a map state says for which windows."""

from __future__ import annotations

from statefulspark.process.functions import RuntimeContext, TimeDomain, TimerService
from statefulspark.process.windows.window_states import BYTES
from statefulspark.state.api.descriptors import MapStateDescriptor
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
            domain: context.get_map_state(MapStateDescriptor(f"_window_timers({scope}, {name})", Types.LONG(), BYTES))
            for domain, name in ((TimeDomain.EVENT_TIME, "event"), (TimeDomain.PROCESSING_TIME, "processing"))
        }

    def register(self, domain: TimeDomain, service: TimerService, time: int, window: bytes) -> None:
        """Let a timer of a window fire at ``time``, in milliseconds since the epoch. Registering it again changes nothing."""
        windows = self._windows[domain]
        registered: bytes | None = windows.get(time)
        if registered is None:
            if domain is TimeDomain.EVENT_TIME:
                service.register_event_time_timer(time)
            else:
                service.register_processing_time_timer(time)
            windows.put(time, window)
        elif window not in self._split(registered):
            windows.put(time, registered + window)

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

    def put(self, service: TimerService, time: int, window: bytes) -> None:
        """Let a timer of event time fire for ``window`` alone, whatever was registered for that time. Reads nothing."""
        service.register_event_time_timer(time)
        self._windows[TimeDomain.EVENT_TIME].put(time, window)

    def remove(self, service: TimerService, time: int) -> None:
        """Forget a timer of event time, whatever windows it was registered for. Reads nothing."""
        self._windows[TimeDomain.EVENT_TIME].remove(time)
        service.delete_event_time_timer(time)

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
