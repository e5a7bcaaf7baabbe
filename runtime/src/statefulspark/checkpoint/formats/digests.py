"""Size and checksum of stored bytes, which identify every file of a checkpoint.

SHA-256 detects damage of many flipped bits, and current processors hash about 2 GB/s, faster than disks and networks deliver.
The algorithm's name precedes the digits, so that a later format can use another one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from statefulspark.errors import CorruptDataError
from statefulspark.storage.pieces import pieces

CHECKSUM_PATTERN = r"^sha256:[0-9a-f]{64}$"
"""Format of a checksum: the algorithm, a colon, hexadecimal digits."""


@dataclass(frozen=True, slots=True)
class FileDigest:
    """Expected size and checksum of a stored file."""

    size_bytes: int
    checksum: str
    """``sha256:`` and 64 hexadecimal digits."""

    @classmethod
    def of(cls, size_bytes: int, sha256: bytes) -> Self:
        """Return the digest of bytes that were hashed already."""
        return cls(size_bytes, f"sha256:{sha256.hex()}")


def digest_bytes(data: bytes) -> FileDigest:
    """Return size and checksum of ``data``."""
    return FileDigest(len(data), f"sha256:{hashlib.sha256(data).hexdigest()}")


def digest_file(path: Path) -> FileDigest:
    """Return size and checksum of a local file.

    Raises:
        OSError: The file cannot be read.
    """
    running = hashlib.sha256()
    size_bytes = 0
    with path.open("rb", buffering=0) as file:
        for piece in pieces(file):
            running.update(piece)
            size_bytes += len(piece)
    return FileDigest(size_bytes, f"sha256:{running.hexdigest()}")


def check_digest(found: FileDigest, expected: FileDigest, *, path: str) -> None:
    """Compare what was read with what was written.

    Args:
        found: Digest of the bytes at hand.
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
