"""Runs a function once per call of storage, each in a process that kills itself before that call.

``python -m runtime.tests.killed_calls MODULE FUNCTION CALLS ARGUMENT...`` calls ``FUNCTION(open_store, ARGUMENT...)`` once for each of the numbers in
CALLS and writes the status of each process, one a line. They are forks of one that has imported everything, and has no other threads yet.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any

from runtime.tests.faulty_calls import KINDS, Faults


def statuses_of_killed(function: Callable[..., Any], calls: Iterable[int], *arguments: str) -> list[int]:
    """The statuses with which the processes ended that killed themselves before these calls, which are counted from 1."""
    numbers = ",".join(map(str, calls))
    command = [sys.executable, "-m", "runtime.tests.killed_calls", function.__module__, function.__name__, numbers, *arguments]
    path = os.pathsep.join(sys.path)
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, check=True, stdout=subprocess.PIPE, text=True, timeout=300)
    return list(map(int, done.stdout.split()))


def _kill(_: Faults, __: str, ___: Callable[[], Any]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _main(module: str, function: str, calls: str, *arguments: str) -> None:
    KINDS["killed"] = _kill
    act = getattr(importlib.import_module(module), function)
    for at in map(int, calls.split(",")):
        child = os.fork()
        if child == 0:
            act(Faults("killed", at).open, *arguments)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _main(*sys.argv[1:])
