"""Slots must process the rows of a broadcast stream in one order, and only those of one query are compared."""

from __future__ import annotations

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from statefulspark.coordinator.batches.broadcast_orders import BroadcastOrders
from statefulspark.coordinator.batches.log import BatchLog
from statefulspark.errors import UnavailableError
from statefulspark.process.runner.broadcast_summary import BroadcastSummary
from statefulspark.rpc.messages.batches import Acknowledge

from .test_batch_log import ack


def rules(slot: int, digest: str, *, batch: int = 0, rows: int = 1, size_bytes: int = 1) -> Acknowledge:
    return replace(ack(batch, slot=slot), broadcast=BroadcastSummary(rows=rows, size_bytes=size_bytes, digest=digest))


class Job:
    """The coordinator's part."""

    def __init__(self) -> None:
        self.log = BatchLog(delays_ms={"u": (None, None)})
        self.orders = BroadcastOrders()
        self.begin(0)

    def begin(self, batch: int) -> None:
        self.log.commit_current()
        self.log.begin(self.log.next_parameters(batch, 1000))
        self.orders.begin()

    def take(self, each: Acknowledge) -> None:
        self.orders.check(each, self.log, 64)
        assert self.log.acknowledge(each)

    def is_disputed(self) -> bool:
        return self.orders.disputed

    def slots(self) -> set[int]:
        return {slot for _, slot in self.log.acknowledgements}


def test_another_order_is_refused() -> None:
    """And the batch is disputed until the next one begins. Steps without a broadcast stream are not compared."""
    job = Job()
    job.take(rules(0, "a"))
    job.take(rules(1, "a"))
    job.take(ack(0, uid="other"))
    assert not job.is_disputed()
    with pytest.raises(
        UnavailableError, match=r"of uid 'u' in different orders in batch 0\. Read the stream from its source without groupBy"
    ):
        job.take(rules(2, "b"))
    assert job.is_disputed()
    job.begin(1)
    assert not job.is_disputed()
    job.take(rules(2, "b", batch=1))


def test_another_query_may_have_another_order() -> None:
    """What slots acknowledged before it in the first order no longer counts, in whatever order the slots come."""
    job = Job()
    job.take(rules(0, "a"))
    job.take(rules(1, "a"))
    with pytest.raises(UnavailableError):
        job.take(rules(2, "b"))
    job.orders.next_query()
    job.take(rules(1, "b"))
    assert job.slots() == {1}
    with pytest.raises(UnavailableError):
        job.take(rules(0, "a"))
    job.take(rules(0, "b"))
    job.take(rules(2, "b"))
    assert job.slots() == {0, 1, 2}
    assert job.is_disputed(), "the changelogs of two orders are in storage"


def test_another_query_with_the_same_order_changes_nothing() -> None:
    """Acknowledgements of the query before it still count."""
    job = Job()
    job.take(rules(0, "a"))
    job.orders.next_query()
    job.take(rules(1, "a"))
    assert job.slots() == {0, 1}
    assert not job.is_disputed()


@pytest.mark.parametrize(("rows", "size_bytes", "warnings"), [(10_000, 8 << 20, 0), (10_001, 1, 1), (1, (8 << 20) + 1, 1)])
def test_a_large_stream_gets_one_warning(rows: int, size_bytes: int, warnings: int) -> None:
    """For all batches and slots of a step together."""
    job = Job()
    with capture_logs() as logs:
        for batch in (0, 1):
            if batch:
                job.begin(batch)
            for slot in (0, 1):
                job.take(rules(slot, "a", batch=batch, rows=rows, size_bytes=size_bytes))
    said = [entry["event"] for entry in logs if entry["log_level"] == "warning"]
    assert len(said) == warnings
    assert all("in batch 0, and each goes to all 64 slots. Limit the rows per batch" in each for each in said)
