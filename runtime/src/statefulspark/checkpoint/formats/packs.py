"""Packs: many small files in one stored object, each verified on its own.

A batch of Spark's own stateful steps writes a small file per step, store and partition; storing each of them would cost a request per file.

Layout (big-endian)::

    "SSSP" | version u8 = 1 | contents, one after the other | index | index length u32 | CRC-32 of index and its length u32
    index: files u32 | per file, in order of the contents: path length u16 | path (UTF-8) | length u64 | SHA-256 (32 bytes)

The index comes last, so that a pack is written in one pass and its index describes what was read, even if a file is replaced meanwhile.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from statefulspark.checkpoint.formats.paths import leaves_folder
from statefulspark.errors import CorruptDataError, IncompatibleFormatError
from statefulspark.storage.pieces import PIECE_BYTES

MAGIC = b"SSSP"
VERSION = 1

_START = struct.Struct(">4sB")
_COUNT = struct.Struct(">I")
_PATH = struct.Struct(">H")
_FILE = struct.Struct(">Q32s")
_END = struct.Struct(">II")

Mark = tuple[int, int, int]
"""Size in bytes, modification time in nanoseconds and inode: another content of the same path has another one."""


@dataclass(frozen=True, slots=True)
class PackedFile:
    """One file in a pack."""

    path: str
    """Relative to the checkpoint location."""
    size_bytes: int
    sha256: bytes


def mark_of(status: os.stat_result) -> Mark:
    """Identifies the current content of a file."""
    return status.st_size, status.st_mtime_ns, status.st_ino


def write_pack(root: Path, paths: Iterable[str], target: Path) -> dict[str, Mark]:
    """Pack files.

    Args:
        root: Folder that the paths are relative to.
        paths: Files to pack; each at most 65,535 bytes of UTF-8.
        target: The new pack.

    Returns:
        The mark of each packed file.

    Raises:
        FileNotFoundError: A file is gone.
    """
    files: list[PackedFile] = []
    marks: dict[str, Mark] = {}
    with target.open("wb") as pack:
        pack.write(_START.pack(MAGIC, VERSION))
        for path in paths:
            with (root / path).open("rb", buffering=0) as source:
                marks[path] = mark_of(os.fstat(source.fileno()))
                size_bytes, sha256 = _copy(source, pack)
                files.append(PackedFile(path, size_bytes, sha256))
        index = _encode_index(files)
        pack.write(index)
        length = _COUNT.pack(len(index))
        pack.write(length + _COUNT.pack(zlib.crc32(index + length)))
    return marks


def extract(pack: Path, target: Path, *, name: str, wanted: Iterable[str] | None = None) -> list[PackedFile]:
    """Put the files of a pack below a folder, replacing what is there, each compared with its checksum.

    Args:
        pack: The pack on the local disk.
        target: Folder that the paths are relative to.
        name: Name of the object in storage, for error messages.
        wanted: Paths to extract; None for all.

    Returns:
        All files of the pack.

    Raises:
        CorruptDataError: Damaged.
        IncompatibleFormatError: Written in a version this release does not read.
    """
    chosen = None if wanted is None else set(wanted)
    with pack.open("rb") as file:
        files = _read_index(file, pack.stat().st_size, name)
        position = _START.size
        for entry in files:
            if chosen is None or entry.path in chosen:
                file.seek(position)
                _extract_one(file, entry, target / entry.path, name)
            position += entry.size_bytes
    return files


def check_pack(pack: Path, *, name: str) -> list[PackedFile]:
    """Read a whole pack and compare every file with its checksum.

    Raises:
        CorruptDataError: Damaged.
        IncompatibleFormatError: Written in a version this release does not read.
    """
    with pack.open("rb") as file:
        files = _read_index(file, pack.stat().st_size, name)
        file.seek(_START.size)
        for entry in files:
            if _digest(file, entry.size_bytes) != entry.sha256:
                raise CorruptDataError(f"{entry.path} in the pack is damaged", path=name)
    return files


def _copy(source: BinaryIO, target: BinaryIO, limit: int | None = None) -> tuple[int, bytes]:
    digest = hashlib.sha256()
    size_bytes = 0
    while piece := source.read(PIECE_BYTES if limit is None else min(PIECE_BYTES, limit - size_bytes)):
        digest.update(piece)
        target.write(piece)
        size_bytes += len(piece)
    return size_bytes, digest.digest()


def _digest(source: BinaryIO, size_bytes: int) -> bytes:
    digest = hashlib.sha256()
    left = size_bytes
    while left and (piece := source.read(min(PIECE_BYTES, left))):
        digest.update(piece)
        left -= len(piece)
    return digest.digest()


def _extract_one(pack: BinaryIO, entry: PackedFile, target: Path, name: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        _, sha256 = _copy(pack, file, entry.size_bytes)
    if sha256 != entry.sha256:
        target.unlink()
        raise CorruptDataError(f"{entry.path} in the pack is damaged", path=name)


def _encode_index(files: list[PackedFile]) -> bytes:
    parts = [_COUNT.pack(len(files))]
    for entry in files:
        path = entry.path.encode()
        parts += (_PATH.pack(len(path)), path, _FILE.pack(entry.size_bytes, entry.sha256))
    return b"".join(parts)


def _read_index(file: BinaryIO, size_bytes: int, name: str) -> list[PackedFile]:
    start = file.read(_START.size)
    if len(start) < _START.size or start[:4] != MAGIC:
        raise CorruptDataError("not a pack of state files", path=name)
    version = start[4]
    if version != VERSION:
        raise IncompatibleFormatError(
            "this release cannot read the pack's format. Use the release that wrote it, or a later one",
            path=name,
            expected=f"version {VERSION}",
            found=f"version {version}",
        )
    end = size_bytes - _END.size
    if end < _START.size:
        raise CorruptDataError("the pack is truncated", path=name)
    file.seek(end)
    length, crc = _END.unpack(file.read(_END.size))
    if length > end - _START.size:
        raise CorruptDataError("the pack's index is damaged", path=name)
    file.seek(end - length)
    index = file.read(length)
    if zlib.crc32(index + _COUNT.pack(length)) != crc:
        raise CorruptDataError("the pack's index is damaged", path=name)
    try:
        files = _decode_index(index, name)
    except (struct.error, UnicodeDecodeError) as exc:
        raise CorruptDataError("the pack's index is damaged", path=name) from exc
    if sum(entry.size_bytes for entry in files) != end - length - _START.size:
        raise CorruptDataError("the pack's contents do not match its index", path=name)
    return files


def _decode_index(index: bytes, name: str) -> list[PackedFile]:
    files: list[PackedFile] = []
    (count,) = _COUNT.unpack_from(index)
    position = _COUNT.size
    for _ in range(count):
        (length,) = _PATH.unpack_from(index, position)
        position += _PATH.size
        path = index[position : position + length].decode()
        position += length
        size_bytes, sha256 = _FILE.unpack_from(index, position)
        position += _FILE.size
        if leaves_folder(path):
            raise CorruptDataError("a path in the pack leads outside the folder", path=name)
        files.append(PackedFile(path, size_bytes, sha256))
    if position != len(index):
        raise CorruptDataError("the pack's index is damaged", path=name)
    return files
