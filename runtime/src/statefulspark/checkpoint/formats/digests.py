"""Size and checksum of stored bytes, which identify every file of a checkpoint.

The algorithm's name precedes the digits: files from before 2026-11-27 have SHA-256, all others XXH128 (`storage.hashes` says why).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from statefulspark.errors import CorruptDataError
from statefulspark.storage.hashes import HashAlgorithm
from statefulspark.storage.pieces import pieces

CHECKSUM_PATTERN = r"^(sha256:[0-9a-f]{64}|xxh128:[0-9a-f]{32})$"
"""Format of a checksum: the algorithm, a colon, hexadecimal digits."""
XXH128_VERSION: Final = 14
"""Version of a document since which its files may have XXH128."""


@dataclass(frozen=True, slots=True)
class FileDigest:
    """Size and checksum of a stored file."""

    size_bytes: int
    checksum: str
    """``xxh128:`` and 32 hexadecimal digits, or ``sha256:`` and 64."""

    @classmethod
    def of(cls, size_bytes: int, algorithm: HashAlgorithm, digits: str) -> Self:
        """Return the digest of bytes that were hashed already."""
        return cls(size_bytes, f"{algorithm.value}:{digits}")

    @property
    def algorithm(self) -> HashAlgorithm:
        """Algorithm of the checksum."""
        return HashAlgorithm(self.checksum.partition(":")[0])


def digest_bytes(data: bytes, algorithm: HashAlgorithm = HashAlgorithm.XXH128) -> FileDigest:
    """Return size and checksum of ``data``."""
    return FileDigest.of(len(data), algorithm, algorithm.of(data))


def digest_file(path: Path, algorithm: HashAlgorithm = HashAlgorithm.XXH128) -> FileDigest:
    """Return size and checksum of a local file.

    Raises:
        OSError: The file cannot be read.
    """
    running = algorithm.new()
    size_bytes = 0
    with path.open("rb", buffering=0) as file:
        for piece in pieces(file):
            running.update(piece)
            size_bytes += len(piece)
    return FileDigest.of(size_bytes, algorithm, running.hexdigest())


def has_xxh128(checksums: Iterable[str]) -> bool:
    """Return True if releases from before `XXH128_VERSION` cannot verify one of them."""
    return any(checksum.startswith(HashAlgorithm.XXH128.value) for checksum in checksums)


def check_digest(found: FileDigest, expected: FileDigest, *, path: str) -> None:
    """Compare what was read with what was written.

    Args:
        found: Digest of the bytes at hand, with the same algorithm.
        expected: Digest recorded when they were written.
        path: Name of the object for the error text.

    Raises:
        CorruptDataError: Size or checksum differ.
    """
    if found.size_bytes != expected.size_bytes:
        raise CorruptDataError(
            "the file's size has changed since it was written",
            path=path,
            expected=f"{expected.size_bytes} bytes",
            found=f"{found.size_bytes} bytes",
        )
    if found.checksum != expected.checksum:
        raise CorruptDataError(
            "the file's contents have changed since it was written", path=path, expected=expected.checksum, found=found.checksum
        )
