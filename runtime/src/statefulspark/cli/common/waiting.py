"""What a command shows while the driver carries out its request: what it waits for, and how far that is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from statefulspark.cli.common.job_tables import in_progress
from statefulspark.cli.common.output import say
from statefulspark.errors import StatefulSparkError

if TYPE_CHECKING:
    from statefulspark.api_server.client import JobClient

_EVERY_S: Final = 3.0


@contextmanager
def waiting(client: JobClient, what: str, timeout_s: float) -> Iterator[None]:
    """Tell on stderr what a command waits for, and each few seconds how far checkpoints, savepoints and restores are, if that has changed.

    Args:
        client: Of the job; its connection serves the request and these questions.
        what: What the command waits for.
        timeout_s: For how long at most.
    """
    say(f"{what}, for at most {timeout_s:g} s", err=True)
    ended = threading.Event()
    thread = threading.Thread(target=_report, args=(client, ended), name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _report(client: JobClient, ended: threading.Event) -> None:
    said: list[str] = []
    while not ended.wait(_EVERY_S):
        try:
            found = in_progress(client.status())
        except StatefulSparkError:
            continue  # the request itself tells what is wrong
        for line in found:
            if line not in said and not ended.is_set():
                say(line, err=True)
        said = found
