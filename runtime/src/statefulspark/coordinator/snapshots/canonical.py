"""Canonical savepoints of a running job (docs/rfcs/0010-canonical-savepoints.md).

The slots write a savepoint in the format of their state backend into the job's folder. It gets no ``_metadata``, so it never is a savepoint,
and `statefulspark gc` finds what a killed driver leaves of it. Another process converts it while batches go on. The driver publishes the result
if it still runs the job, and deletes the files of the slots however the conversion ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import structlog

from statefulspark import failpoints
from statefulspark.checkpoint.catalog import StoredCheckpoint
from statefulspark.checkpoint.write.canceled import CanceledUploads
from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.coordinator.durable.durable_job import DurableJob
from statefulspark.coordinator.snapshots.conversion import convert
from statefulspark.coordinator.snapshots.pending import info_of
from statefulspark.coordinator.snapshots.requests import SnapshotRequests
from statefulspark.coordinator.snapshots.savepoint_formats import MissingTable
from statefulspark.errors import ClosedError, InternalError, InvalidInputError, StatefulSparkError, UnavailableError
from statefulspark.sizes import short_size
from statefulspark.slot.container import free_memory_bytes
from statefulspark.state_tables.canonical.conversion import Publication
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.storage_settings import StorageSettings

_log = structlog.get_logger("statefulspark.checkpoints")
_POLL_S: Final = 0.1
_NEEDED_BYTES: Final = 384 << 20
"""Measured with RocksDB: 195 MiB for a slot of 50,000 entries, 324 MiB for one of 2.5 million."""
_CLOSE_S: Final = 10.0
"""The end of the job does not wait longer for a storage that does not answer."""


class CanonicalSavepoints:
    """Takes one canonical savepoint at a time. Thread-safe; works in the thread of its caller.

    Args:
        durable: The job's folder in storage.
        requests: Takes the snapshot.
        storage: How the converting process reaches storage.
        ended: Told of the outcome of each conversion.
    """

    def __init__(
        self,
        *,
        durable: DurableJob,
        requests: SnapshotRequests,
        storage: StorageSettings,
        ended: Callable[[CheckpointInfo | StatefulSparkError], None],
    ) -> None:
        self._durable = durable
        self._requests = requests
        self._storage = storage
        self._ended = ended
        self._turn = threading.Lock()
        self._closed = threading.Event()

    def take(self, target: str, timeout_s: float, check_open: Callable[[], None]) -> CheckpointInfo:
        """Take a savepoint, wait for it, and leave nothing if it fails.

        Args:
            target: URL below which it goes.
            timeout_s: For everything, also for waiting until an earlier one has ended.
            check_open: Raises when the job has ended.

        Raises:
            InvalidInputError: The URL names no store, or the driver's container has too little memory; nothing was taken.
            UnavailableError: It was not complete in time, or storage, a slot or the converting process failed.
            FencedError: Another driver runs the job.
            ClosedError: The job has ended.
        """
        store = self._durable.open_store(target)
        limit = _Limit(timeout_s, self._closed)
        limit.check()
        while not self._turn.acquire(timeout=_POLL_S):
            check_open()
            limit.check()
        try:
            check_free_memory(free_memory_bytes())
            info, origin = self._requests.take_unpublished(self._durable.store.url, limit.left_s, check_open)
            try:
                return self._converted(info, origin, target, store, limit)
            finally:
                self._delete_origin(origin)
        finally:
            self._turn.release()

    def _converted(self, info: CheckpointInfo, origin: StoredCheckpoint, target: str, store: ObjectStore, limit: _Limit) -> CheckpointInfo:
        publication = Publication(store, self._durable.savepoint_folder())
        try:
            taken = self._published(info, origin, target, publication, limit)
        except BaseException as error:
            self._discard(publication)
            self._ended(error if isinstance(error, StatefulSparkError) else InternalError(f"converting failed: {type(error).__name__}"))
            raise
        self._ended(taken)
        return taken

    def _published(
        self, info: CheckpointInfo, origin: StoredCheckpoint, target: str, publication: Publication, limit: _Limit
    ) -> CheckpointInfo:
        converted = convert(origin, target, publication.folder, self._storage, limit.check)
        failpoints.reach("driver.conversion.written")

        def check() -> None:
            limit.check()
            self._durable.fence.check()

        metadata = converted.metadata.model_copy(update={"duration_ms": int(limit.age_s * 1000)})
        url = publication.publish(metadata, check)
        limit.check()  # if this driver was frozen, another one may have deleted its files before they were published
        failpoints.reach("driver.conversion.published")
        size_bytes = sum(file.size_bytes for file in metadata.files())
        described = info_of(metadata, url, sync_ms=info.sync_ms, uploaded_bytes=size_bytes)
        missing = tuple(MissingTable(uid=each.uid, state=each.state, reason=each.reason) for each in converted.without_table)
        taken = replace(described, format="canonical", without_table=missing)
        self._durable.completed_checkpoint(metadata, taken)
        return taken

    def _discard(self, publication: Publication) -> None:
        """Delete what was converted. A savepoint of a folder that only this driver writes to needs no fence."""
        try:
            publication.discard()
        except StatefulSparkError as error:
            _log.warning(
                "the files of a failed savepoint were not deleted",
                url=publication.target.url,
                folder=publication.folder,
                error=str(error)[:200],
            )

    def _delete_origin(self, origin: StoredCheckpoint) -> None:
        uploads = CanceledUploads(
            open_store=lambda: origin.store, checkpoint_id=origin.metadata.checkpoint_id, nonce="", savepoint_folder=origin.folder
        )
        try:
            uploads.delete()
        except StatefulSparkError as error:
            _log.warning("what was converted was not deleted; `statefulspark gc` does it", folder=origin.folder, error=str(error)[:200])

    def close(self) -> None:
        """End the conversion, if there is one, and wait a few seconds until its files are deleted. The requests for snapshots are closed before."""
        self._closed.set()
        if self._turn.acquire(timeout=_CLOSE_S):
            self._turn.release()
        else:
            _log.warning("storage did not answer in time; `statefulspark gc` deletes what a canonical savepoint has left")


def check_free_memory(free_bytes: int | None) -> None:
    """Raise if the converting process could exhaust the memory of the driver's container, for which Kubernetes may end all of its processes.

    Args:
        free_bytes: What the container has left; None without a limit.

    Raises:
        InvalidInputError: It is too little.
    """
    if free_bytes is not None and free_bytes < _NEEDED_BYTES:
        raise InvalidInputError(
            f"converting needs {short_size(_NEEDED_BYTES)} of memory beside the driver, and its container has {short_size(free_bytes)} left",
            field="format",
            remedy=f"Raise spec.driver.memory by {short_size(_NEEDED_BYTES)}, or take a native savepoint and run `statefulspark convert` elsewhere",
        )


class _Limit:
    """Tells whether a savepoint is still wanted.

    Args:
        timeout_s: Seconds from now on.
        closed: Set when the job ends.
    """

    def __init__(self, timeout_s: float, closed: threading.Event) -> None:
        self._timeout_s = timeout_s
        self._closed = closed
        self._begun = (time.monotonic(), time.time())

    @property
    def age_s(self) -> float:
        """Seconds since it was asked for, by the clock that has moved further: one may stand still while the machine is suspended."""
        return max(now - then for now, then in zip((time.monotonic(), time.time()), self._begun, strict=True))

    @property
    def left_s(self) -> float:
        """Seconds that are left."""
        return max(0.0, self._timeout_s - self.age_s)

    def check(self) -> None:
        """Raise if it is not wanted any more."""
        if self._closed.is_set():
            raise ClosedError("the job is stopping")
        if self.age_s > self._timeout_s:
            raise UnavailableError(f"no canonical savepoint was complete within {self._timeout_s:.0f} s")
