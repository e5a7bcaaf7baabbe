"""StateTtlConfig: how long a value lives after it was last written, or read. PyFlink's names; processing time only."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum
from typing import ClassVar, Final

from statefulspark.errors import InvalidInputError
from statefulspark.state.times import Duration, Time


class UpdateType(Enum):
    """When the expiry of a value is extended."""

    Disabled = 0
    """Nothing expires."""
    OnCreateAndWrite = 1
    """Writing."""
    OnReadAndWrite = 2
    """Writing and reading."""


class StateVisibility(Enum):
    """Result of reading an expired value."""

    ReturnExpiredIfNotCleanedUp = 0
    """The value, once: reading cleans it up."""
    NeverReturnExpired = 1
    """Nothing."""


class TtlTimeCharacteristic(Enum):
    """The clock that expiry uses."""

    ProcessingTime = 0
    """The batch's processing time, which is fixed for the batch, so that a retry sees the same values."""


DEFAULT_ENTRIES_PER_ACCESS: Final = 4
"""Entries that the sweep may check per entry written: if one in five has expired, this removes nearly as many as are written."""


@dataclass(frozen=True, slots=True)
class CleanupStrategies:
    """How expired entries are removed if they are never read. Only the sweep removes them; the strategies control whether and how fast it runs.

    Attributes:
        background: True if the default strategy is on.
        incremental: True if `Builder.cleanup_incrementally` was called.
        compact_filter: True if `Builder.cleanup_in_rocksdb_compact_filter` was called.
        full_snapshot: True if full snapshots leave expired entries out.
        entries_per_access: Maximum number of entries checked per access to the state.
        for_every_record: True if each processed row counts as an access.
    """

    background: bool = True
    incremental: bool = False
    compact_filter: bool = False
    full_snapshot: bool = False
    entries_per_access: int = DEFAULT_ENTRIES_PER_ACCESS
    for_every_record: bool = False

    @property
    def sweeps(self) -> bool:
        """True if expired entries are removed while the job runs."""
        return self.background or self.incremental or self.compact_filter


# Inside the class below, these names are its attributes, which are no types to a type checker.
_UpdateType = UpdateType
_StateVisibility = StateVisibility
_TtlTimeCharacteristic = TtlTimeCharacteristic


@dataclass(frozen=True, slots=True)
class StateTtlConfig:
    """Time to live of one state, built with `new_builder`.

    >>> StateTtlConfig.new_builder(Time.hours(1)).never_return_expired().build().ttl_ms
    3600000

    Attributes:
        ttl_ms: Milliseconds from the last write to expiry, at least 1. Lists and maps expire element by element.
        update_type: When the expiry of a value is extended.
        state_visibility: Result of reading an expired value.
        cleanup: How expired entries are removed if they are never read.
    """

    ttl_ms: int
    update_type: UpdateType = UpdateType.OnCreateAndWrite
    state_visibility: StateVisibility = StateVisibility.NeverReturnExpired
    cleanup: CleanupStrategies = CleanupStrategies()

    UpdateType: ClassVar[type[UpdateType]] = UpdateType
    StateVisibility: ClassVar[type[StateVisibility]] = StateVisibility
    TtlTimeCharacteristic: ClassVar[type[TtlTimeCharacteristic]] = TtlTimeCharacteristic

    @staticmethod
    def new_builder(ttl: Time | Duration | timedelta) -> Builder:
        """Begin a configuration whose values live for ``ttl`` (at least one millisecond).

        Raises:
            InvalidInputError: ``ttl`` is not positive.
        """
        milliseconds = Time.of(ttl).to_milliseconds()
        if milliseconds < 1:
            raise InvalidInputError("the time to live must be at least one millisecond", field="ttl")
        return Builder(milliseconds)

    def is_enabled(self) -> bool:
        """Tell whether anything expires."""
        return self.update_type is not UpdateType.Disabled

    def get_update_type(self) -> _UpdateType:
        """Return what prolongs a life."""
        return self.update_type

    def get_state_visibility(self) -> _StateVisibility:
        """Return what reading an expired value gives."""
        return self.state_visibility

    def get_ttl_time_characteristic(self) -> _TtlTimeCharacteristic:
        """Return the clock that counts: processing time."""
        return TtlTimeCharacteristic.ProcessingTime

    def get_ttl(self) -> Time:
        """Return the time to live."""
        return Time.milliseconds(self.ttl_ms)


@dataclass(slots=True)
class Builder:
    """Collects the parts of a `StateTtlConfig`; every method returns the builder."""

    _ttl_ms: int
    _update_type: UpdateType = field(default=UpdateType.OnCreateAndWrite)
    _state_visibility: StateVisibility = field(default=StateVisibility.NeverReturnExpired)
    _cleanup: CleanupStrategies = field(default=CleanupStrategies())

    def set_update_type(self, update_type: UpdateType) -> Builder:
        """Set what prolongs a life."""
        self._update_type = update_type
        return self

    def update_ttl_on_create_and_write(self) -> Builder:
        """Let writing prolong a life (the default)."""
        return self.set_update_type(UpdateType.OnCreateAndWrite)

    def update_ttl_on_read_and_write(self) -> Builder:
        """Let reading prolong a life too."""
        return self.set_update_type(UpdateType.OnReadAndWrite)

    def set_state_visibility(self, state_visibility: StateVisibility) -> Builder:
        """Set what reading an expired value gives."""
        self._state_visibility = state_visibility
        return self

    def never_return_expired(self) -> Builder:
        """Let an expired value read as nothing (the default)."""
        return self.set_state_visibility(StateVisibility.NeverReturnExpired)

    def return_expired_if_not_cleaned_up(self) -> Builder:
        """Let an expired value be read once more if it is still there."""
        return self.set_state_visibility(StateVisibility.ReturnExpiredIfNotCleanedUp)

    def use_processing_time(self) -> Builder:
        """Use processing time (the only clock, as in Flink)."""
        return self

    def set_ttl_time_characteristic(self, characteristic: TtlTimeCharacteristic) -> Builder:
        """Accept processing time, for PyFlink's sake."""
        del characteristic
        return self

    def set_ttl(self, ttl: Time | Duration | timedelta) -> Builder:
        """Replace the time to live."""
        self._ttl_ms = StateTtlConfig.new_builder(ttl)._ttl_ms  # noqa: SLF001  # the builder's own class
        return self

    def cleanup_incrementally(self, cleanup_size: int, run_cleanup_for_every_record: bool = False) -> Builder:
        """Set how fast expired entries are removed in the background.

        After each batch, up to ``cleanup_size`` entries (at least 1) are checked per entry of the state that the batch wrote; fewer if
        hardly any have expired.

        Args:
            cleanup_size: Entries per access. 1 is enough to bound the state, more keep it closer to its live entries.
            run_cleanup_for_every_record: Count each row that the step processes as an access too.
        """
        if cleanup_size < 1:
            raise InvalidInputError("at least one entry", field="cleanup_size", remedy="Use disable_cleanup_in_background() for none.")
        self._cleanup = replace(
            self._cleanup, incremental=True, entries_per_access=cleanup_size, for_every_record=run_cleanup_for_every_record
        )
        return self

    def cleanup_full_snapshot(self) -> Builder:
        """Leave expired entries out of full snapshots: savepoints, and checkpoints of state in memory.

        As in Flink it has no effect on incremental snapshots, which are the checkpoints of RocksDB.
        """
        self._cleanup = replace(self._cleanup, full_snapshot=True)
        return self

    def cleanup_in_rocksdb_compact_filter(
        self, query_time_after_num_entries: int, periodic_compaction_time: Time | Duration | timedelta | None = None
    ) -> Builder:
        """Remove expired entries in the background at the default pace, also after `disable_cleanup_in_background`.

        In Flink a filter written in C++ does this while RocksDB compacts. Here the background sweep does it for every state backend:
        it deletes the entries, and compaction frees their space. Both arguments tune Flink's filter and are only checked: time does not move
        within a batch, so there is nothing to query, and the period is set for the whole job with RocksDB's
        ``compaction.filter.periodic-compaction-time``.
        """
        if query_time_after_num_entries < 0:
            raise InvalidInputError("is negative", field="query_time_after_num_entries", remedy="Give 0 or more.")
        if periodic_compaction_time is not None and Time.of(periodic_compaction_time).to_milliseconds() < 0:
            raise InvalidInputError("is negative", field="periodic_compaction_time", remedy="Give 0 or more.")
        self._cleanup = replace(self._cleanup, compact_filter=True)
        return self

    def disable_cleanup_in_background(self) -> Builder:
        """Switch the default clean-up off. Strategies that were chosen with one of the methods above stay on, as in Flink."""
        self._cleanup = replace(self._cleanup, background=False)
        return self

    def build(self) -> StateTtlConfig:
        """Return the configuration."""
        return StateTtlConfig(self._ttl_ms, self._update_type, self._state_visibility, self._cleanup)
