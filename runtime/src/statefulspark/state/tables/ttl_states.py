"""Values and maps with a time to live: the same states, with an expiry time stored with each value or map entry. Lists: `ttl_lists`.

The clock is the batch's processing time. Reading an expired value removes it, which is an ordinary change of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from statefulspark.errors import InvalidInputError
from statefulspark.state.api.ttl import StateTtlConfig
from statefulspark.state.encoding.values import ValueCodec, join_expiry
from statefulspark.state.store.layers import Layers
from statefulspark.state.tables.expired_entries import swept_map_entries, swept_values
from statefulspark.state.tables.key_context import KeyContext
from statefulspark.state.tables.lifetime import Lifetime
from statefulspark.state.tables.maps import ABSENT, KeyedMapState
from statefulspark.state.tables.sweep import Swept
from statefulspark.state.tables.value import KeyedValueState
from statefulspark.state.types.base import TypeInformation

_ENTRY_BYTES: Final = 96
"""Memory of the pair of expiry and value."""

_Expiring = tuple[int, Any]
"""(expiry in ms since the epoch, value decoded or kept as bytes)"""


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
        return self._decode(value) if value.__class__ is self._encoded else value

    def update(self, value: Any) -> None:
        if value is None:
            self._remove()
        else:
            self._put((self._lifetime.new_expiry(), self._checked(value)))

    def swept(self, entries: Iterator[tuple[bytes, bytes]], now_ms: int, checks_max: int) -> Swept:  # noqa: ARG002  one check per entry
        """See `Expiring`."""
        return swept_values(entries, now_ms)


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
        return swept_map_entries(entries, now_ms)

    def _entry(self, user_key: bytes) -> Any:
        return self._living(user_key, super()._entry(user_key))

    def _walk(self, prefix: bytes, start: bytes = b"", *, keys_only: bool = False) -> Iterator[tuple[bytes, Any]]:
        for user_key, entry in super()._walk(prefix, start, keys_only=keys_only):
            if prefix != self._prefix:
                raise InvalidInputError("the iterator belongs to a key that is no longer current", field=self._where)
            # None: its value cannot be converted, so nobody knows when it expires.
            living = None if entry is None else self._living(user_key, entry)
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

    def accepted(self, value: Any) -> Any:
        return self._lifetime.new_expiry(), super().accepted(value)

    def value_of(self, entry: Any) -> Any:
        return super().value_of(entry[1])


def _restorer(restored: Callable[[bytes], Any], codec: ValueCodec) -> Callable[[bytes], _Expiring]:
    def expiring(data: bytes) -> _Expiring:
        expiry_ms, plain = codec.split_expiry(data)
        return expiry_ms, restored(plain)

    return expiring


def _storer(stored: Callable[[Any], bytes]) -> Callable[[_Expiring], bytes]:
    return lambda entry: join_expiry(entry[0], stored(entry[1]))


def _sizer(sizer: Callable[[Any], int]) -> Callable[[Any], int]:
    return lambda entry: _ENTRY_BYTES + (0 if entry[1] is None else sizer(entry[1]))
