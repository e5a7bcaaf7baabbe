"""ExpiringListState: a list with a time to live, whose elements expire one by one."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

from statefulspark.errors import CorruptDataError
from statefulspark.state.api.ttl import StateTtlConfig
from statefulspark.state.encoding.segments import ListHead, is_head, is_segment, pack_segment, unpack_segment
from statefulspark.state.encoding.values import EXPIRING_LIST
from statefulspark.state.store.base import Change
from statefulspark.state.store.layers import Layers
from statefulspark.state.tables.key_context import KeyContext
from statefulspark.state.tables.lifetime import Lifetime
from statefulspark.state.tables.lists import KeyedListState
from statefulspark.state.tables.sweep import Swept
from statefulspark.state.types.base import TypeInformation

_EXPIRY: Final = struct.Struct(">q")
_REWRITTEN_FROM: Final = 4
"""A list is written again when one element in so many has expired, so that rewriting costs a few bytes per byte that was added."""
REWRITTEN_BYTES_MAX: Final = 4 << 20
"""Lists that a sweep has shortened are written after so many bytes, so that their number does not matter for memory."""
_VERSION: Final = bytes([EXPIRING_LIST])


class ExpiringListState(KeyedListState):
    """A list per key whose elements expire one by one; a payload begins with the expiry.

    Args: as of `KeyedListState`, and ``config``, the time to live.
    """

    __slots__ = ("_lifetime",)

    version = _VERSION

    def __init__(
        self,
        context: KeyContext,
        layers: Layers,
        state_id: int,
        *,
        element: TypeInformation,
        where: str,
        config: StateTtlConfig,
        on_segmented: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(context, layers, state_id, element=element, where=where, on_segmented=on_segmented)
        self._lifetime = Lifetime(context, config)

    def get(self) -> Iterator[Any]:
        payloads = self._payloads()
        if not payloads:
            return iter(())
        lifetime = self._lifetime
        living = [payload for payload in payloads if not lifetime.is_over(_expiry(payload))]
        shown = payloads if lifetime.shows_expired else living
        if lifetime.on_read:
            expiry = _EXPIRY.pack(lifetime.new_expiry())
            living = [payload if payload.startswith(expiry) else expiry + payload[8:] for payload in living]
        if living != payloads and (lifetime.on_read or not self._is_long(payloads) or is_worth_rewriting(len(payloads), len(living))):
            self._replace(living)
        return iter(self._decoded([payload[8:] for payload in shown]))

    def swept(self, entries: Iterator[tuple[bytes, bytes]], now_ms: int, checks_max: int) -> Swept:
        """See `Expiring`; a list or a segment is written again once a quarter of its elements have expired.

        A head is deleted when the elements of all segments have expired too. Segments that are still stored then are no part of a list.
        """
        deletes: list[bytes] = []
        rewritten: list[Change] = []
        key, count, checks, expired, rewritten_bytes = None, 0, 0, 0, 0
        next_expiry_ms: int | None = None
        for key, data in entries:
            head = ListHead.unpack(data, self._where) if is_head(data) else None
            part = is_segment(data)
            payloads = self._split(head.tail if head is not None else unpack_segment(data, self._where) if part else data)
            living = [payload for payload in payloads if _expiry(payload) > now_ms]
            count += 1
            checks += max(1, len(payloads))
            if living or (head is not None and head.last_ms > now_ms):
                expiry_ms = min(map(_expiry, living)) if living else head.last_ms if head is not None else now_ms
                next_expiry_ms = expiry_ms if next_expiry_ms is None else min(next_expiry_ms, expiry_ms)
                if is_worth_rewriting(len(payloads), len(living)):
                    left = self._join(living)
                    rewritten.append((key, head._replace(tail=left).pack() if head is not None else pack_segment(left) if part else left))
                    rewritten_bytes += len(data)
            else:
                deletes.append(key)
                expired += not part
            if checks >= checks_max or rewritten_bytes >= REWRITTEN_BYTES_MAX:
                break
        return Swept(deletes, rewritten, expired, key, count, checks, next_expiry_ms)

    def _latest(self, last_ms: int, written: list[list[bytes]]) -> int:
        return max([last_ms, *(_expiry(payload) for payloads in written for payload in payloads)])

    def _kept(self, payloads: list[bytes]) -> list[bytes]:
        lifetime = self._lifetime
        # Elements are in insertion order, so if the first one has not expired, usually none has.
        if payloads and lifetime.is_over(_expiry(payloads[0])):
            return [payload for payload in payloads if not lifetime.is_over(_expiry(payload))]
        return payloads.copy()

    def _payload(self, value: Any) -> bytes:
        return _EXPIRY.pack(self._lifetime.new_expiry()) + super()._payload(value)

    def _split(self, data: bytes) -> list[bytes]:
        payloads = super()._split(data)
        if any(len(payload) < _EXPIRY.size for payload in payloads):
            raise CorruptDataError("damaged list", path=self._where)
        return payloads


def is_worth_rewriting(elements: int, living: int) -> bool:
    """Return True if so many elements of a list have expired that it is written again."""
    return living < elements and (elements - living) * _REWRITTEN_FROM >= elements


def _expiry(payload: bytes) -> int:
    expiry_ms: int = _EXPIRY.unpack_from(payload)[0]
    return expiry_ms
