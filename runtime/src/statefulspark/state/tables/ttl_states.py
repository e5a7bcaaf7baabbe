"""States with a time to live: the same states, with an expiry time stored with each value, element or map entry.

The clock is the batch's processing time. Reading an expired value removes it, which is an ordinary change of the batch.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from statefulspark.errors import CorruptDataError, InvalidInputError
from statefulspark.state.api.ttl import StateTtlConfig, StateVisibility, UpdateType
from statefulspark.state.encoding.values import EXPIRING_LIST, Encoded, ValueCodec, join_expiry
from statefulspark.state.store.base import Change
from statefulspark.state.store.layers import Layers
from statefulspark.state.tables.expired_entries import swept_values
from statefulspark.state.tables.key_context import KeyContext
from statefulspark.state.tables.lists import KeyedListState
from statefulspark.state.tables.maps import ABSENT, KeyedMapState
from statefulspark.state.tables.sweep import Expiring, Swept
from statefulspark.state.tables.table import EvolvingTable
from statefulspark.state.tables.value import KeyedValueState
from statefulspark.state.types.base import TypeInformation

_ENTRY_BYTES: Final = 96
"""Memory of the pair of expiry and value."""
_EXPIRY: Final = struct.Struct(">q")
_LIST_REWRITTEN_FROM: Final = 4
"""A list is written again when one element in so many has expired, so that rewriting costs a few bytes per byte that was added."""
_REWRITTEN_BYTES_MAX: Final = 4 << 20
"""Lists that a sweep has shortened are written after so many bytes, so that their number does not matter for memory."""
_LIST_VERSION: Final = bytes([EXPIRING_LIST])

_Expiring = tuple[int, Any]
"""(expiry in ms since the epoch, value decoded or kept as bytes)"""


class ExpiringTable(EvolvingTable, Expiring, Protocol):
    """A state that expires."""


class Lifetime:
    """The rules of one time to live.

    Args:
        context: Knows what time it is.
        config: The time to live.
    """

    __slots__ = ("_context", "_ttl_ms", "on_read", "shows_expired")

    def __init__(self, context: KeyContext, config: StateTtlConfig) -> None:
        self._context = context
        self._ttl_ms = config.get_ttl().to_milliseconds()
        self.on_read = config.get_update_type() is UpdateType.OnReadAndWrite
        self.shows_expired = config.get_state_visibility() is StateVisibility.ReturnExpiredIfNotCleanedUp

    def new_expiry(self) -> int:
        """Return when something written (or read) now expires."""
        return self._context.processing_time_ms + self._ttl_ms

    def is_over(self, expiry_ms: int) -> bool:
        """Tell whether something with this expiry has expired."""
        return expiry_ms <= self._context.processing_time_ms


class ExpiringValueState(KeyedValueState):
    """A value per key that expires; an entry is a pair of expiry and value."""

    __slots__ = ("_lifetime",)

    def __init__(
        self, context: KeyContext, layers: Layers, state_id: int, *, type_: TypeInformation, where: str, config: StateTtlConfig
    ) -> None:
        super().__init__(context, layers, state_id, type_=type_, where=where)
        self._lifetime = Lifetime(context, config)
        codec = ValueCodec(type_, where)
        self._restored = _restorer(self._restored, codec)
        self._stored = _storer(self._stored)
        if self._entry_bytes is not None:
            self._entry_bytes += _ENTRY_BYTES
        self._sizer = _sizer(self._sizer)

    def value(self) -> Any:
        entry: _Expiring | None = self._entry()
        if entry is None:
            return None
        expiry_ms, value = entry
        lifetime = self._lifetime
        if lifetime.is_over(expiry_ms):
            self._remove()
            if not lifetime.shows_expired:
                return None
        elif lifetime.on_read and expiry_ms != lifetime.new_expiry():
            self._put((lifetime.new_expiry(), value))
        return self._decode(value) if value.__class__ is Encoded else value

    def update(self, value: Any) -> None:
        if value is None:
            self._remove()
        else:
            self._put((self._lifetime.new_expiry(), self._checked(value)))

    def swept(self, entries: Iterator[tuple[bytes, bytes]], now_ms: int, checks_max: int) -> Swept:  # noqa: ARG002  one check per entry
        """See `Expiring`."""
        return swept_values(entries, now_ms)


class ExpiringListState(KeyedListState):
    """A list per key whose elements expire one by one; a payload begins with the expiry."""

    __slots__ = ("_lifetime",)

    version = _LIST_VERSION

    def __init__(
        self, context: KeyContext, layers: Layers, state_id: int, *, element: TypeInformation, where: str, config: StateTtlConfig
    ) -> None:
        super().__init__(context, layers, state_id, element=element, where=where)
        self._lifetime = Lifetime(context, config)

    def get(self) -> Iterator[Any]:
        payloads = self._entry()
        if not payloads:
            return iter(())
        lifetime = self._lifetime
        living = [payload for payload in payloads if not lifetime.is_over(_expiry(payload))]
        shown = payloads if lifetime.shows_expired else living
        if lifetime.on_read:
            expiry = _EXPIRY.pack(lifetime.new_expiry())
            living = [payload if payload.startswith(expiry) else expiry + payload[8:] for payload in living]
        if living != payloads:
            if living:
                self._replace(living)
            else:
                self._remove()
        return iter(self._decoded([payload[8:] for payload in shown]))

    def swept(self, entries: Iterator[tuple[bytes, bytes]], now_ms: int, checks_max: int) -> Swept:
        """See `Expiring`; a list is written again once a quarter of its elements have expired."""
        changes: list[Change] = []
        key, count, checks, deleted, rewritten_bytes = None, 0, 0, 0, 0
        next_expiry_ms: int | None = None
        for key, data in entries:
            payloads = self._split(data)
            living = [payload for payload in payloads if _expiry(payload) > now_ms]
            count += 1
            checks += max(1, len(payloads))
            if not living:
                changes.append((key, None))
                deleted += 1
            else:
                expiry_ms = min(map(_expiry, living))
                next_expiry_ms = expiry_ms if next_expiry_ms is None else min(next_expiry_ms, expiry_ms)
                if (len(payloads) - len(living)) * _LIST_REWRITTEN_FROM >= len(payloads):
                    changes.append((key, self._join(living)))
                    rewritten_bytes += len(data)
            if checks >= checks_max or rewritten_bytes >= _REWRITTEN_BYTES_MAX:
                break
        return Swept(changes, deleted, key, count, checks, next_expiry_ms)

    def _kept(self) -> list[bytes]:
        payloads: list[bytes] = super()._kept()
        lifetime = self._lifetime
        # Elements are in insertion order, so if the first one has not expired, usually none has.
        if payloads and lifetime.is_over(_expiry(payloads[0])):
            return [payload for payload in payloads if not lifetime.is_over(_expiry(payload))]
        return payloads

    def _payload(self, value: Any) -> bytes:
        return _EXPIRY.pack(self._lifetime.new_expiry()) + super()._payload(value)

    def _split(self, data: bytes) -> list[bytes]:
        payloads = super()._split(data)
        if any(len(payload) < _EXPIRY.size for payload in payloads):
            raise CorruptDataError("damaged list", path=self._where)
        return payloads


class ExpiringMapState(KeyedMapState):
    """A map per key whose entries expire one by one; an entry is a pair of expiry and value."""

    __slots__ = ("_lifetime",)

    def __init__(
        self,
        context: KeyContext,
        layers: Layers,
        state_id: int,
        *,
        key_type: TypeInformation,
        value_type: TypeInformation,
        where: str,
        config: StateTtlConfig,
    ) -> None:
        super().__init__(context, layers, state_id, key_type=key_type, value_type=value_type, where=where)
        self._lifetime = Lifetime(context, config)
        self._restored = _restorer(self._restored, self._codec)
        self._stored = _storer(self._stored)
        self._sizer = _sizer(self._sizer)

    def swept(self, entries: Iterator[tuple[bytes, bytes]], now_ms: int, checks_max: int) -> Swept:  # noqa: ARG002  one check per entry
        """See `Expiring`."""
        return swept_values(entries, now_ms)

    def _entry(self, user_key: bytes) -> Any:
        return self._living(user_key, super()._entry(user_key))

    def _walk(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, Any]]:
        for user_key, entry in super()._walk(prefix, start):
            if prefix != self._prefix:
                raise InvalidInputError("the iterator belongs to a key that is no longer current", field=self._where)
            living = self._living(user_key, entry)
            if living is not ABSENT:
                yield user_key, living

    def _living(self, user_key: bytes, entry: Any) -> Any:
        """Return the entry if it may be seen; clean up or prolong it."""
        if entry is ABSENT:
            return ABSENT
        expiry_ms, value = entry
        lifetime = self._lifetime
        if lifetime.is_over(expiry_ms):
            self._remove(user_key)
            return entry if lifetime.shows_expired else ABSENT
        if lifetime.on_read and expiry_ms != lifetime.new_expiry():
            entry = (lifetime.new_expiry(), value)
            self._put(user_key, entry)
        return entry

    def _accepted(self, value: Any) -> Any:
        return self._lifetime.new_expiry(), super()._accepted(value)

    def _value(self, entry: Any) -> Any:
        return super()._value(entry[1])


def _restorer(restored: Callable[[bytes], Any], codec: ValueCodec) -> Callable[[bytes], _Expiring]:
    def expiring(data: bytes) -> _Expiring:
        expiry_ms, plain = codec.split_expiry(data)
        return expiry_ms, restored(plain)

    return expiring


def _storer(stored: Callable[[Any], bytes]) -> Callable[[_Expiring], bytes]:
    return lambda entry: join_expiry(entry[0], stored(entry[1]))


def _sizer(sizer: Callable[[Any], int]) -> Callable[[Any], int]:
    return lambda entry: _ENTRY_BYTES + (0 if entry[1] is None else sizer(entry[1]))


def _expiry(payload: bytes) -> int:
    expiry_ms: int = _EXPIRY.unpack_from(payload)[0]
    return expiry_ms
