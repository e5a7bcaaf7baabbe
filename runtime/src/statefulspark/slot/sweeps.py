"""SlotSweeps: runs the sweeps of a slot's steps, with heartbeats and after commits, beside batches and snapshots."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import structlog

from statefulspark.errors import StatefulSparkError
from statefulspark.slot.idle_deletes import IdleDeletes
from statefulspark.slot.keyed_step import KeyedStep
from statefulspark.slot.store_gate import StoreGate
from statefulspark.state.store.base import KeyValueStore

_log = structlog.get_logger("statefulspark.slot")
_SLICES_MAX: Final = 100
"""Most slices of sweeps per heartbeat or commit notice: well below a second, so that the next heartbeat is on time."""


class SlotSweeps:
    """Runs slices of sweeps while no batch needs the state. A batch or a snapshot that begins meanwhile waits for one slice only.

    Args:
        store: The slot's.
        gate: Of the store.
        keyed_steps: By uid.
    """

    def __init__(self, store: KeyValueStore, gate: StoreGate, keyed_steps: Mapping[str, KeyedStep]) -> None:
        self._store = store
        self._gate = gate
        self._keyed_steps = keyed_steps
        self.idle_deletes = IdleDeletes()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sweep")
        self._requested = threading.Event()
        self._closed = threading.Event()

    def run(self, processing_time_ms: int) -> None:
        """Remove expired entries; call it with each heartbeat, so that a slot without rows gets rid of them too.

        Args:
            processing_time_ms: Of the job's last committed batch: what has expired by then is seen by no later batch.

        Raises:
            UnavailableError: The disk is full or fails; the next call tries again.
        """
        self._run(processing_time_ms)
        self.idle_deletes.flush(self._store, self._keyed_steps.values())

    def begin(self) -> None:
        """Remove expired entries in the background: the driver waits for the answer to the commit notice that calls this."""
        if not self._requested.is_set() and not self._closed.is_set():
            self._requested.set()
            self._thread.submit(self._run_requested)

    def close(self) -> None:
        """Run no more slices in the background. When this returns, nothing uses the store there."""
        self._closed.set()
        self._thread.shutdown(cancel_futures=True)

    def _run_requested(self) -> None:
        self._requested.clear()
        try:
            self._run(None)
        except StatefulSparkError as error:
            _log.info("the cleanup of expired entries failed; it runs again with the next heartbeat", error=str(error)[:200])
        except Exception:  # noqa: BLE001  nobody waits for the result, so this is the only report
            _log.exception("the cleanup of expired entries failed")

    def _run(self, processing_time_ms: int | None) -> None:
        for keyed_step in self._keyed_steps.values():
            for _ in range(max(1, _SLICES_MAX // len(self._keyed_steps))):
                if self._closed.is_set() or keyed_step.waiting or self._gate.wanted or not self._swept(keyed_step, processing_time_ms):
                    break

    def _swept(self, keyed_step: KeyedStep, processing_time_ms: int | None) -> bool:
        """Run one slice; returns True if there is more to do and nothing is in the way."""
        if not keyed_step.lock.acquire(blocking=False):
            return False
        try:
            with self._gate.turn(can_hold=True) as store_is_free:
                keyed_step.backend.reached(processing_time_ms)
                return store_is_free and keyed_step.backend.sweep()
        finally:
            keyed_step.lock.release()
