"""RawKeyedTable: one stream of bytes per key group, which a function writes at a snapshot.

A stream is a header and chunks, as entries with an empty key (`docs/formats.md`), so changelogs, spills, checkpoints and rescaling treat it like
any state. A digest per chunk tells which chunks a snapshot changed; only those are written.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import Final

from statefulspark.errors import CorruptDataError
from statefulspark.keygroups import KeyGroupRange
from statefulspark.state.encoding.layout import store_key
from statefulspark.state.encoding.values import PLAIN, unreadable
from statefulspark.state.store.base import Change
from statefulspark.state.store.layers import Layers
from statefulspark.state.tables.key_context import KeyContext
from statefulspark.state.tables.table import ENTRY_BYTES

RAW_KEYED: Final = "raw-keyed"
"""Kind of the state."""
RAW_KEYED_NAME: Final = "_raw_keyed"
CHUNK_BYTES: Final = 64 << 10

_LENGTH: Final = struct.Struct(">BQ")
_NUMBER: Final = struct.Struct(">I")
_PLAIN: Final = bytes([PLAIN])
_DIGEST_BYTES: Final = 16
_HEADERS_PER_READ: Final = 1024


@dataclass(frozen=True, slots=True)
class RawStream:
    """Length and checksums of a stream.

    Attributes:
        size_bytes: Its length.
        digests: Of its chunks.
    """

    size_bytes: int
    digests: tuple[bytes, ...]


def digest_of(chunk: bytes) -> bytes:
    """Return a digest by which a changed chunk is recognized."""
    return blake2b(chunk, digest_size=_DIGEST_BYTES).digest()


def is_raw_header(key: bytes) -> bool:
    """True if a store key of raw keyed state is that of a stream's header."""
    return key[8:] == _NUMBER.pack(0)


def raw_stream_bytes(header: bytes, *, where: str) -> int:
    """Return the length of the stream of a header.

    Raises:
        CorruptDataError: It is no header.
    """
    if header[:1] != _PLAIN:
        raise unreadable(header, where)
    if len(header) != _LENGTH.size:
        raise CorruptDataError("the header of a raw stream is damaged", path=where)
    return int(_LENGTH.unpack(header)[1])


class RawKeyedTable:
    """The streams of one step in one slot; a `StateTable`.

    Args:
        context: The backend's.
        layers: The backend's.
        state_id: Of the state.
        key_groups: The slot's.
        where: Names the state in errors.
        began: True if a batch has begun.

    Attributes:
        key_groups: The slot's.
        chunk_bytes: Length of all chunks but the last; part of the format, smaller in tests.
    """

    def __init__(self, context: KeyContext, layers: Layers, state_id: int, *, key_groups: KeyGroupRange, where: str, began: bool) -> None:
        self.hits = self.misses = 0
        self.key_groups = key_groups
        self.chunk_bytes = CHUNK_BYTES
        self._context = context
        self._layers = layers
        self._state_id = state_id
        self._where = where
        self._changes: dict[bytes, bytes | None] = {}
        self._changed_bytes = 0
        self._committed: dict[int, RawStream | None] = {}
        self._running: dict[int, RawStream | None] = {}
        """Streams that the running batch has written or deleted, also if they are spilled."""
        self._early: dict[bytes, bytes | None] = {}
        """Streams written before the first batch, when the function took a snapshot after operator state was redistributed. It belongs to the
        first batch that is committed, because the operator state of that snapshot cannot be rolled back either."""
        self._early_streams: dict[int, RawStream | None] = {}
        self._began = began

    # -- streams ---------------------------------------------------------------------------------------------------------

    def groups(self) -> Iterator[int]:
        """Iterate over the key groups that have a stream, in order."""
        every = iter(range(self.key_groups.first, self.key_groups.last + 1))
        while piece := list(islice(every, _HEADERS_PER_READ)):
            unknown = [group for group in piece if group not in self._running and group not in self._committed]
            headers = dict(zip(unknown, self._layers.get_many([self._key(group, 0) for group in unknown]), strict=True))
            for group in piece:
                if (headers[group] if group in headers else self.stream(group)) is not None:
                    yield group

    def stream(self, group: int) -> RawStream | None:
        """Return a key group's stream, or None if it has none. Reads the stream on first use."""
        if group in self._running:
            return self._running[group]
        if group not in self._committed:
            size_bytes = self.size_bytes(group)
            if size_bytes is None:
                self._committed[group] = None
            else:
                for _ in self.chunks(group, size_bytes):
                    pass
        return self._committed[group]

    def size_bytes(self, group: int) -> int | None:
        """Return the length of a key group's stream, None if it has none."""
        header = self._get(self._key(group, 0))
        return None if header is None else raw_stream_bytes(header, where=self._of(group))

    def chunks(self, group: int, size_bytes: int) -> Iterator[bytes]:
        """Read a stream chunk by chunk. Reading it to its end also learns its digests.

        Raises:
            CorruptDataError: A chunk is missing, or has another length than the header says.
        """
        digests = []
        for number in range(1, -(-size_bytes // self.chunk_bytes) + 1):
            chunk = self._get(self._key(group, number))
            wanted = min(self.chunk_bytes, size_bytes - (number - 1) * self.chunk_bytes)
            if chunk is not None and chunk[:1] != _PLAIN:
                raise unreadable(chunk, self._of(group))
            if chunk is None or len(chunk) != 1 + wanted:
                found = "nothing" if chunk is None else f"{len(chunk) - 1} bytes"
                raise CorruptDataError(
                    f"chunk {number} of a raw stream is damaged", path=self._of(group), expected=f"{wanted} bytes", found=found
                )
            digests.append(digest_of(chunk[1:]))
            yield chunk[1:]
        if group not in self._running:
            self._committed[group] = RawStream(size_bytes, tuple(digests))

    def write_chunk(self, group: int, number: int, chunk: bytes) -> bytes:
        """Write one chunk, numbered from 1, unless it is stored like that.

        Returns:
            Its digest.
        """
        digest = digest_of(chunk)
        before = self.stream(group)
        if before is None or before.digests[number - 1 : number] != (digest,):
            self._change(self._key(group, number), _PLAIN + chunk)
        return digest

    def replace(self, group: int, stream: RawStream | None) -> None:
        """End the stream of a key group, whose chunks are written, or delete it."""
        before = self.stream(group)
        for number in range(0 if stream is None else len(stream.digests), 0 if before is None else len(before.digests)):
            self._change(self._key(group, number + 1), None)
        if stream is None and before is not None:
            self._change(self._key(group, 0), None)
        elif stream is not None and (before is None or before.size_bytes != stream.size_bytes):
            self._change(self._key(group, 0), _LENGTH.pack(PLAIN, stream.size_bytes))
        self._running[group] = stream
        if not self._began:
            self._early_streams[group] = stream

    def batch_begins(self) -> None:
        """The first batch begins."""
        self._began = True

    def _change(self, key: bytes, value: bytes | None) -> None:
        size_bytes = ENTRY_BYTES + len(key) + len(value or b"")
        self._changes[key] = value
        if not self._began:
            self._early[key] = value
        self._changed_bytes += size_bytes
        self._context.grow(size_bytes)

    def _get(self, key: bytes) -> bytes | None:
        return self._changes[key] if key in self._changes else self._layers.get(key)

    def _key(self, group: int, number: int) -> bytes:
        return store_key(group, self._state_id, b"", _NUMBER.pack(number))

    def _of(self, group: int) -> str:
        return f"{self._where}, key group {group}"

    # -- the life of a batch ---------------------------------------------------------------------------------------------

    def changes(self) -> list[Change]:
        return list(self._changes.items())

    def changed_bytes(self) -> int:
        return self._changed_bytes

    def recount(self) -> None:
        self._changed_bytes = sum(ENTRY_BYTES + len(key) + len(value or b"") for key, value in self._changes.items())

    def cached_bytes(self) -> int:
        """Return 0: digests are not a cache that can be dropped to make room."""
        return 0

    def age(self) -> None:
        pass

    def spilled(self) -> None:
        self._changes = {}
        self._changed_bytes = 0

    def commit(self) -> None:
        self._committed |= self._running
        self._running = {}
        self._early, self._early_streams = {}, {}
        self.spilled()

    def rollback(self, *, spilled: bool) -> None:
        del spilled
        self._running = dict(self._early_streams)
        self._changes = dict(self._early)
        self.recount()

    def prefetch(self, idents: Sequence[bytes]) -> None:
        pass

    def entry_count(self) -> int:
        return len(self._changes)
