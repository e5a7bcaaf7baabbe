"""The driver's calls to slots."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import structlog

from statefulspark.errors import StatefulSparkError
from statefulspark.exchange.flight import FlightPeer
from statefulspark.job.batches import BatchLog
from statefulspark.job.slots import READY, Slot

_log = structlog.get_logger("statefulspark.coordinator")
_PEERS_MAX = 1024
_SETTLING_AT_ONCE = 16
_SETTLE_TIMEOUT_S = 10


class SlotCalls:
    """Keeps a connection to each slot.

    Args:
        secret: The job's secret; slots refuse calls without it.
    """

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._peers: dict[str, FlightPeer] = {}
        self._settling = ThreadPoolExecutor(_SETTLING_AT_ONCE, thread_name_prefix="settle")

    def close(self) -> None:
        """Make no more calls in the background."""
        self._settling.shutdown(wait=False, cancel_futures=True)

    def settle(self, slots: Iterable[Slot], log: BatchLog) -> None:
        """Tell slots in the background that the batch before the running one is committed; the caller holds the batch lock.

        They write its changes while Spark plans and reads the next batch. A slot that does not hear it learns it when that batch's rows come.
        """
        for slot in slots:
            expected = {uid: log.committed for uid in log.delays_ms if log.expected_batch(uid, slot.index) == log.committed}
            if expected and slot.state == READY:
                self._settling.submit(self._settle, slot.index, slot.location, {"epoch": slot.epoch, "expected": expected})

    def _settle(self, index: int, location: str, body: dict[str, Any]) -> None:
        try:
            self._peer(location).call("settle", body, timeout_s=_SETTLE_TIMEOUT_S)
        except StatefulSparkError as error:
            _log.info("slot did not settle early", slot=index, error=str(error)[:200])

    def snapshot(self, slot: Slot, body: dict[str, Any]) -> dict[str, Any]:
        """Ask for a snapshot; returns when the slot has begun it.

        Raises:
            UnavailableError: the slot does not answer.
        """
        return self._peer(slot.location).call("snapshot", body, timeout_s=60)

    def stop(self, slot: Slot) -> None:
        """Tell the slot to end; one that does not hear it learns it from its next sign of life."""
        try:
            self._peer(slot.location).call("stop", {"epoch": slot.epoch}, timeout_s=2)
        except StatefulSparkError as error:
            _log.info("slot did not hear stop", slot=slot.index, error=str(error)[:200])

    def _peer(self, location: str) -> FlightPeer:
        if location not in self._peers:
            if len(self._peers) > _PEERS_MAX:
                self._peers.clear()  # slots that were started again have new locations
            self._peers[location] = FlightPeer(location, self._secret)
        return self._peers[location]
