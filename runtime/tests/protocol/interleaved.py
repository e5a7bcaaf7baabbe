"""A store in which something happens before the n-th request: whoever makes the requests is paused there."""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from statefulspark.storage.base import ObjectInfo, ObjectStore
from statefulspark.storage.cancellation import Cancellation
from statefulspark.storage.hashes import HashAlgorithm


class InterleavedStore:
    """Deletes one object per request, so that a pause may come between any two.

    Attributes:
        pause: Called before each request that changes or reads something, unless it is None.
    """

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner
        self.pause: Callable[[], None] | None = None

    @property
    def url(self) -> str:
        return self._inner.url

    def put(self, key: str, data: bytes) -> None:
        self._reached().put(key, data)

    def put_if_absent(self, key: str, data: bytes) -> None:
        self._reached().put_if_absent(key, data)

    def put_file(self, key: str, path: Path, cancellation: Cancellation | None = None) -> None:
        self._reached().put_file(key, path, cancellation)

    def get(self, key: str) -> bytes:
        return self._reached().get(key)

    def get_file(self, key: str, path: Path, algorithm: HashAlgorithm = HashAlgorithm.XXH128) -> str | None:
        return self._reached().get_file(key, path, algorithm)

    def head(self, key: str) -> ObjectInfo | None:
        return self._reached().head(key)

    def list(self, prefix: str) -> builtins.list[ObjectInfo]:
        return self._reached().list(prefix)

    def list_folders(self, prefix: str) -> builtins.list[str]:
        return self._reached().list_folders(prefix)

    def copy(self, source: str, target: str) -> None:
        self._reached().copy(source, target)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._reached().delete([key])

    def _reached(self) -> ObjectStore:
        if self.pause is not None:
            self.pause()
        return self._inner


class Pause:
    """Before request number ``step``, counted from 0, ``happens`` runs once, without pauses of its own, in the thread that makes the request.

    Attributes:
        over: True if it has run, or runs.
    """

    def __init__(self, store: InterleavedStore, step: int, happens: Callable[[], None]) -> None:
        self.over = False
        self._store = store
        self._left = step
        self._happens = happens
        self._lock = threading.Lock()
        self._ended = threading.Event()
        store.pause = self._reached

    def end(self) -> None:
        """Let it not begin from now on; if it has, wait for its end: a driver deletes what it has canceled in a thread of its own."""
        with self._lock:
            self._store.pause = None
        if self.over:
            assert self._ended.wait(60)

    def _reached(self) -> None:
        with self._lock:
            if self._store.pause is None:
                return
            if self._left:
                self._left -= 1
                return
            self._store.pause = None
            self.over = True
        try:
            self._happens()
        finally:
            self._ended.set()
