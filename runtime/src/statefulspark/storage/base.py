"""ObjectStore: the interface between the runtime and durable storage.

Keys are relative paths with ``/`` (no leading slash, no ``..``), below the store's root URL.
Implementations are thread-safe and picklable (they reconnect lazily after unpickling).
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from statefulspark.storage.cancellation import Cancellation
from statefulspark.storage.hashes import HashAlgorithm


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One stored object."""

    key: str
    size_bytes: int
    modified_s: float
    """Seconds since the epoch."""


class ObjectStore(Protocol):
    """Durable objects; every write is atomic: readers see the whole object or none.

    All methods raise UnavailableError when storage does not answer within its retries, InvalidInputError when
    the credentials or the bucket are refused.
    """

    @property
    def url(self) -> str:
        """Root, e.g. ``s3://bucket/prefix`` or ``file:///data``; never contains credentials."""

    def put(self, key: str, data: bytes) -> None:
        """Write or replace."""

    def put_if_absent(self, key: str, data: bytes) -> None:
        """Create; ConflictError when the key exists with other bytes.

        Safe under "succeeded but the reply was lost": existing identical bytes count as success, so callers put a
        nonce into ``data`` where two writers could write the same thing.
        """

    def put_file(self, key: str, path: Path, cancellation: Cancellation | None = None) -> None:
        """Upload a local file (multipart when large); ClosedError, and no object, if ``cancellation`` ends the upload before it is complete."""

    def get(self, key: str) -> bytes:
        """Read whole; KeyError when absent."""

    def get_file(self, key: str, path: Path, algorithm: HashAlgorithm = HashAlgorithm.XXH128) -> str | None:
        """Download to ``path`` (atomically: a temporary name, then rename); KeyError when absent.

        Returns:
            The hash of the file in hexadecimal digits, if the bytes came in order and so were hashed on the way; it saves reading the file once more.
        """

    def head(self, key: str) -> ObjectInfo | None:
        """Info or None."""

    def list(self, prefix: str) -> builtins.list[ObjectInfo]:
        """All objects whose key starts with ``prefix``, sorted by key."""

    def list_folders(self, prefix: str) -> builtins.list[str]:
        """Names (not keys) directly below ``prefix`` (which ends with "/" or is empty) that have objects under them, sorted."""

    def copy(self, source: str, target: str) -> None:
        """Server-side copy within the store."""

    def delete(self, keys: Iterable[str]) -> None:
        """Delete; absent keys are fine."""
