"""The driver's calls to slots."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import structlog

from statefulspark.coordinator.batches.log import BatchLog
from statefulspark.coordinator.slots.state import READY, Slot
from statefulspark.errors import StatefulSparkError
from statefulspark.rpc.certificates import CertificateFolder
from statefulspark.rpc.flight import FlightPeer
from statefulspark.rpc.messages.slot_control import CancelSnapshot, NextBatch, Settle, Snapshot, Stop, Undo
from statefulspark.rpc.messages.state_queries import ReadState, StateEntries

_log = structlog.get_logger("statefulspark.coordinator")
_PEERS_MAX = 1024
_SETTLING_AT_ONCE = 16
_SETTLE_TIMEOUT_S = 10
_UNDO_TIMEOUT_S = 10
_CANCEL_TIMEOUT_S = 10
_READ_TIMEOUT_S = 15
"""Longer than a slot waits until it can read."""


class SlotCalls:
    """Keeps a connection to each slot.

    Args:
        secret: The job's secret; slots refuse calls without it.
        certificates: The driver's; None when slots are on this machine.
    """

    def __init__(self, secret: str, certificates: CertificateFolder | None) -> None:
        self._secret = secret
        self._certificates = certificates
        self._peers: dict[str, FlightPeer] = {}
        self._settling = ThreadPoolExecutor(_SETTLING_AT_ONCE, thread_name_prefix="settle")

    def close(self) -> None:
        """Make no more calls in the background."""
        self._settling.shutdown(wait=False, cancel_futures=True)

    def settle(self, slots: Iterable[Slot], log: BatchLog) -> None:
        """Tell slots in the background that the batch before the running one is committed; the caller holds the batch lock.

        They write its changes, and read the timers that are due, while Spark plans and reads the next batch. A slot that cannot be reached does so
        when that batch's rows come.
        """
        running = log.current
        next_batch = None
        if running is not None:
            next_batch = NextBatch(watermarks_ms=dict(running.watermarks), processing_time_ms=running.processing_time_ms)
        for slot in slots:
            expected = {uid: log.committed for uid in log.delays_ms if log.expected_batch(uid, slot.index) == log.committed}
            if expected and slot.state == READY:
                request = Settle(epoch=slot.epoch, expected=expected, next_batch=next_batch)
                self._settling.submit(self._settle, slot.index, slot.location, request)

    def _settle(self, index: int, location: str, request: Settle) -> None:
        try:
            self._peer(location).call(request, timeout_s=_SETTLE_TIMEOUT_S)
        except StatefulSparkError as error:
            _log.info("slot did not prepare the next batch in the background", slot=index, error=str(error)[:200])

    def snapshot(self, slot: Slot, request: Snapshot) -> None:
        """Ask for a snapshot; returns when the slot has begun it.

        Raises:
            UnavailableError: the slot does not answer.
        """
        self._peer(slot.location).call(request, timeout_s=60)

    def cancel_snapshot(self, slot: Slot, request: CancelSnapshot) -> None:
        """Let the slot end a snapshot that was canceled.

        Raises:
            FencedError: another incarnation of the slot answers.
            UnavailableError: the slot does not answer.
        """
        self._peer(slot.location).call(request, timeout_s=_CANCEL_TIMEOUT_S)

    def undo(self, slot: Slot, batch: int) -> None:
        """Let the slot drop what it changed in ``batch``.

        Raises:
            UnavailableError: the slot does not answer.
        """
        self._peer(slot.location).call(Undo(epoch=slot.epoch, batch=batch), timeout_s=_UNDO_TIMEOUT_S)

    def read_state(self, slot: Slot, request: ReadState) -> StateEntries:
        """Read entries of the slot's state.

        Raises:
            FencedError: another incarnation of the slot answers.
            UnavailableError: the slot does not answer, or its state is busy.
        """
        return self._peer(slot.location).call(request, timeout_s=_READ_TIMEOUT_S)

    def stop(self, slot: Slot, *, keep_files: bool) -> None:
        """Tell the slot to end; one that cannot be reached does so at its next heartbeat."""
        try:
            self._peer(slot.location).call(Stop(epoch=slot.epoch, keep_files=keep_files), timeout_s=2)
        except StatefulSparkError as error:
            _log.info("failed to request the slot to stop", slot=slot.index, error=str(error)[:200])

    def _peer(self, location: str) -> FlightPeer:
        if location not in self._peers:
            if len(self._peers) > _PEERS_MAX:
                self._peers.clear()  # slots that were started again have new locations
            self._peers[location] = FlightPeer(location, self._secret, self._certificates)
        return self._peers[location]
