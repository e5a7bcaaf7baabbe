"""RestorePreparation: gets ready what slots restore, once for all slots that register.

It may adopt a batch, and reads all operator state of the job: with much state or slow storage that takes longer than a call between processes may.
So it runs in a thread of its own, and a slot whose registration is not answered yet asks again. Meanwhile the slot has no number, but it restores:
exchange tasks are told so, because they wait less long for a slot that nobody has started.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait

import structlog

from statefulspark.coordinator.batches.completion import Completion
from statefulspark.coordinator.durable.durable_job import DurableJob
from statefulspark.coordinator.inbox import Inbox
from statefulspark.coordinator.slots.operator_states import OperatorDistribution, Source
from statefulspark.coordinator.slots.restore_failures import RestoreFailures
from statefulspark.coordinator.slots.table import SlotTable
from statefulspark.errors import CorruptDataError

_log = structlog.get_logger("statefulspark.coordinator")


class RestorePreparation:
    """Distributes operator state to the present slots.

    Args:
        inbox: Of the core. Its lock is not held while operator state is read.
        slots: Returns the table of now, which a rescale replaces.
        durable: The job's folder in storage.
        completion: Decides about the batch that runs.
        operator_states: The distribution of operator state.
        restores: What follows when operator state is damaged.
    """

    def __init__(
        self,
        *,
        inbox: Inbox,
        slots: Callable[[], SlotTable],
        durable: DurableJob,
        completion: Completion,
        operator_states: OperatorDistribution,
        restores: RestoreFailures,
    ) -> None:
        self._inbox = inbox
        self._slots = slots
        self._durable = durable
        self._completion = completion
        self._operator_states = operator_states
        self._restores = restores
        self._starting = threading.Lock()
        self._run: Future[bool] | None = None
        self._reported: Future[bool] | None = None
        """The last run of which the log says that it takes long."""

    def wait(self, timeout_s: float) -> bool | None:
        """Prepare, or wait for the preparation that runs.

        Returns:
            True when it is done, False if state could not be read and slots must start again, None if neither happened within ``timeout_s``.

        Raises:
            UnavailableError: Storage did not answer.
        """
        with self._starting:
            if self._run is None or self._run.done():
                self._run = Future()
                threading.Thread(target=self._complete, args=(self._run,), name="restore-preparation", daemon=True).start()
            run = self._run
        if wait([run], timeout_s).done:
            return run.result()
        self._report(run, timeout_s)
        return None

    @property
    def unfinished(self) -> bool:
        """True while a preparation runs: slots that register are not answered yet. Never blocks."""
        run = self._run
        return run is not None and not run.done()

    def _report(self, run: Future[bool], waited_s: float) -> None:
        """Log that a preparation takes long, once however many slots wait for it."""
        with self._starting:
            if self._reported is run:
                return
            self._reported = run
        _log.warning("reading what slots restore takes long; slots and batches wait for storage", waited_s=waited_s)

    def source(self) -> Source | None:
        """Return the operator state that must be read before a slot can register, None if that has been done. The caller holds the lock."""
        return self._operator_states.source(len(self._slots().all()))

    def _complete(self, run: Future[bool]) -> None:
        try:
            run.set_result(self._distributed())
        except BaseException as error:  # noqa: BLE001  raised again by those who wait
            run.set_exception(error)

    def _distributed(self) -> bool:
        """Distribute operator state, unless that has been done. False if it is damaged, or was and is not the state of now."""
        # Before the distribution, because this may adopt a batch and so change the source.
        self._completion.finish()
        with self._inbox.lock:
            source = self.source()
            base = self._durable.base_url
        if source is None:
            return True
        try:
            parts = source.read(self._durable.store)
        except CorruptDataError as error:
            with self._inbox.lock:
                if self.source() == source:
                    self._restores.try_again(error, base)
            return False
        with self._inbox.lock:
            if self.source() == source:
                self._operator_states.distribute(source, parts)
        return True
