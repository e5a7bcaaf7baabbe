"""InterruptibleDriver: a local driver whose slots die and whose storage fails as a `TestingJob` asks."""

from __future__ import annotations

import pyarrow as pa

from statefulspark.errors import StatefulSparkError
from statefulspark.rpc.codec import Answer, Request
from statefulspark.rpc.flight import FlightPeer
from statefulspark.rpc.messages.batches import Acknowledge
from statefulspark.storage.base import ObjectStore
from statefulspark.testing.faulty_store import FaultyStore, StorageFaults
from statefulspark.testing.local_driver import LocalDriver
from statefulspark.testing.local_job import LocalJob, Row


class FaultyJob(LocalJob):
    """A local job whose storage can fail."""

    def __post_init__(self) -> None:
        """Create the job and put the faults before its storage."""
        super().__post_init__()
        self.faults = StorageFaults()
        self._inner = self.store
        self.store = FaultyStore(self._inner, self.faults)

    def store_of_slot(self, index: int) -> ObjectStore:
        """Returns storage that knows which slot writes."""
        return FaultyStore(self._inner, self.faults, index)


class InterruptiblePeer(FlightPeer):
    """Calls the coordinator for a slot, which may die when it hands over a changelog with its acknowledgement."""

    def __init__(self, faults: StorageFaults, slot: int, location: str, secret: str) -> None:
        super().__init__(location, secret)
        self._faults = faults
        self._slot = slot

    def call(self, request: Request[Answer], *, timeout_s: float = 30.0) -> Answer:
        """Send a request and return its answer."""
        hands_over = isinstance(request, Acknowledge) and request.inline is not None
        if hands_over:
            self._faults.hands_over(self._slot, done=False)
        answer = super().call(request, timeout_s=timeout_s)
        if hands_over:
            self._faults.hands_over(self._slot, done=True)
        return answer


class InterruptibleDriver(LocalDriver):
    """Starts a slot again that has died, and runs its task again, as Spark does."""

    def __init__(self, job: FaultyJob, parallelism: int, origin: str | None = None) -> None:
        self._faults = job.faults
        super().__init__(job, parallelism, origin)

    def peer_of_slot(self, index: int, location: str, secret: str) -> FlightPeer:
        """Returns a client that may die with its slot."""
        return InterruptiblePeer(self._faults, index, location, secret)

    def run_task(self, batch: int, rows: pa.RecordBatch, partition: int = 0, *, twice: bool = False) -> list[Row]:
        """Run one partition; its slot may die right after."""
        output = super().run_task(batch, rows, partition, twice=twice)
        kill = self._faults.kill
        if kill is not None and kill.when == "after_ack" and rows.num_rows and self.slot_of_rows(rows) == kill.slot:
            self._faults.kill = None
            self.start_slot(kill.slot)
        return output

    def recover(self, error: StatefulSparkError, slot: int) -> None:
        """Go on after a fault that the test asked for; any other error fails the batch."""
        killed = self._faults.take_killed()
        if killed is not None:
            self.start_slot(killed)
            self.coordinator.poll()
        elif not self._faults.take_failed():
            super().recover(error, slot)
