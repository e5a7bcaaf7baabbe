"""Named points in the protocol at which a test may kill the process.

``STATEFULSPARK_FAILPOINTS="name:n[,name:n]"`` kills the process with SIGKILL when point ``name`` is reached for the n-th time; with a
file in ``STATEFULSPARK_FAILPOINTS_DONE`` each entry kills once only, over all processes. Unset, a point costs one dictionary look-up.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

_ENV = "STATEFULSPARK_FAILPOINTS"
_DONE = "STATEFULSPARK_FAILPOINTS_DONE"
_counts: dict[str, int] = {}


def reach(name: str) -> None:
    """Die here if a test asked for it."""
    wanted = os.environ.get(_ENV)
    if not wanted:
        return
    _counts[name] = _counts.get(name, 0) + 1
    for entry in wanted.split(","):
        point, _, nth = entry.partition(":")
        if point == name and _counts[name] == int(nth or 1) and _first_time(entry):
            os.kill(os.getpid(), signal.SIGKILL)


def _first_time(entry: str) -> bool:
    folder = os.environ.get(_DONE)
    if not folder:
        return True
    try:
        (Path(folder) / entry.replace(":", "-")).open("x").close()
    except FileExistsError:
        return False
    return True
