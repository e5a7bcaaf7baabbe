"""KeyedMapState: MapState on top of the layers. Each map entry is an entry of the store."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from statefulspark.errors import InvalidInputError
from statefulspark.state.api.states import MapState
from statefulspark.state.encoding.layout import prefix_end, split_store_key
from statefulspark.state.encoding.values import Encoded, ValueCodec
from statefulspark.state.evolution.schema_reader import SchemaReader
from statefulspark.state.store.base import Change
from statefulspark.state.store.layers import Layers
from statefulspark.state.tables.key_context import KeyContext, no_current_key
from statefulspark.state.tables.map_entries import converted, decoded_key, stored_entries
from statefulspark.state.tables.point import Heads, evolved_entries
from statefulspark.state.tables.table import ENTRY_BYTES
from statefulspark.state.tables.value import restorer, size_in_memory, storer
from statefulspark.state.types.base import TypeInformation

ABSENT: Final[Any] = type("Absent", (), {"__slots__": (), "__repr__": lambda _: "ABSENT"})()
"""The entry of an absent user key; None is a value."""


class KeyedMapState(MapState[Any, Any]):
    """A map per key.

    Changes of the batch are kept per key, by the bytes of the user key. The cache of stored entries is one dict by store key.

    Args:
        context: The backend's.
        layers: The backend's.
        state_id: Of the state.
        key_type: Of the user keys.
        value_type: Of the values.
        where: Names the state in errors.
    """

    __slots__ = (
        "_cached_bytes",
        "_changed",
        "_changed_bytes",
        "_codec",
        "_context",
        "_heads",
        "_ident",
        "_key_type",
        "_layers",
        "_mine",
        "_old",
        "_order",
        "_prefix",
        "_restored",
        "_sizer",
        "_stored",
        "_used",
        "_value_type",
        "_where",
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
        key_type: TypeInformation,
        value_type: TypeInformation,
        where: str,
    ) -> None:
        self._context = context
        self._layers = layers
        self._heads = Heads(state_id)
        self._key_type = key_type
        self._value_type = value_type
        self._codec = ValueCodec(value_type, where)
        self._sizer = size_in_memory(value_type)
        self._restored = restorer(value_type, self._codec.decode_nullable)
        self._stored = storer(self._codec.encode_nullable)
        self._where = where
        self._changed: dict[bytes, dict[bytes, Any]] = {}
        self._changed_bytes = 0
        self._young: dict[bytes, Any] = {}
        self._old: dict[bytes, Any] = {}
        self._cached_bytes = 0
        self.hits = self.misses = 0
        # Of the key that was current at the last access: its ident, its store key prefix, its changed entries.
        self._ident: bytes | None = None
        self._prefix = b""
        self._mine: dict[bytes, Any] = {}
        # The user keys of its changed entries in order, from the first iteration on.
        self._order: list[bytes] | None = None
        # By the head of store keys with a key group: False if it had no entries when `may_have_entries` looked, and got none since.
        self._used: dict[bytes, bool] = {}

    def read_with(self, reader: SchemaReader) -> None:
        """Read and write values of a state that has evolved; called before anything is read."""
        self._restored, self._stored = evolved_entries(reader, self._restored, self._stored, absent=ABSENT)

    def get(self, key: Any) -> Any:
        entry = self._entry(self._user_key(key))
        return None if entry is ABSENT else self.value_of(entry)

    def contains(self, key: Any) -> bool:
        return self._entry(self._user_key(key)) is not ABSENT

    def put(self, key: Any, value: Any) -> None:
        self._put(self._user_key(key), self.accepted(value))

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        for key, value in dict_value.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        self._remove(self._user_key(key))

    def clear(self) -> None:
        self._enter()
        for user_key, _ in self._walk(self._prefix, keys_only=True):
            self._remove(user_key)

    def is_empty(self) -> bool:
        self._enter()
        return next(self._walk(self._prefix, keys_only=True), None) is None

    def items(self) -> Iterator[tuple[Any, Any]]:
        self._enter()
        return ((decoded_key(self._key_type, user_key, self._where), self.value_of(entry)) for user_key, entry in self._walk(self._prefix))

    def keys(self) -> Iterator[Any]:
        self._enter()
        return (decoded_key(self._key_type, user_key, self._where) for user_key, _ in self._walk(self._prefix, keys_only=True))

    def values(self) -> Iterator[Any]:
        self._enter()
        return (self.value_of(entry) for _, entry in self._walk(self._prefix))

    def prefix_items(self, start: bytes) -> Iterator[tuple[Any, Any]]:
        """Iterate over the entries whose user keys' bytes begin with ``start``, in the order of the bytes. Reads nothing else."""
        self._enter()
        return (
            (decoded_key(self._key_type, user_key, self._where), self.value_of(entry))
            for user_key, entry in self._walk(self._prefix, start)
        )

    def entry(self, user_key: bytes) -> Any:
        """Return the entry of a user key's bytes, `ABSENT` without one. `value_of` makes a value of it, `accepted` an entry of a value."""
        if self._context.ident is not self._ident or self._ident is None:
            self._enter()
        return self._entry(user_key)

    def put_entry(self, user_key: bytes, entry: Any) -> None:
        """Put what `entry` or `accepted` returned, under a user key's bytes; `ABSENT` removes."""
        if self._context.ident is not self._ident or self._ident is None:
            self._enter()
        if entry is ABSENT:
            self._remove(user_key)
        else:
            self._put(user_key, entry)

    def may_have_entries(self, *, look_again: bool = False) -> bool:
        """Return False if no key of the current key's key group has an entry; reads the store once per key group, or to ``look_again``."""
        self._enter()
        head = self._prefix[:4]
        if head not in self._used or look_again:
            changed = any(prefix.startswith(head) for prefix in self._changed)
            self._used[head] = changed or self._layers.has_entries(head, prefix_end(head))
        return self._used[head]

    def prefix_keys(self, start: bytes) -> Iterator[Any]:
        """Iterate over the user keys of `prefix_items`, also of values that cannot be converted to the declared type."""
        self._enter()
        return (decoded_key(self._key_type, user_key, self._where) for user_key, _ in self._walk(self._prefix, start, keys_only=True))

    def continue_from(self, other: KeyedMapState) -> None:
        """Take the place of another table of the same state, with other values, in which the running batch has only removed entries."""
        self._changed = {prefix: dict.fromkeys(mine, ABSENT) for prefix, mine in other._changed.items()}
        self.recount()
        self.hits, self.misses = other.hits, other.misses

    def changes(self) -> list[Change]:
        stored = self._stored
        return [
            (prefix + user_key, None if entry is ABSENT else stored(entry))
            for prefix, mine in self._changed.items()
            for user_key, entry in mine.items()
        ]

    def changed_bytes(self) -> int:
        return self._changed_bytes

    def recount(self) -> None:
        sizer = self._sizer
        self._changed_bytes = sum(
            ENTRY_BYTES + len(user_key) + (0 if entry is None or entry is ABSENT else sizer(entry))
            for mine in self._changed.values()
            for user_key, entry in mine.items()
        )

    def cached_bytes(self) -> int:
        return self._cached_bytes

    def age(self) -> None:
        self._old = self._young
        self._young = {}
        self._cached_bytes = 0

    def spilled(self) -> None:
        for prefix, mine in self._changed.items():
            for user_key in mine:
                self._young.pop(prefix + user_key, None)
                self._old.pop(prefix + user_key, None)
        self._forget_changed()

    def commit(self) -> None:
        self.recount()
        young = self._young
        for prefix, mine in self._changed.items():
            young.update({prefix + user_key: entry for user_key, entry in mine.items()})
        self._cached_bytes += self._changed_bytes
        self._forget_changed()

    def rollback(self, *, spilled: bool) -> None:
        self._forget_changed()
        if spilled:
            self._young = {}
            self._old = {}
            self._cached_bytes = 0

    def prefetch(self, idents: Sequence[bytes]) -> None:
        """Do nothing: which user keys will be asked for is not known."""

    def changed_idents(self) -> list[bytes]:
        """See `ScannedTable`."""
        return [prefix[:2] + split_store_key(prefix).key for prefix in self._changed]

    def has_entry(self, ident: bytes, *, stored: bool) -> bool:
        """See `ScannedTable`."""
        prefix = ident[:2] + self._heads[len(ident)] + ident[2:]
        if prefix not in self._changed:
            return stored
        # Also entries that have expired: they are stored.
        return next(KeyedMapState._walk(self, prefix, keys_only=True), None) is not None

    def entry_count(self) -> int:
        return sum(map(len, self._changed.values())) + len(self._young) + len(self._old)

    def _enter(self) -> None:
        """Make the current key this state's current key."""
        ident = self._context.ident
        if ident is self._ident and ident is not None:
            return
        if ident is None:
            raise no_current_key()
        self._ident = ident
        self._prefix = ident[:2] + self._heads[len(ident)] + ident[2:]
        self._mine = self._changed.get(self._prefix) or {}
        self._order = None

    def _forget_changed(self) -> None:
        self._changed = {}
        self._changed_bytes = 0
        self._mine = {}
        self._order = None

    def _user_key(self, key: Any) -> bytes:
        """Enter the current key and return the bytes of a user key."""
        if self._context.ident is not self._ident or self._ident is None:
            self._enter()
        try:
            return self._key_type.encode(key)
        except InvalidInputError as error:
            raise error.named(f"map key of {self._where}") from error

    def _entry(self, user_key: bytes) -> Any:
        """Return the entry from wherever it is."""
        if user_key in self._mine:
            return self._mine[user_key]
        store_key = self._prefix + user_key
        if store_key in self._young:
            self.hits += 1
            return self._young[store_key]
        if store_key in self._old:
            self.hits += 1
            entry = self._old.pop(store_key)
        else:
            self.misses += 1
            data = self._layers.get(store_key)
            entry = ABSENT if data is None else self._restored(data)
        self._young[store_key] = entry
        self._cached_bytes += ENTRY_BYTES + len(store_key) + (0 if entry is None or entry is ABSENT else self._sizer(entry))
        return entry

    def _put(self, user_key: bytes, entry: Any) -> None:
        size_bytes = ENTRY_BYTES + len(user_key) + (0 if entry is None else self._sizer(entry))
        if self._order is not None:
            self._insert(user_key)
        if self._used:
            self._used[self._prefix[:4]] = True
        self._mine[user_key] = entry
        self._changed[self._prefix] = self._mine
        self._changed_bytes += size_bytes
        self._context.grow(size_bytes)

    def _remove(self, user_key: bytes) -> None:
        if self._young.get(self._prefix + user_key) is ABSENT:
            # Nothing is stored: forgetting the change saves a useless delete in the changelog and the store.
            if user_key in self._mine:
                del self._mine[user_key]
                if self._order is not None:
                    del self._order[bisect_left(self._order, user_key)]
            return
        if self._order is not None:
            self._insert(user_key)
        self._mine[user_key] = ABSENT
        self._changed[self._prefix] = self._mine
        size_bytes = ENTRY_BYTES + len(user_key)
        self._changed_bytes += size_bytes
        self._context.grow(size_bytes)

    def _walk(self, prefix: bytes, start: bytes = b"", *, keys_only: bool = False) -> Iterator[tuple[bytes, Any]]:
        """Yield user keys and entries of one key in key order; those whose user keys begin with ``start``.

        With ``keys_only``, values that cannot be converted to the declared type are None, because nobody reads them.

        Entries that are removed or changed during iteration are seen as such; added entries may be seen. No iterator of the store is kept open
        while the caller runs, so that it may write, spill or stop in the middle.
        """
        changed_keys = iter(self._changed_keys(prefix, start))
        changed_key = next(changed_keys, None)
        for user_key, data, spills in stored_entries(self._layers, prefix, start):
            while changed_key is not None and changed_key < user_key:
                yield from self._live(prefix, changed_key, keys_only=keys_only)
                changed_key = next(changed_keys, None)
            if changed_key == user_key:
                changed_key = next(changed_keys, None)
            mine = self._changed.get(prefix, {})
            if user_key in mine or spills != self._layers.spills:
                yield from self._live(prefix, user_key, keys_only=keys_only)
            else:
                entry = converted(self._restored, data, keys_only=keys_only)
                if entry is not ABSENT:
                    yield user_key, entry
        while changed_key is not None:
            yield from self._live(prefix, changed_key, keys_only=keys_only)
            changed_key = next(changed_keys, None)

    def _changed_keys(self, prefix: bytes, start: bytes) -> list[bytes]:
        """Return the user keys of the changed entries of one key that begin with ``start``, in order."""
        if prefix != self._prefix:
            return sorted(key for key in self._changed.get(prefix, ()) if key.startswith(start))
        if self._order is None:
            # Sorted once for many iterations: a function may go over the entries of a prefix for each of its rows.
            self._order = sorted(self._mine)
        order = self._order
        last = first = bisect_left(order, start)
        while last < len(order) and order[last].startswith(start):
            last += 1
        return order[first:last]

    def _insert(self, user_key: bytes) -> None:
        """Note in the order that an entry will be changed."""
        if self._order is not None and user_key not in self._mine:
            insort(self._order, user_key)

    def _live(self, prefix: bytes, user_key: bytes, *, keys_only: bool = False) -> Iterator[tuple[bytes, Any]]:
        """Yield the current entry, or nothing if it was removed."""
        mine = self._changed.get(prefix, {})
        if user_key in mine:
            entry = mine[user_key]
        else:
            data = self._layers.get(prefix + user_key)
            entry = ABSENT if data is None else converted(self._restored, data, keys_only=keys_only)
        if entry is not ABSENT:
            yield user_key, entry

    def accepted(self, value: Any) -> Any:
        """Check a value and make the entry to keep for it."""
        type_ = self._value_type
        if value.__class__ is type_.accepted_class or value is None:
            return value
        try:
            if type_.immutable:
                return type_.normalize(value)
            return value if type_.is_immutable(value) else Encoded(self._codec.encode(value))
        except InvalidInputError as error:
            raise error.named(self._where) from error

    def value_of(self, entry: Any) -> Any:
        return self._codec.decode_nullable(entry) if entry.__class__ is Encoded else entry
