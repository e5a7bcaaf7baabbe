"""PointTable: a state with one entry per key (value, list, reducing, aggregating).

It has three dicts by key: changes of the running batch, and two generations of a cache of stored entries. Rolling back a batch
clears the first. The cache is bounded by aging: when the younger generation is full, it replaces the older one, whose entries
were not used in the meantime and are dropped. A hit in the older generation moves the entry to the younger one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import filterfalse, repeat
from types import NoneType
from typing import Any, Final, cast

from statefulspark.errors import InvalidInputError
from statefulspark.state.encoding.layout import prefix_end
from statefulspark.state.encoding.store_keys import entry_keys
from statefulspark.state.encoding.values import ENCODED_BYTES, Encoded
from statefulspark.state.evolution.schema_reader import SchemaReader
from statefulspark.state.store.base import Change
from statefulspark.state.store.layers import Layers
from statefulspark.state.tables.key_context import KeyContext, no_current_key
from statefulspark.state.tables.table import DECODED_FACTOR, ENTRY_BYTES

UNREAD: Final = object()
"""Stands for an entry that is not at hand."""


class Heads(dict[int, bytes]):
    """By length of ident: the bytes of a store key between the key group and the key."""

    def __init__(self, state_id: int) -> None:
        super().__init__()
        self.state = state_id.to_bytes(2, "big")

    def __missing__(self, ident_length: int) -> bytes:
        head = self[ident_length] = self.state + (ident_length - 2).to_bytes(4, "big")
        return head


def evolved_entries(
    reader: SchemaReader, restored: Callable[[bytes], Any], stored: Callable[[Any], bytes], *, absent: Any
) -> tuple[Callable[[bytes], Any], Callable[[Any], bytes]]:
    """Return the two functions of a table for stored bytes of any schema; ``absent`` is the entry of a value that is gone."""
    prefix = reader.prefix

    def restored_evolved(data: bytes) -> Any:
        current = reader.current(data)
        return absent if current is None else restored(current)

    return restored_evolved, lambda entry: prefix + stored(entry)


class PointTable:
    """A table with one entry per key. The state decides what an entry is; None means absent.

    Args:
        context: The backend's.
        layers: The backend's.
        state_id: Of the state.
        restored: Makes an entry of stored bytes.
        stored: Makes bytes of an entry that is not None.
        entry_bytes: Memory per entry if all entries are about the same size, None if it varies: then code that changes an entry adds its
            size to ``_changed_payload_bytes``, and ``sizer`` measures one.
        sizer: Memory that one entry takes.
        encoded: Class of entries that are stored bytes.
    """

    __slots__ = (
        "_cached_payload_bytes",
        "_changed",
        "_changed_payload_bytes",
        "_context",
        "_encoded",
        "_encoded_is_stored",
        "_entry_bytes",
        "_heads",
        "_layers",
        "_old",
        "_restored",
        "_sizer",
        "_stored",
        "_used",
        "_young",
        "hits",
        "misses",
    )

    def __init__(
        self,
        context: KeyContext,
        layers: Layers,
        state_id: int,
        *,
        restored: Callable[[bytes], Any],
        stored: Callable[[Any], bytes],
        entry_bytes: int | None,
        sizer: Callable[[Any], int],
        encoded: type[bytes] = Encoded,
    ) -> None:
        self._context = context
        self._layers = layers
        self._heads = Heads(state_id)
        self._restored = restored
        self._stored = stored
        self._entry_bytes = entry_bytes
        self._sizer = sizer
        self._encoded = encoded
        # True if `stored` returns bytes that are encoded as they are: then it need not be called for them.
        self._encoded_is_stored = False
        self._changed: dict[bytes | None, Any] = {}
        self._young: dict[bytes | None, Any] = {}
        self._old: dict[bytes | None, Any] = {}
        self._changed_payload_bytes = 0
        self._cached_payload_bytes = 0
        self.hits = self.misses = 0
        # By key group: False if it had no entries when `may_have_entries` looked, and none has been stored since.
        self._used: dict[bytes, bool] = {}

    def read_with(self, reader: SchemaReader) -> None:
        """Read and write values of a state that has evolved; called before anything is read."""
        self._encoded_is_stored = False
        self._restored, self._stored = evolved_entries(reader, self._restored, self._stored, absent=None)

    def current_key_group(self) -> bytes:
        """Return the bytes of the current key's key group."""
        if self._context.ident is None:
            raise no_current_key()
        return self._context.ident[:2]

    def may_have_entries(self, *, look_again: bool = False) -> bool:
        """Return False if no key of the current key's key group has an entry; reads the store once per key group, or to ``look_again``."""
        if self._changed:
            return True
        group = self.current_key_group()
        if group not in self._used or look_again:
            head = group + self._heads.state
            self._used[group] = self._layers.has_entries(head, prefix_end(head))
        return self._used[group]

    def changes(self) -> list[Change]:
        keys, positions = entry_keys(self.changed_idents(), self._heads)
        entries = list(map(list(self._changed.values()).__getitem__, positions))
        as_it_is = {self._encoded, NoneType} if self._encoded_is_stored else {NoneType}
        # One call for all where it can be: this is what each changed key costs.
        if not as_it_is.issuperset(map(type, entries)):
            stored = self._stored
            entries = [entry if entry.__class__ in as_it_is else stored(entry) for entry in entries]
        return list(zip(keys, entries, strict=True))

    def changed_bytes(self) -> int:
        per_entry = ENTRY_BYTES if self._entry_bytes is None else ENTRY_BYTES + self._entry_bytes
        return len(self._changed) * per_entry + self._changed_payload_bytes

    def recount(self) -> None:
        if self._entry_bytes is None:
            sizer, encoded = self._sizer, self._encoded
            self._changed_payload_bytes = sum(
                [
                    ENCODED_BYTES + len(entry) if entry.__class__ is encoded else sizer(entry)
                    for entry in self._changed.values()
                    if entry is not None
                ]
            )

    def cached_bytes(self) -> int:
        return len(self._young) * ENTRY_BYTES + self._cached_payload_bytes

    def age(self) -> None:
        self._old = self._young
        self._young = {}
        self._cached_payload_bytes = 0

    def spilled(self) -> None:
        self._note_used()
        for ident in self._changed:
            self._young.pop(ident, None)
            self._old.pop(ident, None)
        self._changed = {}
        self._changed_payload_bytes = 0

    def commit(self) -> None:
        if not self._changed:
            return
        self._note_used()
        if self._entry_bytes is None:
            self.recount()
            self._cached_payload_bytes += self._changed_payload_bytes
        else:
            self._cached_payload_bytes += len(self._changed) * self._entry_bytes
        if self._young:
            self._young.update(self._changed)
        else:
            self._young = self._changed
        self._changed = {}
        self._changed_payload_bytes = 0

    def rollback(self, *, spilled: bool) -> None:
        self._changed = {}
        self._changed_payload_bytes = 0
        if spilled:
            self._young = {}
            self._old = {}
            self._cached_payload_bytes = 0

    def prefetch(self, idents: Sequence[bytes]) -> None:
        changed, young, old = self._changed, self._young, self._old
        used = self._used
        wanted = [ident for ident in idents if used.get(ident[:2], True)] if False in used.values() else idents
        # Nearly all are in the first.
        missing = [ident for ident in filterfalse(young.__contains__, wanted) if ident not in old and ident not in changed]
        self.hits += len(idents) - len(missing)
        self.misses += len(missing)
        if not missing:
            return
        heads, restored = self._heads, self._restored
        values = self._layers.get_many([ident[:2] + heads[len(ident)] + ident[2:] for ident in missing])
        if restored is bytes:
            # The cache keeps what is stored.
            young.update(zip(missing, values, strict=True))
            self._cached_payload_bytes += DECODED_FACTOR * sum(map(len, filter(None, values)))
            return
        size_bytes = 0
        for ident, value in zip(missing, values, strict=True):
            if value is None:
                young[ident] = None
                continue
            try:
                young[ident] = restored(value)
            except InvalidInputError:
                # A number that does not fit, or a class that is gone: only a function that reads the value gets the error.
                continue
            size_bytes += len(value)
        self._cached_payload_bytes += DECODED_FACTOR * size_bytes

    def entries(self, idents: Sequence[bytes]) -> list[Any]:
        """Return the entries of some hundred keys; `UNREAD` for one that cannot be decoded."""
        found = self._at_hand(idents)
        if missing := [ident for ident, entry in zip(idents, found, strict=True) if entry is UNREAD]:
            self.hits += len(idents) - len(missing)
            self.prefetch(missing)
            old = self._old
            for ident in missing:
                if ident in old:
                    self._load(ident)
            read = iter(self._at_hand(missing))
            return [next(read) if entry is UNREAD else entry for entry in found]
        self.hits += len(idents)
        return found

    def _at_hand(self, idents: Sequence[bytes]) -> list[Any]:
        """Return the entries of keys that were changed or are in the young generation, `UNREAD` for others."""
        found = map(self._young.get, idents, repeat(UNREAD))
        return list(map(self._changed.get, idents, found) if self._changed else found)

    def changed_idents(self) -> list[bytes]:
        """See `ScannedTable`."""
        return cast("list[bytes]", list(self._changed))  # no entry is changed while no key is current

    def has_entry(self, ident: bytes, *, stored: bool) -> bool:
        """See `ScannedTable`."""
        return self._changed[ident] is not None if ident in self._changed else stored

    def entry_count(self) -> int:
        return len(self._changed.keys() | self._young.keys() | self._old.keys())

    def _entry(self) -> Any:
        """Return the current key's entry from wherever it is."""
        ident = self._context.ident
        if ident in self._changed:
            return self._changed[ident]
        try:
            return self._young[ident]
        except KeyError:
            return self._load(ident)

    def _load(self, ident: bytes | None) -> Any:
        """Return the entry of a key that is neither changed nor in the young generation."""
        if ident is None:
            raise no_current_key()
        if ident in self._old:
            self.hits += 1
            entry = self._young[ident] = self._old.pop(ident)
            self._cached_payload_bytes += self._entry_bytes or (0 if entry is None else self._sizer(entry))
            return entry
        self.misses += 1
        data = self._layers.get(ident[:2] + self._heads[len(ident)] + ident[2:])
        if data is None:
            self._young[ident] = None
            return None
        entry = self._young[ident] = self._restored(data)
        self._cached_payload_bytes += DECODED_FACTOR * len(data)
        return entry

    def _note_used(self) -> None:
        """Note in which key groups there will be entries."""
        used = self._used
        # A group that is not among them is looked up in the store when it is asked for.
        if False in used.values():
            for ident, entry in self._changed.items():
                if entry is not None and ident is not None:
                    used[ident[:2]] = True

    def _remove(self) -> None:
        """Make the current key's entry absent."""
        ident = self._context.ident
        if ident is None:
            raise no_current_key()
        if self._young.get(ident, UNREAD) is None:
            # Nothing is stored: forgetting the change saves a useless delete in the changelog and the store.
            self._changed.pop(ident, None)
        else:
            self._changed[ident] = None
