"""Waiting for a running job, bounded in time and ended by the end of the job."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from statefulspark.errors import ClosedError, ConflictError, StatefulSparkError, UnavailableError

_POLL_S: Final = 0.05
T = TypeVar("T")


def wait_for(condition: Callable[[], bool], timeout_s: float, *, check_open: Callable[[], None], late: Callable[[], str]) -> None:
    """Return once ``condition`` holds.

    Raises:
        UnavailableError: It did not within ``timeout_s``; the text is what ``late`` returns.
        ClosedError: From ``check_open``: the job ended meanwhile.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        check_open()
        if time.monotonic() > deadline:
            raise UnavailableError(late())
        time.sleep(_POLL_S)


def while_it_moves(action: Callable[[], T], position: Callable[[], object]) -> T:
    """Call ``action``, again each time that its time is over, until it succeeds, or ``position`` has not changed meanwhile: work grows with data.

    Raises:
        UnavailableError: From ``action``, and nothing has moved.
    """
    while True:
        before = position()
        try:
            return action()
        except UnavailableError:
            if position() == before:
                raise


def repeat(name: str, action: Callable[[], None], *, every_s: float, until: threading.Event) -> None:
    """Call ``action`` again and again in a daemon thread of its own: one that storage holds up must hold up nothing else."""

    def run() -> None:
        while not until.wait(every_s):
            action()

    threading.Thread(target=run, name=name, daemon=True).start()


def settled(stop: Callable[[], object], fail: Callable[[StatefulSparkError], None]) -> bool:
    """Stop a job that has nothing left to do; False while another command runs, so that the caller tries again.

    Args:
        stop: Stops the job with its state.
        fail: Ends the job with the error of a stop that failed.
    """
    try:
        stop()
    except ConflictError:
        return False
    except ClosedError:
        return True  # it ended in another way
    except StatefulSparkError as error:
        fail(error)
    return True
