"""Signals of the ``run`` command: the first one stops the job with a checkpoint, the second one ends the process immediately.

``timeout`` sends its signal to the process and then to the process group, so the same signal arrives twice within microseconds. Signals that
follow the first within `_SAME_REQUEST_S` therefore count as the same request.
"""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any, Final, Self

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SAME_REQUEST_S: Final = 1.0
"""A person who presses Ctrl-C a second time, having read what the first one does, takes longer."""


class Interrupted(BaseException):
    """Leave at once. ``exit_code`` is the shell's 128 + signal number."""

    def __init__(self, number: int) -> None:
        self.exit_code = 128 + number
        super().__init__(signal.Signals(number).name)


class StopSignals:
    """Counts stop signals; a context manager of the main thread that gives the old handlers back.

    Until ``graceful`` is called (the job is still being started, there is nothing to checkpoint) the first signal interrupts. A signal that was
    ignored before stays ignored, as ``nohup`` wants it of SIGHUP.
    """

    def __init__(self) -> None:
        self._graceful = False
        self._first: signal.Signals | None = None
        self._first_s = 0.0
        self._previous: dict[signal.Signals, Any] = {}

    @property
    def asked(self) -> signal.Signals | None:
        """The first signal received; None as long as there was none."""
        return self._first

    def graceful(self) -> None:
        """From here on the first signal only asks. Installs again, because starting Spark puts its own handler for SIGINT in place."""
        self._graceful = True
        self._install()

    def __enter__(self) -> Self:
        """Install; without effect outside the main thread, where Python allows no handlers."""
        self._previous = {number: signal.getsignal(number) for number in _SIGNALS}
        self._install()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Give the old handlers back."""
        if threading.current_thread() is threading.main_thread():
            for number, handler in self._previous.items():
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def _install(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if self._previous.get(number) is not signal.SIG_IGN:
                    signal.signal(number, self._receive)

    def _receive(self, number: int, _: FrameType | None) -> None:
        if self._first is None:
            self._first, self._first_s = signal.Signals(number), time.monotonic()
            if self._graceful:
                return
        elif time.monotonic() - self._first_s < _SAME_REQUEST_S:
            return
        raise Interrupted(number)
