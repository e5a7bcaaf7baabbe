"""BroadcastOrders: checks that all slots have processed the rows of a broadcast stream in the same order. Pure.

The order of rows within a partition is that of their arrival, so it may change when Spark computes a partition again. Slots would then have
different broadcast state. Each slot therefore acknowledges a digest of its rows, and those of one query must be equal.
"""

from __future__ import annotations

from typing import Final

import structlog

from statefulspark.coordinator.batches.log import BatchLog
from statefulspark.errors import UnavailableError
from statefulspark.process.runner.broadcast_summary import BroadcastSummary
from statefulspark.rpc.messages.batches import Acknowledge
from statefulspark.sizes import short_size

__all__ = ["BroadcastOrders"]

_log = structlog.get_logger("statefulspark.coordinator")
ROWS_WARN: Final = 10_000
BYTES_WARN: Final = 8 << 20
"""A broadcast stream with more rows or bytes in one batch gets a warning."""


class BroadcastOrders:
    """Compares acknowledgements of the running batch. The caller guards it with the coordinator's lock.

    Attributes:
        disputed: True if slots have processed rows of the running batch in different orders, in this query or an earlier one.
    """

    def __init__(self) -> None:
        self.disputed = False
        self._digests: dict[str, str] = {}
        self._warned: set[str] = set()

    def begin(self) -> None:
        """A batch begins."""
        self.disputed = False
        self._digests = {}

    def next_query(self) -> None:
        """Another query computes the running batch, perhaps in another order: only what slots acknowledge from now on is compared."""
        self._digests = {}

    def check(self, ack: Acknowledge, batches: BatchLog, parallelism: int) -> None:
        """Check an acknowledgement of the running batch, before it counts.

        What slots acknowledged in an earlier query no longer counts if it was in another order.

        Raises:
            UnavailableError: The order differs from that of another slot. Spark tries the task again, and then the whole batch.
        """
        summary = ack.broadcast
        if summary is None:
            return
        digest = self._digests.get(ack.uid)
        if digest is None:
            self._digests[ack.uid] = summary.digest
            self.disputed |= batches.forget_other_orders(ack.uid, summary.digest)
            self._warn_if_large(ack, summary, parallelism)
        elif digest != summary.digest:
            self.disputed = True
            raise UnavailableError(
                f"the slots got the rows of the broadcast stream of uid {ack.uid!r} in different orders in batch {ack.batch}. "
                "Read the stream from its source without groupBy, join or repartition before job.broadcast"
            )

    def _warn_if_large(self, ack: Acknowledge, summary: BroadcastSummary, parallelism: int) -> None:
        if ack.uid in self._warned or (summary.rows <= ROWS_WARN and summary.size_bytes <= BYTES_WARN):
            return
        self._warned.add(ack.uid)
        _log.warning(
            f"the broadcast stream of uid {ack.uid!r} had {summary.rows:,} rows ({short_size(summary.size_bytes)}) in batch {ack.batch}, and "
            f"each goes to all {parallelism} slots. Limit the rows per batch (maxOffsetsPerTrigger, maxFilesPerTrigger), or key the "
            "stream and connect it"
        )
