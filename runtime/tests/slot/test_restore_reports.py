"""The coordinator hears how far a restore is, over a real connection, and its troubles never fail the restore."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from statefulspark.errors import FencedError, StatefulSparkError, UnavailableError
from statefulspark.rpc.flight import FlightPeer
from statefulspark.rpc.listener import FlightListener
from statefulspark.rpc.messages.heartbeat import Restoring
from statefulspark.slot.restore_reports import reported_restore


class Told:
    """A coordinator that keeps what it is told, or refuses it."""

    def __init__(self) -> None:
        self.reports: list[Restoring] = []
        self.refusals: list[StatefulSparkError] = []
        self.changed = threading.Condition()
        self.listener = FlightListener(None, "s3cret", [Restoring.served_by(self._take)])
        self.peer = FlightPeer(self.listener.location, "s3cret")

    def _take(self, report: Restoring) -> None:
        with self.changed:
            self.reports.append(report)
            self.changed.notify_all()
            if self.refusals:
                raise self.refusals.pop(0)

    def wait_for(self, number: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.reports) >= number, 60)


@pytest.fixture
def told() -> Iterator[Told]:
    told = Told()
    yield told
    told.peer.close()
    told.listener.shutdown()


def test_only_progress_is_reported(told: Told) -> None:
    """Nothing before the total is known, and nothing twice: three states that differ are three reports, whatever the pace."""
    with reported_restore(told.peer, 3, 7, every_s=0.01) as progress:
        progress.add(1)
        progress.begin(100)
        told.wait_for(1)
        progress.add(40)
        told.wait_for(2)
        progress.add(59)
        told.wait_for(3)
    assert [(one.slot, one.epoch, one.downloaded_bytes, one.total_bytes) for one in told.reports] == [
        (3, 7, 1, 100),
        (3, 7, 41, 100),
        (3, 7, 100, 100),
    ]


def test_a_report_that_fails_is_repeated_until_the_incarnation_is_fenced(told: Told) -> None:
    told.refusals = [UnavailableError("busy"), FencedError("epoch 7 is stale")]
    with reported_restore(told.peer, 3, 7, every_s=0.01) as progress:
        progress.begin(100)
        told.wait_for(2)
        progress.add(100)
    assert [one.downloaded_bytes for one in told.reports] == [0, 0], "the next one would be refused as well"


def test_the_error_of_a_restore_is_its_own(told: Told) -> None:
    with pytest.raises(KeyError, match="lost"), reported_restore(told.peer, 3, 7, every_s=60):
        raise KeyError("lost")
