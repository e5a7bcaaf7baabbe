"""Tells the coordinator how far the restore of a slot is, at the pace of heartbeats, which begin when the slot serves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from statefulspark.checkpoint.restore.progress import RestoredBytes, RestoreProgress
from statefulspark.errors import FencedError, UnavailableError
from statefulspark.rpc.flight import FlightPeer
from statefulspark.rpc.messages.heartbeat import Restoring

_TIMEOUT_S = 5.0


@contextmanager
def reported_restore(coordinator: FlightPeer, slot: int, epoch: int, *, every_s: float) -> Iterator[RestoreProgress]:
    """Report the progress of a restore while the block runs; a report that does not arrive never fails the restore.

    Args:
        coordinator: Is told.
        slot: Number of the slot.
        epoch: Its incarnation.
        every_s: Seconds between two reports. Only progress is reported.
    """
    progress, ended = RestoreProgress(), threading.Event()
    thread = threading.Thread(
        target=_report, args=(coordinator, (slot, epoch), progress, ended, every_s), name="restore-reports", daemon=True
    )
    thread.start()
    try:
        yield progress
    finally:
        ended.set()
        thread.join()


def _report(
    coordinator: FlightPeer, incarnation: tuple[int, int], progress: RestoreProgress, ended: threading.Event, every_s: float
) -> None:
    slot, epoch = incarnation
    told: RestoredBytes | None = None
    last = False
    while not last:
        last = ended.wait(every_s)  # what it has fetched in all is reported too
        now = progress.read()
        if now is None or now == told:
            continue
        report = Restoring(
            slot=slot,
            epoch=epoch,
            downloaded_bytes=now.downloaded_bytes,
            local_bytes=now.local_bytes,
            total_bytes=now.total_bytes,
        )
        try:
            coordinator.call(report, timeout_s=_TIMEOUT_S)
        except FencedError:
            return  # the restore learns it when it reports that it is ready
        except UnavailableError:
            continue
        told = now
