"""FunctionLifecycle: opens a user's function, and opens a fresh copy after a batch was rolled back.

Rolling back a batch restores state and timers. It cannot restore attributes of the function, so the function itself is replaced:
the retry runs on a new copy of what the user passed to ``process()``, as after a restart of the slot.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from statefulspark.errors import StatefulSparkError
from statefulspark.process.runner.function_runner import KeyedFunctionRunner

__all__ = ["FunctionLifecycle"]

_log = structlog.get_logger("statefulspark.function")


class FunctionLifecycle:
    """Keeps one opened copy of a function. Used by one thread, except for ``runner``.

    Args:
        fresh: Makes a runner with a fresh copy of the function, not yet opened.

    Attributes:
        runner: Runs the newest copy.

    Raises:
        UserFunctionError: ``open`` of the function raised.
    """

    __slots__ = ("_fresh", "_open", "_stale", "runner")

    def __init__(self, fresh: Callable[[], KeyedFunctionRunner]) -> None:
        self._fresh = fresh
        self.runner = fresh()
        self._stale = False
        self.runner.open()
        self._open = True

    def undone(self) -> None:
        """Record that a batch was rolled back, so that `renew_if_stale` replaces the function."""
        self._stale = True

    def renew_if_stale(self) -> None:
        """Replace the function if a batch was rolled back since it was opened. If this raises, the next call retries.

        Raises:
            UserFunctionError: ``open`` of the fresh copy raised.
        """
        if not self._stale:
            return
        try:
            self.close()
        except StatefulSparkError as error:
            # The old copy is discarded because of an earlier failure; an error in its close() must not prevent opening the new one.
            _log.warning("close() of the function failed after its batch was rolled back", error=str(error))
        runner = self._fresh()
        runner.open()
        self.runner = runner
        self._open = True
        self._stale = False

    def close(self) -> None:
        """Close the function if it is open.

        Raises:
            UserFunctionError: ``close`` of the function raised.
        """
        if self._open:
            self._open = False
            self.runner.close()
