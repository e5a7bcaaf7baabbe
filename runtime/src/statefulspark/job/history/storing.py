"""Keeps a job's history in its folder, one object per driver.

A driver reads the newest history of the drivers before it and writes its own. A fenced driver that does not know it yet replaces only its
own object, which its successor no longer reads. *Crash between writing and deleting the older ones: the next driver deletes them.*
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from statefulspark.checkpoint.formats import paths
from statefulspark.coordinator.history import JobHistory
from statefulspark.errors import CorruptDataError, IncompatibleFormatError
from statefulspark.job.history.encoding import STORED_BYTES_MAX, decode_history, encode_history
from statefulspark.storage.base import ObjectInfo, ObjectStore

_log = structlog.get_logger("statefulspark.history")


def newest_history(store: ObjectStore) -> JobHistory | None:
    """Read the newest history in a job's folder, of a job that may run or not; None if there is none.

    Args:
        store: Opened at the job's folder.

    Raises:
        CorruptDataError: It is damaged.
        IncompatibleFormatError: A later release wrote it.
        UnavailableError: Storage did not answer.
    """
    found = {paths.history_attempt(info.key): info for info in store.list(paths.HISTORY_PREFIX)}
    attempts = sorted(attempt for attempt in found if attempt is not None)
    for attempt in reversed(attempts):
        try:
            return _read(store, found[attempt])
        except KeyError:
            continue  # a newer driver has deleted it
    return None


def _read(store: ObjectStore, info: ObjectInfo) -> JobHistory:
    path = paths.url_of(store.url, info.key)
    if info.size_bytes > STORED_BYTES_MAX:  # not read, because it may be of any size
        raise CorruptDataError("the job's history is damaged", path=path, found=f"{info.size_bytes} bytes")
    return decode_history(store.get(info.key), path=path)


class StoredHistory:
    """The history in the job's folder, as the driver of one attempt reads and writes it. Used by one thread at a time.

    Args:
        store: Opened at the job's folder.
        attempt: Of this driver.
        check_fence: Raises FencedError if another driver runs the job.
    """

    def __init__(self, store: ObjectStore, attempt: int, check_fence: Callable[[], None]) -> None:
        self._store = store
        self._attempt = attempt
        self._check_fence = check_fence
        self._replaced: list[str] = []

    def load(self) -> JobHistory:
        """Read what earlier drivers have written; empty, after one warning, if it cannot be read by this release.

        Raises:
            UnavailableError: Storage did not answer; try again.
        """
        found = {paths.history_attempt(info.key): info for info in self._store.list(paths.HISTORY_PREFIX)}
        earlier = sorted(attempt for attempt in found if attempt is not None and attempt < self._attempt)
        self._replaced = [found[attempt].key for attempt in earlier]
        if not earlier:
            return JobHistory()
        newest = found[earlier[-1]]
        key = newest.key
        try:
            return _read(self._store, newest)
        except KeyError:
            return JobHistory()  # a newer driver has deleted it
        except IncompatibleFormatError as error:
            self._replaced.remove(key)  # the release that wrote it may run the job again
            _log.warning("the job's history starts empty, because a later release wrote the stored one", error=str(error)[:300])
        except CorruptDataError as error:
            _log.warning("the job's history starts empty, because the stored one is damaged", error=str(error)[:300])
        return JobHistory()

    def save(self, history: JobHistory) -> None:
        """Replace what this driver has written, then delete what it has read.

        Raises:
            FencedError: Another driver runs the job; nothing was written.
            UnavailableError: Storage did not answer.
        """
        self._check_fence()
        self._store.put(paths.history_key(self._attempt), encode_history(history))
        if self._replaced:
            self._store.delete(self._replaced)
            self._replaced = []
