"""Turns the stored entries that a slot has read into what users are answered. Pure."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Final

from statefulspark.checkpoint.inspect.decoding import EntryDecoder, StateEntry
from statefulspark.checkpoint.inspect.plain_values import plain
from statefulspark.coordinator.query.queried_state import BYTES_MAX, QueriedEntry, StateQuery
from statefulspark.rpc.messages.state_queries import StateEntries, StoredEntry
from statefulspark.state.encoding.layout import StateInfo, split_store_key
from statefulspark.state.encoding.segments import segment_number, shortened_head
from statefulspark.state_tables.read.window_keys import WindowKeys

_SAVEPOINT: Final = "take a savepoint and read it with `statefulspark state PATH` or statefulspark.state_tables"

Answered = tuple[tuple[QueriedEntry, ...], str | None, tuple[str, ...]]


def answer_of(info: StateInfo, decoder: EntryDecoder, read: StateEntries, query: StateQuery) -> Answered:
    """Return the entries, where a map continues, and remarks about what is left out.

    Raises:
        CorruptDataError: The bytes do not fit the state's types.
    """
    if info.kind == "list":
        return _list(decoder, read, query.limit)
    windows = WindowKeys.of(info)
    entries: list[QueriedEntry] = []
    remarks: list[str] = []
    for stored in read.entries:
        if stored.value is None:
            remarks.append(_too_large(stored))
        elif (entry := decoder.decode(stored.key, stored.value)) is not None:
            entries.append(_entry(entry, windows))
    if not read.more:
        return tuple(entries), None, tuple(remarks)
    remarks.append(f"the map has more entries than the {len(read.entries)} that were read: continue with `next`, or {_SAVEPOINT}")
    last = split_store_key(read.entries[-1].key).user_key
    return tuple(entries), base64.urlsafe_b64encode(last).decode(), tuple(remarks)


def _entry(entry: StateEntry, windows: WindowKeys | None) -> QueriedEntry:
    if windows is None or not isinstance(entry.user_key, bytes):
        return QueriedEntry(map_key=plain(entry.user_key), value=plain(entry.value), expires_ms=entry.expires_ms)
    window, rest = windows.split(entry.user_key)
    if windows.rest == "element":
        window, rest = window | {"element": int.from_bytes(rest, "big", signed=True)}, b""
    return QueriedEntry(map_key=plain(rest) if rest else None, value=plain(entry.value), window=window, expires_ms=entry.expires_ms)


def _list(decoder: EntryDecoder, read: StateEntries, limit: int) -> Answered:
    """A list is one entry. If not all of its segments were read, those that were are shown."""
    if not read.entries:
        return (), None, ()
    head, segments = read.entries[0], read.entries[1:]
    if head.value is None:
        return (), None, (_too_large(head),)
    stored = head.value
    if read.more:
        stored = shortened_head(stored, segment_number(head.key, segments[-1].key) + 1 if segments else 0, decoder.where)

    def scan(first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return ((each.key, each.value) for each in segments if each.value is not None and first <= each.key < end)

    entry = decoder.decode(head.key, stored, scan)
    if entry is None:
        return (), None, ()
    elements = plain(entry.value)
    remarks: tuple[str, ...] = ()
    if read.more or len(elements) > limit:
        size = "more" if read.more else f"{len(elements)}"
        remarks = (
            f"the list has {size} elements, of which the first {min(limit, len(elements))} are shown: raise the limit, or {_SAVEPOINT}",
        )
    return (QueriedEntry(value=elements[:limit], expires_ms=entry.expires_ms),), None, remarks


def _too_large(stored: StoredEntry) -> str:
    return f"a value of {stored.size_bytes} bytes is not shown, because it is larger than {BYTES_MAX} bytes: {_SAVEPOINT}"
