"""Named points in the protocol at which a test may kill the process.

``STATEFULSPARK_FAILPOINTS="point[:n[:victim]],..."`` kills with SIGKILL when a process reaches ``point`` for the n-th time, or with
``*`` for n, whenever it does. The victim is the process itself, or with ``executor`` the JVM that runs it as a Python worker. With a
folder in ``STATEFULSPARK_FAILPOINTS_DONE`` each entry kills once only, over all processes: its file in there, named like the entry
with ``-`` for ``:``, says that it has; removing the file arms the entry again. Unset, a point costs one dictionary look-up.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil

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
        point, _, rest = entry.partition(":")
        nth, _, victim = rest.partition(":")
        if point == name and (nth == "*" or _counts[name] == int(nth or 1)) and _first_time(entry):
            if victim == "executor":
                # This process was forked by the Python daemon of the executor.
                os.kill(psutil.Process(os.getppid()).ppid(), signal.SIGKILL)
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
