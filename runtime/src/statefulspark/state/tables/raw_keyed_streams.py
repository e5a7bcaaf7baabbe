"""The files through which a function reads and writes raw keyed state."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import BinaryIO, cast

from statefulspark.errors import ClosedError, InvalidInputError, type_name
from statefulspark.state.api.raw_state import KeyedStateCheckpointOutputStream, KeyGroupStatePartitionStreamProvider
from statefulspark.state.tables.raw_keyed import CHUNK_BYTES, RawKeyedTable, RawStream

__all__ = ["KeyedOutput", "RawInput", "Validity", "as_bytes", "keyed_inputs"]


class Validity:
    """True while the streams returned by a call are open."""

    def __init__(self) -> None:
        self._valid = True

    def end(self) -> None:
        """The call has returned."""
        self._valid = False

    def check(self) -> None:
        """Raise ClosedError if the call has returned."""
        if not self._valid:
            raise ClosedError("the stream is closed: raw state is written during snapshot_state and read during initialize_state")


def as_bytes(data: object, uid: str) -> bytes:
    """Return the bytes that a user writes.

    Raises:
        InvalidInputError: It is not bytes-like.
    """
    try:
        return bytes(memoryview(data))  # type: ignore[arg-type]  # anything with a buffer, as files take it
    except TypeError:
        raise InvalidInputError(
            f"raw state of the step {uid!r} takes bytes, not {type_name(type(data))}", field="write", remedy="Encode it"
        ) from None


class KeyedOutput(KeyedStateCheckpointOutputStream):
    """Writes the streams of a slot.

    Args:
        table: Of the step.
        uid: The step.
        changed_only: Let key groups that are not started keep their streams.
        validity: Of the call.
    """

    def __init__(self, table: RawKeyedTable, *, uid: str, changed_only: bool, validity: Validity) -> None:
        super().__init__()
        self.changed_only = changed_only
        self._table = table
        self._uid = uid
        self._validity = validity
        self._started: set[int] = set()
        self._group: int | None = None
        self._buffer = bytearray()
        self._digests: list[bytes] = []
        self._size_bytes = 0

    def writable(self) -> bool:
        return True

    def get_key_group_list(self) -> list[int]:
        groups = self._table.key_groups
        return list(range(groups.first, groups.last + 1))

    def start_new_key_group(self, key_group_id: int) -> None:
        self._validity.check()
        group = key_group_id
        if isinstance(group, bool) or group not in self._table.key_groups:
            groups = self._table.key_groups
            raise InvalidInputError(
                f"key group {group!r} of the step {self._uid!r} is not in this slot, which has {groups.first} to {groups.last}",
                field="start_new_key_group",
                remedy="Write the key groups of get_key_group_list()",
            )
        if group in self._started:
            raise InvalidInputError(
                f"key group {group} of the step {self._uid!r} was started twice in one snapshot",
                field="start_new_key_group",
                remedy="Write each key group at once",
            )
        self._end_group()
        self._started.add(group)
        self._group = group

    def write(self, data: object) -> int:
        self._validity.check()
        if self._group is None:
            raise InvalidInputError(
                f"no key group was started in the raw keyed state of the step {self._uid!r}",
                field="write",
                remedy="Call start_new_key_group first",
            )
        written = as_bytes(data, self._uid)
        self._size_bytes += len(written)
        self._buffer += written
        chunk_bytes = self._table.chunk_bytes
        whole = len(self._buffer) // chunk_bytes * chunk_bytes
        for first in range(0, whole, chunk_bytes):
            self._write_chunk(bytes(self._buffer[first : first + chunk_bytes]))
        del self._buffer[:whole]
        return len(written)

    def finish(self) -> None:
        """End the last stream, and delete those that were not started unless only changed ones are written."""
        self._end_group()
        if not self.changed_only:
            for group in list(self._table.groups()):
                if group not in self._started:
                    self._table.replace(group, None)

    def _write_chunk(self, chunk: bytes) -> None:
        if self._group is not None:
            self._digests.append(self._table.write_chunk(self._group, len(self._digests) + 1, chunk))

    def _end_group(self) -> None:
        if self._group is None:
            return
        if self._buffer:
            self._write_chunk(bytes(self._buffer))
        self._table.replace(self._group, RawStream(self._size_bytes, tuple(self._digests)))
        self._group = None
        self._buffer.clear()
        self._digests = []
        self._size_bytes = 0


class RawInput(io.RawIOBase):
    """Reads the chunks of a stream as they are asked for.

    Args:
        chunks: The stream.
        validity: Of the call.
    """

    def __init__(self, chunks: Iterator[bytes], validity: Validity) -> None:
        super().__init__()
        self._chunks = chunks
        self._validity = validity
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        self._validity.check()
        if not self._rest:
            self._rest = next(self._chunks, b"")
        target = memoryview(cast("bytearray", buffer)).cast("B")
        count = min(len(target), len(self._rest))
        target[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def buffered(self) -> BinaryIO:
        """Return it as a binary file."""
        return cast("BinaryIO", io.BufferedReader(self, CHUNK_BYTES))


class _KeyGroupInput(KeyGroupStatePartitionStreamProvider):
    def __init__(self, table: RawKeyedTable, group: int, validity: Validity) -> None:
        self._table = table
        self._group = group
        self._validity = validity

    def get_key_group_id(self) -> int:
        return self._group

    def get_stream(self) -> BinaryIO:
        self._validity.check()
        return RawInput(self._table.chunks(self._group, self._table.size_bytes(self._group) or 0), self._validity).buffered()


def keyed_inputs(table: RawKeyedTable, validity: Validity) -> Iterator[KeyGroupStatePartitionStreamProvider]:
    """Iterate over the key groups of a slot that have a stream, in order."""
    for group in table.groups():
        validity.check()
        yield _KeyGroupInput(table, group, validity)
