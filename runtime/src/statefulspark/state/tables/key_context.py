"""KeyContext: the current key, and the size of the batch's changes so far; shared by all states of a backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from statefulspark.errors import InvalidInputError
from statefulspark.state.encoding.idents import key_group_of_ident


class KeyContext:
    """Plain fields, because every access to state reads them.

    Attributes:
        ident: Two bytes of key group, then the key's bytes; None when no key is current. Caches are keyed by it.
        key: The current key as the user sees it.
        processing_time_ms: The running batch's processing time.
        cached_entry_bytes_max: Half of the budget of the cache. What is larger is not kept in it.
        growth_bytes: Estimated memory of changes, and of large entries that were read, since `relieve` ran last.
        growth_bytes_max: When growth exceeds it, the state that caused it calls `relieve`.
        relieve: Compares memory with the budget and spills or evicts.
    """

    __slots__ = ("cached_entry_bytes_max", "growth_bytes", "growth_bytes_max", "ident", "key", "processing_time_ms", "relieve")

    def __init__(self, growth_bytes_max: int, relieve: Callable[[], None], *, cached_entry_bytes_max: int) -> None:
        self.ident: bytes | None = None
        self.key: Any = None
        self.processing_time_ms = 0
        self.growth_bytes = 0
        self.growth_bytes_max = growth_bytes_max
        self.relieve = relieve
        self.cached_entry_bytes_max = cached_entry_bytes_max

    def key_group(self) -> int:
        """Return the key group of the current key.

        Raises:
            InvalidInputError: There is no current key.
        """
        if self.ident is None:
            raise no_current_key()
        return key_group_of_ident(self.ident)

    def grow(self, size_bytes: int) -> None:
        """Record that changes or a large entry of the cache take ``size_bytes`` more memory; may spill or evict before it returns."""
        self.growth_bytes += size_bytes
        if self.growth_bytes > self.growth_bytes_max:
            self.relieve()


def no_current_key() -> InvalidInputError:
    """Build the error of a state access when no key is current."""
    return InvalidInputError(
        "there is no current key", field="state", remedy="Use keyed state and timers only in process_element and on_timer."
    )
