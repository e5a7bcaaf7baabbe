"""Lifetime: when something that is written or read now expires, and what has expired."""

from __future__ import annotations

from statefulspark.state.api.ttl import StateTtlConfig, StateVisibility, UpdateType
from statefulspark.state.tables.key_context import KeyContext


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
