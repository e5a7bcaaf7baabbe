"""Signals of the ``run`` command: the first asks the job to stop with a checkpoint, the second ends the process at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interrupted(BaseException):
    """Leave at once. ``exit_code`` is the shell's 128 + signal number."""

    def __init__(self, number: int) -> None:
        self.exit_code = 128 + number
        super().__init__(signal.Signals(number).name)


class StopSignals:
    """Counts stop signals; a context manager of the main thread that gives the old handlers back.

    Until ``graceful`` is called (the job is still being started, there is nothing to checkpoint) the first signal interrupts.
    """

    def __init__(self) -> None:
        self._graceful = False
        self._first: signal.Signals | None = None
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
                signal.signal(number, self._receive)

    def _receive(self, number: int, _: FrameType | None) -> None:
        if self._graceful and self._first is None:
            self._first = signal.Signals(number)
            return
        raise Interrupted(number)
