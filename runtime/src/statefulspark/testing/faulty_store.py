"""FaultyStore: an object store whose writes of batch records and changelogs fail when a test asks for it."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from statefulspark.checkpoint.formats.paths import BATCHES_PREFIX, CHANGELOG_PREFIX
from statefulspark.errors import UnavailableError
from statefulspark.storage.base import ObjectInfo, ObjectStore
from statefulspark.storage.cancellation import Cancellation
from statefulspark.storage.hashes import HashAlgorithm
from statefulspark.testing.events import FAIL_STORAGE, KILL_SLOT


@dataclass
class StorageFaults:
    """The faults that are armed, shared by the stores of the driver and of all slots."""

    kill: KILL_SLOT | None = None
    """The slot that dies at its next changelog, wherever that goes, or at the end of its task."""
    failures: FAIL_STORAGE | None = None
    left: int = 0
    """Number of writes that still fail."""
    killed: int | None = None
    """The slot that has died and was not started again."""
    failed: bool = False
    """True if a write has failed since `take_failed`."""

    def arm(self, event: KILL_SLOT | FAIL_STORAGE) -> None:
        """Let the event happen at the next writes."""
        if isinstance(event, KILL_SLOT):
            self.kill = event
        else:
            self.failures, self.left = event, event.writes

    def disarm(self) -> bool:
        """Forget what has not happened yet; True if there was anything."""
        unused = self.kill is not None or self.left > 0
        self.kill, self.failures, self.left, self.failed, self.killed = None, None, 0, False, None
        return unused

    def take_killed(self) -> int | None:
        """Returns the slot that has died, once."""
        killed, self.killed = self.killed, None
        return killed

    def take_failed(self) -> bool:
        """True if a write has failed since the last call."""
        failed, self.failed = self.failed, False
        return failed

    def reached(self, slot: int | None, key: str, *, written: bool) -> None:
        """Raise if a fault is armed for this moment of a write."""
        if key.startswith(CHANGELOG_PREFIX):
            self.hands_over(slot, done=written)
        if self.failures is not None and self.left and (self.failures.lost == "answer") is written:
            self.left -= 1
            self.failed = True
            raise UnavailableError(f"the test failed the write of {key}")

    def hands_over(self, slot: int | None, *, done: bool) -> None:
        """Raise if a slot is to die before (or after, if ``done``) it hands over its changelog, to storage or to the driver."""
        kill = self.kill
        if kill is not None and (kill.slot, kill.when) == (slot, "before_ack" if done else "before_changelog"):
            self.kill, self.killed = None, kill.slot
            raise UnavailableError(f"the test killed slot {slot}")


class FaultyStore:
    """Passes every request on, and fails writes as `StorageFaults` says.

    Args:
        inner: The store of the job.
        faults: What fails.
        slot: The slot that uses the store; None for the driver.
    """

    def __init__(self, inner: ObjectStore, faults: StorageFaults, slot: int | None = None) -> None:
        self._inner = inner
        self._faults = faults
        self._slot = slot

    @property
    def url(self) -> str:
        """URL of the store."""
        return self._inner.url

    def put(self, key: str, data: bytes) -> None:
        """Store an object."""
        self._write(key, lambda: self._inner.put(key, data))

    def put_if_absent(self, key: str, data: bytes) -> None:
        """Store an object unless there is another one of this name."""
        self._write(key, lambda: self._inner.put_if_absent(key, data))

    def put_file(self, key: str, path: Path, cancellation: Cancellation | None = None) -> None:
        """Store a file."""
        self._write(key, lambda: self._inner.put_file(key, path, cancellation))

    def get(self, key: str) -> bytes:
        """Returns an object."""
        return self._inner.get(key)

    def get_file(self, key: str, path: Path, algorithm: HashAlgorithm = HashAlgorithm.XXH128) -> str | None:
        """Store an object in a file."""
        return self._inner.get_file(key, path, algorithm)

    def head(self, key: str) -> ObjectInfo | None:
        """Describe an object."""
        return self._inner.head(key)

    def list(self, prefix: str) -> builtins.list[ObjectInfo]:
        """List objects."""
        return self._inner.list(prefix)

    def list_folders(self, prefix: str) -> builtins.list[str]:
        """List folders."""
        return self._inner.list_folders(prefix)

    def copy(self, source: str, target: str) -> None:
        """Copy an object."""
        self._inner.copy(source, target)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects."""
        self._inner.delete(keys)

    def _write(self, key: str, write: Callable[[], None]) -> None:
        if not key.startswith((BATCHES_PREFIX, CHANGELOG_PREFIX)):
            write()
            return
        self._faults.reached(self._slot, key, written=False)
        write()
        self._faults.reached(self._slot, key, written=True)
