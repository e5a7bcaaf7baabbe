"""The driver's calls to slots."""

from __future__ import annotations

from typing import Any

import structlog

from statefulspark.errors import StatefulSparkError
from statefulspark.exchange.flight import FlightPeer
from statefulspark.job.slots import Slot

_log = structlog.get_logger("statefulspark.coordinator")
_PEERS_MAX = 1024


class SlotCalls:
    """Keeps a connection to each slot.

    Args:
        secret: The job's secret; slots refuse calls without it.
    """

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._peers: dict[str, FlightPeer] = {}

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
