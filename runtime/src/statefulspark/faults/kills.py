"""Kills the process at named points of the protocol when a test asks for it.

``STATEFULSPARK_FAILPOINTS="point[:n[:victim]],..."`` kills with SIGKILL when a process reaches ``point`` for the n-th time, or with
``*`` for n, whenever it does. The victim is the process itself, or with ``executor`` the JVM that runs it as a Python worker. With a
folder in ``STATEFULSPARK_FAILPOINTS_DONE`` each entry kills once only, over all processes: its file in there, named like the entry
with ``-`` for ``:``, says that it has; removing the file arms the entry again.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil

_DONE = "STATEFULSPARK_FAILPOINTS_DONE"
_counts: dict[str, int] = {}


def die_if_wanted(name: str, wanted: str) -> None:
    """Die at the point ``name`` if ``wanted``, the variable's value, says so."""
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
