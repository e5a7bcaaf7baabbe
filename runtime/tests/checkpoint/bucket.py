"""A bucket in memory with a clock of its own, in which a test can interrupt any call or let it fail."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from statefulspark.errors import ConflictError, UnavailableError
from statefulspark.storage.base import ObjectInfo
from statefulspark.storage.cancellation import Cancellation
from statefulspark.storage.hashes import HashAlgorithm

DAY_S = 86_400.0


class Killed(Exception):  # noqa: N818  not an error: it is what the test wants
    """The process that made the call is gone."""


@dataclass
class Bucket:
    """Objects by key with the time of their last write. Each call takes a second."""

    objects: dict[str, tuple[bytes, float]] = field(default_factory=dict)
    clock_s: float = 1_000_000.0
    calls: int = 0
    _interrupt: tuple[int, Callable[[], object], Callable[[], object]] | None = None
    _lock: Lock = field(default_factory=Lock)

    def interrupt(self, call: int, *, before: Callable[[], object] = lambda: None, after: Callable[[], object] = lambda: None) -> None:
        """Do something before and after one call, counted from now."""
        self._interrupt = (self.calls + 1 + call, before, after)

    def forget_interruption(self) -> None:
        """One that has not come will not come."""
        self._interrupt = None

    def begin(self) -> Callable[[], object]:
        """Start a call; returns what is to be done when it has had its effect."""
        with self._lock:
            self.calls += 1
            self.clock_s += 1.0
            found = self._interrupt
            if found is None or found[0] != self.calls:
                return lambda: None
            self._interrupt = None
        _, before, after = found
        before()
        return after

    def open(self, url: str) -> BucketStore:
        """The store of ``mem://bucket/prefix``."""
        prefix = url.removeprefix("mem://bucket").strip("/")
        return BucketStore(self, f"{prefix}/" if prefix else "")


@dataclass(frozen=True)
class BucketStore:
    """An ObjectStore below a prefix of the bucket."""

    bucket: Bucket
    prefix: str

    @property
    def url(self) -> str:
        return f"mem://bucket/{self.prefix}".rstrip("/")

    def put(self, key: str, data: bytes) -> None:
        after = self.bucket.begin()
        self._put(key, data)
        after()

    def put_if_absent(self, key: str, data: bytes) -> None:
        after = self.bucket.begin()
        found = self.bucket.objects.get(self.prefix + key)
        if found is not None and found[0] != data:
            raise ConflictError(key)
        if found is None:
            self._put(key, data)
        after()

    def put_file(self, key: str, path: Path, cancellation: Cancellation | None = None) -> None:
        if cancellation is not None:
            cancellation.check()
        self.put(key, path.read_bytes())

    def get(self, key: str) -> bytes:
        after = self.bucket.begin()
        found = self.bucket.objects.get(self.prefix + key)
        after()
        if found is None:
            raise KeyError(key)
        return found[0]

    def get_file(self, key: str, path: Path, algorithm: HashAlgorithm = HashAlgorithm.XXH128) -> None:
        del algorithm  # readers hash the file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.get(key))

    def head(self, key: str) -> ObjectInfo | None:
        after = self.bucket.begin()
        found = self.bucket.objects.get(self.prefix + key)
        after()
        return None if found is None else ObjectInfo(key, len(found[0]), found[1])

    def list(self, prefix: str) -> builtins.list[ObjectInfo]:
        after = self.bucket.begin()
        listed = self._list(prefix)
        after()
        return listed

    def list_folders(self, prefix: str) -> builtins.list[str]:
        after = self.bucket.begin()
        below = (info.key.removeprefix(prefix) for info in self._list(prefix))
        folders = sorted({name.partition("/")[0] for name in below if "/" in name})
        after()
        return folders

    def copy(self, source: str, target: str) -> None:
        after = self.bucket.begin()
        found = self.bucket.objects.get(self.prefix + source)
        if found is None:
            raise KeyError(source)
        self._put(target, found[0])
        after()

    def delete(self, keys: Iterable[str]) -> None:
        # A deletion of many objects can end anywhere, so each counts as one call.
        for key in keys:
            after = self.bucket.begin()
            self.bucket.objects.pop(self.prefix + key, None)
            after()

    def _put(self, key: str, data: bytes) -> None:
        self.bucket.objects[self.prefix + key] = (data, self.bucket.clock_s)

    def _list(self, prefix: str) -> builtins.list[ObjectInfo]:
        whole = self.prefix + prefix
        found = sorted((key, value) for key, value in list(self.bucket.objects.items()) if key.startswith(whole))
        return [ObjectInfo(key.removeprefix(self.prefix), len(data), modified_s) for key, (data, modified_s) in found]


def kill() -> None:
    """Ends the process that makes the call."""
    raise Killed


def fail() -> None:
    """Storage does not answer."""
    raise UnavailableError("503")
