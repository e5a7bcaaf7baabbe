"""The hash algorithms that identify stored bytes.

XXH128 (the 128 bits of XXH3; https://xxhash.com) hashes at the speed of memory, so that a restore takes as long as its copies: SHA-256, at 2 GB/s with the
processor's instructions for it and a fifth of that without, took half of the time of a restore from files. Neither protects from forgery, because who can
replace a file can replace its checksum too. Files from before 2026-11-27 have SHA-256.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from enum import StrEnum
from typing import BinaryIO, Protocol

import xxhash


class Hash(Protocol):
    """A hash that is being computed."""

    def update(self, data: bytes | memoryview, /) -> None:
        """Add bytes."""

    def hexdigest(self) -> str:
        """Return the hash of all bytes so far in hexadecimal digits."""


class HashAlgorithm(StrEnum):
    """A hash algorithm, by its name in stored checksums.

    >>> HashAlgorithm.XXH128.of(b"state")
    'ccb356a16ce4d54a899465fe1ae32812'
    """

    XXH128 = "xxh128"
    SHA256 = "sha256"

    def new(self) -> Hash:
        """Begin to compute a hash."""
        return xxhash.xxh3_128() if self is HashAlgorithm.XXH128 else hashlib.sha256()

    def of(self, data: bytes) -> str:
        """Return the hash of bytes in hexadecimal digits."""
        running = self.new()
        running.update(data)
        return running.hexdigest()


def write_hashed(pieces: Iterable[bytes | memoryview], file: BinaryIO, algorithm: HashAlgorithm) -> str:
    """Write pieces to a file; return their hash in hexadecimal digits."""
    running = algorithm.new()
    for piece in pieces:
        file.write(piece)
        running.update(piece)
    return running.hexdigest()
