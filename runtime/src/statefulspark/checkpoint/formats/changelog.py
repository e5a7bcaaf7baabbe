"""Changelogs: what one keyed step's state in one slot changed in one batch; an object each, or several in one (`changelog_group`).

The writer is on the path of every batch, so entries are laid out by column (all key lengths, all value lengths, all keys, all
values) and every step over them is one call into C. Written to a local file in bounded memory, uploaded by the caller.

Layout (big-endian; also in ``docs/formats.md``)::

    "SSCL" | version u8 = 1 to 5, or 7 | header length u32 | header (JSON) | crc32 of all before u32
    from version 2 on, if the header has ``operator_state``: the operator frame
    frame: 0x01 | entries u32 | raw length u32 | stored length u32 | crc32 of those fields and the stored bytes u32 | stored bytes (Zstandard)
           raw: key lengths u32 * entries | value lengths u32 * entries (0xFFFFFFFF = deleted) | keys | values
    end:   0x02 | entries of all frames u64 | frames u32 | crc32 of the end frame's bytes before u32

The end frame is what makes truncation visible; nothing may follow it. Version 1 is written unless the header
has a field of version 2; the operator frame is there if the header names operator state.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Literal, NamedTuple, Self

from pydantic import Field, JsonValue, ValidationError, model_validator

from statefulspark.checkpoint.formats.changelog_frames import CRC, FRAME_TAG, Frame, read_exactly, read_frame
from statefulspark.checkpoint.formats.digests import FileDigest
from statefulspark.checkpoint.formats.documents import Document
from statefulspark.checkpoint.formats.operator_state import encode_operator_frame, read_operator_frame
from statefulspark.errors import ClosedError, CorruptDataError, IncompatibleFormatError
from statefulspark.keygroups import MAX_PARALLELISM_LIMIT
from statefulspark.process.rows.value_times import InputValueTimes
from statefulspark.state.encoding.layout import has_joint_sessions, is_segmented
from statefulspark.state.operator.entries import OperatorEntry, describes_broadcast
from statefulspark.state.store.base import Change
from statefulspark.storage.hashes import HashAlgorithm

MAGIC = b"SSCL"
GROUP_VERSION = 6
"""Of objects with several changelogs (`changelog_group`); each of these has an earlier version."""
VERSION = 7
"""The newest version this release writes and reads; it reads all from 1 on."""
FRAME_BYTES = 1 << 20
"""A frame is closed when its keys and values reach this size: large enough to compress well, small enough to hold in memory."""
FRAME_ENTRIES = 16_384
"""A frame is closed at this many entries, so that tiny entries do not make a frame of millions of objects."""

_FIRST_PIECE_ENTRIES = 64
_PIECE_ENTRIES_MAX = 1024
_END = struct.Struct(">BQI")
_START = struct.Struct(">4sBI")
_END_TAG = 2
_HEADER_BYTES_MAX = 16 << 20


class ChangelogHeader(Document):
    """Says which changes the file holds."""

    uid: str = Field(min_length=1, max_length=1024)
    """Of the keyed step."""
    slot: int = Field(ge=0, lt=MAX_PARALLELISM_LIMIT)
    batch: int = Field(ge=0)
    epoch: int = Field(ge=0)
    """Incarnation of the slot that wrote it."""
    first_key_group: int = Field(ge=0, lt=MAX_PARALLELISM_LIMIT)
    last_key_group: int = Field(ge=0, lt=MAX_PARALLELISM_LIMIT)
    """Every changed key is in first .. last, inclusive."""
    max_event_time_ms: int | None = None
    """Greatest event time of the batch's rows here, of the first input if there are two; a driver that finds the batch done without
    having run it needs it."""
    second_max_event_time_ms: int | None = None
    """The same of the second input. Not in version 1."""
    event_times_by_value: InputValueTimes | None = None
    """Greatest event times of each input by value of ``watermark_by``; None without. From version 7 on."""
    states: tuple[dict[str, JsonValue], ...] = ()
    """``StateInfo.to_json()`` of the operator's states, so that a state first used after the checkpoint is known on restore."""
    operator_state: Literal["all", "changed"] | None = None
    """Scope of the operator frame: all operator state of its slots, or the changes of the batch; None without a frame. Not in version 1."""
    parallelism: int | None = Field(default=None, ge=1, le=MAX_PARALLELISM_LIMIT)
    """Number of slots among which operator state was distributed. Not in version 1."""
    broadcast_digest: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")
    """SHA-256 of the batch's broadcast rows in the order in which they were processed; None if there were none. Changelogs of a step that differ
    in it do not belong together. From version 4 on."""
    broadcast_query: int | None = Field(default=None, ge=0)
    """Number of the attempt's query that these rows came in: of two orders in which all slots have processed the batch, the later counts."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.operator_state is None) != (self.parallelism is None):
            raise ValueError("operator_state and parallelism belong together")
        if (self.broadcast_digest is None) != (self.broadcast_query is None):
            raise ValueError("broadcast_digest and broadcast_query belong together")
        return self

    @property
    def version(self) -> int:
        """The version in which it is written: at least 5 if the step may have joint sessions, which older releases would leave behind; otherwise the oldest that can say it."""
        return max(5, self.oldest_version) if any(map(has_joint_sessions, self.states)) else self.oldest_version

    @property
    def oldest_version(self) -> int:
        """The oldest version that can say it: 7 if it has event times by value, 4 if the step has broadcast state, 3 if a list may be stored in segments, 2 if it has a field that version 1 lacks."""
        if self.event_times_by_value is not None:
            return 7
        if self.broadcast_digest is not None or any(map(describes_broadcast, self.states)):
            return 4
        if any(map(is_segmented, self.states)):
            return 3
        return 2 if self.later_fields_set else 1

    @property
    def later_fields_set(self) -> set[str]:
        """The fields that version 1 lacks and that are not empty; others are not written."""
        return {name for name in _LATER_FIELDS if getattr(self, name) is not None}


_LATER_FIELDS = {"broadcast_digest", "broadcast_query", "event_times_by_value", "operator_state", "parallelism", "second_max_event_time_ms"}


class ChangelogWriter:
    """Writes one changelog to a local file.

    Args:
        path: File to create; it must not exist.
        header: Identifies the step, slot and batch.
        operator_state: Entries of the operator frame, which is written if the header has ``operator_state``.

    Raises:
        OSError: The local disk refuses.
    """

    def __init__(self, path: Path, header: ChangelogHeader, operator_state: Iterable[OperatorEntry] = ()) -> None:
        self._file: IO[bytes] | None = path.open("xb")
        self._digest = HashAlgorithm.XXH128.new()
        self._size_bytes = 0
        self._entries = 0
        self._frames = 0
        self._frame = Frame()
        body = header.model_dump_json(exclude=_LATER_FIELDS - header.later_fields_set).encode()
        start = _START.pack(MAGIC, header.version, len(body)) + body
        self._write(start + CRC.pack(zlib.crc32(start)))
        if header.operator_state is not None:
            self._write(encode_operator_frame(operator_state))

    @property
    def entries(self) -> int:
        """Changes appended so far."""
        return self._entries + self._frame.entries

    def append(self, changes: Iterable[Change]) -> None:
        """Add changes in the order in which they must be applied; memory stays bounded for an iterator of any length.

        Raises:
            InvalidInputError: A key or value is larger than 1 GiB.
            ClosedError: After `close` or `abandon`.
        """
        if self._file is None:
            raise ClosedError("the changelog is closed")
        iterator = iter(changes)
        # Pieces grow only as fast as entries prove to be small: a piece of unknown entries must not fill the memory.
        piece_entries = _FIRST_PIECE_ENTRIES
        while piece := list(islice(iterator, piece_entries)):
            piece_bytes = self._frame.add(piece)
            if self._frame.size_bytes >= FRAME_BYTES or self._frame.entries >= FRAME_ENTRIES:
                self._write_frame()
            affordable = FRAME_BYTES * len(piece) // max(piece_bytes, 1)
            piece_entries = max(1, min(affordable, piece_entries * 4, _PIECE_ENTRIES_MAX))

    def close(self) -> FileDigest:
        """Write the end frame and return size and checksum of the file.

        Raises:
            ClosedError: Already closed.
        """
        if self._file is None:
            raise ClosedError("the changelog is closed")
        if self._frame.entries:
            self._write_frame()
        end = _END.pack(_END_TAG, self._entries, self._frames)
        self._write(end + CRC.pack(zlib.crc32(end)))
        self._file.close()
        self._file = None
        return FileDigest.of(self._size_bytes, HashAlgorithm.XXH128, self._digest.hexdigest())

    def abandon(self) -> None:
        """Close without an end frame: what was written can never be read as a changelog. Fine after `close`."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write_frame(self) -> None:
        frame, self._frame = self._frame, Frame()
        self._entries += frame.entries
        self._frames += 1
        self._write(frame.encoded())

    def _write(self, data: bytes) -> None:
        if self._file is None:
            raise ClosedError("the changelog is closed")
        self._file.write(data)
        self._digest.update(data)
        self._size_bytes += len(data)


class Changelog(NamedTuple):
    """An opened changelog."""

    header: ChangelogHeader
    changes: Iterator[Change]
    """Of keyed state, in order, read frame by frame."""
    operator_state: tuple[OperatorEntry, ...]
    """Entries of the operator frame."""


def read_changelog(path: Path, *, name: str | None = None) -> Changelog:
    """Open a changelog.

    Args:
        path: Local file.
        name: Key of the object in storage that the file is a copy of, for error texts. Defaults to ``path``.

    Returns:
        The header, operator state and changes. The changes are complete only when the iterator ends without an error: damage further back is seen when it is reached, so apply them to a store that is thrown away on error.

    Raises:
        CorruptDataError: Not a changelog, or damaged (also while iterating).
        IncompatibleFormatError: Written in a version this release does not read.
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        header = _read_header(file, name or str(path))
        operator_state: tuple[OperatorEntry, ...] = ()
        if header.operator_state is not None:
            left_bytes = os.fstat(file.fileno()).st_size - file.tell()
            operator_state = read_operator_frame(file, path=name or str(path), limit_bytes=left_bytes)
        position = file.tell()
    # The changes open the file themselves, so an iterator that is never started holds nothing open.
    return Changelog(header, _read_frames(path, position, name or str(path)), operator_state)


def check_version(start: bytes, path: str) -> None:
    """Check how an object begins.

    Raises:
        CorruptDataError: It has no changelogs.
        IncompatibleFormatError: Written in a version this release does not read.
    """
    if start[:4] != MAGIC:
        raise CorruptDataError("not a changelog", path=path)
    if len(start) > 4 and not 1 <= start[4] <= VERSION:
        raise IncompatibleFormatError(
            "written in a format that this release cannot read. Use the release that wrote it, or a later one",
            path=path,
            expected=f"version 1 to {VERSION}",
            found=f"version {start[4]}",
        )


def _read_header(file: IO[bytes], path: str) -> ChangelogHeader:
    start = file.read(_START.size)
    check_version(start, path)
    if start[4:5] == bytes([GROUP_VERSION]):
        raise CorruptDataError("a group of changelogs, where one changelog was expected", path=path)
    if len(start) != _START.size:
        raise CorruptDataError("the changelog is truncated", path=path)
    _, version, length = _START.unpack(start)
    if length > _HEADER_BYTES_MAX:
        raise CorruptDataError("the changelog's header is damaged", path=path)
    body = read_exactly(file, length, path)
    (crc,) = CRC.unpack(read_exactly(file, CRC.size, path))
    if crc != zlib.crc32(start + body):
        raise CorruptDataError("the changelog's header is damaged", path=path)
    try:
        header = ChangelogHeader.model_validate_json(body)
    except ValidationError as exc:
        raise IncompatibleFormatError(f"the header's fields do not match version {version}", path=path) from exc
    # The first release with joint sessions wrote them in the oldest version.
    if version not in (header.version, header.oldest_version) or _LATER_FIELDS & header.model_fields_set != header.later_fields_set:
        raise IncompatibleFormatError(f"the header's fields do not match version {version}", path=path)
    return header


def _read_frames(local: Path, position: int, path: str) -> Iterator[Change]:
    entries = frames = 0
    with local.open("rb") as file:
        file.seek(position)
        while True:
            tag = read_exactly(file, 1, path)[0]
            if tag == _END_TAG:
                break
            if tag != FRAME_TAG:
                raise CorruptDataError(f"frame {frames} of the changelog is damaged", path=path)
            changes = read_frame(file, path, frames)
            frames += 1
            entries += len(changes)
            yield from changes
        rest = read_exactly(file, _END.size - 1 + CRC.size, path)
        end = bytes([_END_TAG]) + rest[: -CRC.size]
        if CRC.unpack(rest[-CRC.size :])[0] != zlib.crc32(end) or _END.unpack(end)[1:] != (entries, frames) or file.read(1):
            raise CorruptDataError("the changelog's end frame does not match its frames", path=path)
