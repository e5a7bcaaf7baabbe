"""Slot supervisors: one thread per slot that keeps the slot's long-lived Spark task running.

Each slot is a Spark job of one task. Spark restarts a lost task elsewhere by itself; when a job has used up its task retries,
the supervisor submits it again; `coordinator/slots/replacement.py` says when. The jobs run in a scheduler pool whose minimum share gives
them priority over the query's tasks.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable

from pyspark import InheritableThread, SparkContext

from statefulspark.coordinator.slots.replacement import resubmit_pause_s
from statefulspark.errors import StatefulSparkError
from statefulspark.exchange.config import SlotConfig
from statefulspark.job.spark.query_failures import slot_error
from statefulspark.slot.process import DECLINED, run_slot

POOL = "statefulspark-slots"


def slot_task(config: SlotConfig, slot: int) -> Callable[[Iterable[int]], Iterable[str]]:
    """The function Spark runs for a slot."""

    def run(_: Iterable[int]) -> Iterable[str]:
        # The parent is the executor's Python daemon: one per executor process.
        yield run_slot(config, slot, f"{socket.gethostname()}/{os.getppid()}")

    return run


class SlotSupervisors:
    """Keeps ``parallelism`` slots running until stopped."""

    def __init__(
        self, context: SparkContext, config: SlotConfig, *, next_pause_s: Callable[[int, StatefulSparkError], float | None]
    ) -> None:
        """Create the supervisors; `start` submits the slots.

        Args:
            context: the driver's SparkContext.
            config: what slots need.
            next_pause_s: called with a slot whose Spark job failed and the error; returns the seconds until it is resubmitted, or None for never.
        """
        self._context = context
        self._config = config
        self._next_pause_s = next_pause_s
        self._stopping = threading.Event()
        self._group = f"statefulspark-slots-{config.job_name}-{time.time_ns()}"
        self._threads: list[InheritableThread] = []

    def start(self) -> None:
        """Submit all slots."""
        for slot in range(self._config.parallelism):
            thread = InheritableThread(target=self._keep, args=(slot,), name=f"slot-supervisor-{slot}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _keep(self, slot: int) -> None:
        self._context.setLocalProperty("spark.scheduler.pool", POOL)
        self._context.setJobGroup(self._group, f"slot {slot} of {self._config.job_name}", True)
        while not self._stopping.is_set():
            try:
                outcome = self._context.parallelize([slot], 1).mapPartitions(slot_task(self._config, slot)).collect()
                self._stopping.wait(resubmit_pause_s(declined=outcome == [DECLINED]))
            except Exception as error:  # noqa: BLE001  Py4J and Spark raise many kinds; all mean that the slot's task is over
                if self._stopping.is_set():
                    return
                cause = error if isinstance(error, StatefulSparkError) else slot_error(slot, error)
                pause_s = self._next_pause_s(slot, cause)
                if pause_s is None:
                    return
                self._stopping.wait(pause_s)

    def stop(self, timeout_s: float = 20.0) -> None:
        """Wait until all slots have stopped, as the coordinator requested; cancels those that do not."""
        self._stopping.set()
        deadline = time.monotonic() + timeout_s / 2
        for thread in self._threads:
            thread.join(max(0.1, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            self._context.cancelJobGroup(self._group)
            for thread in self._threads:
                thread.join(timeout_s / 2)
