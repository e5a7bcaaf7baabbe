"""StateTtlConfig: how long a value lives after it was last written, or read. PyFlink's names; processing time only."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from typing import Final, TypeAlias

from statefulspark.errors import InvalidInputError
from statefulspark.state.api.cleanup_strategies import CleanupStrategies
from statefulspark.state.times import Duration, Time

_Strategies = CleanupStrategies.Strategies
_TTL_MS_MAX: Final = 1 << 62
"""Longer times mean the same: nothing expires. Added to a processing time, they would not fit 64 bits."""


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


class Builder:
    """Collects the parts of a `StateTtlConfig`; every method returns the builder.

    Args:
        ttl: The time to live (at least one millisecond). More than 2^62 ms, such as Java's ``Long.MAX_VALUE``, count as 2^62 ms.

    Raises:
        InvalidInputError: ``ttl`` is not positive.
    """

    __slots__ = ("_background", "_strategies", "_ttl", "_update_type", "_visibility")

    def __init__(self, ttl: Time | Duration | timedelta) -> None:
        self._ttl = _checked(ttl)
        self._update_type = UpdateType.OnCreateAndWrite
        self._visibility = StateVisibility.NeverReturnExpired
        self._strategies: dict[_Strategies, CleanupStrategies.CleanupStrategy] = {}
        self._background = True

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
        self._visibility = state_visibility
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

    def set_ttl_time_characteristic(self, ttl_time_characteristic: TtlTimeCharacteristic) -> Builder:
        """Accept processing time, for PyFlink's sake."""
        del ttl_time_characteristic
        return self

    def set_ttl(self, ttl: Time | Duration | timedelta) -> Builder:
        """Replace the time to live."""
        self._ttl = _checked(ttl)
        return self

    def cleanup_incrementally(self, cleanup_size: int, run_cleanup_for_every_record: bool = False) -> Builder:
        """Check entries for expiry whenever the state is accessed, beside the default cleanup.

        After each batch, ``cleanup_size`` entries are checked per entry of the state that the batch read or wrote. The default cleanup, which deletes
        each entry within nine tenths of its time to live after it has expired, continues at its own pace, unless `disable_cleanup_in_background` is
        called.

        Args:
            cleanup_size: Entries per access (minimum 1).
            run_cleanup_for_every_record: Count each row that the step processes as an access too.
        """
        strategy = CleanupStrategies.IncrementalCleanupStrategy(cleanup_size, run_cleanup_for_every_record)
        self._strategies[_Strategies.INCREMENTAL_CLEANUP] = strategy
        return self

    def cleanup_full_snapshot(self) -> Builder:
        """Leave expired entries out of full snapshots: savepoints, checkpoints of state in memory, and all others of jobs with ``incremental: false``.

        As in Flink it has no effect on incremental checkpoints, which are the default of RocksDB.
        """
        self._strategies[_Strategies.FULL_STATE_SCAN_SNAPSHOT] = CleanupStrategies.EMPTY_STRATEGY
        return self

    def cleanup_in_rocksdb_compact_filter(
        self, query_time_after_num_entries: int, periodic_compaction_time: Time | Duration | timedelta | None = None
    ) -> Builder:
        """Remove expired entries in the background as the default cleanup does, also after `disable_cleanup_in_background`.

        In Flink a filter written in C++ does this while RocksDB compacts. Here the background sweep does it for every state backend:
        it deletes the entries, and compaction frees their space. Both arguments tune Flink's filter and are only checked: time does not move
        within a batch, so there is nothing to query, and the period is set for the whole job with RocksDB's
        ``compaction.filter.periodic-compaction-time``.
        """
        period = None if periodic_compaction_time is None else Duration.of_millis(Time.of(periodic_compaction_time).to_milliseconds())
        strategy = CleanupStrategies.RocksdbCompactFilterCleanupStrategy(query_time_after_num_entries, period)
        self._strategies[_Strategies.ROCKSDB_COMPACTION_FILTER] = strategy
        return self

    def disable_cleanup_in_background(self) -> Builder:
        """Switch the default clean-up off. Strategies that were chosen with one of the methods above stay on, as in Flink."""
        self._background = False
        return self

    def build(self) -> StateTtlConfig:
        """Return the configuration."""
        cleanup = CleanupStrategies(self._strategies, self._background)
        return StateTtlConfig(self._update_type, self._visibility, TtlTimeCharacteristic.ProcessingTime, self._ttl, cleanup)


# Inside the class below, these names are its attributes.
_Builder: TypeAlias = Builder
_CleanupStrategies: TypeAlias = CleanupStrategies
_UpdateType: TypeAlias = UpdateType
_StateVisibility: TypeAlias = StateVisibility
_TtlTimeCharacteristic: TypeAlias = TtlTimeCharacteristic


class StateTtlConfig:
    """Time to live of one state. Immutable; built with `new_builder`.

    >>> StateTtlConfig.new_builder(Time.hours(1)).never_return_expired().build().get_ttl()
    Time(3600000)

    Args:
        update_type: When the expiry of a value is extended.
        state_visibility: Result of reading an expired value.
        ttl_time_characteristic: The clock, processing time.
        ttl: Time from the last write to expiry, at least a millisecond. Lists and maps expire element by element.
        cleanup_strategies: How expired entries are removed if they are never read.

    Raises:
        InvalidInputError: ``ttl`` is not positive.
    """

    Builder: TypeAlias = _Builder
    CleanupStrategies: TypeAlias = _CleanupStrategies
    UpdateType: TypeAlias = _UpdateType
    StateVisibility: TypeAlias = _StateVisibility
    TtlTimeCharacteristic: TypeAlias = _TtlTimeCharacteristic

    __slots__ = ("_cleanup_strategies", "_state_visibility", "_ttl", "_ttl_time_characteristic", "_update_type")

    def __init__(
        self,
        update_type: _UpdateType,
        state_visibility: _StateVisibility,
        ttl_time_characteristic: _TtlTimeCharacteristic,
        ttl: Time | Duration | timedelta,
        cleanup_strategies: _CleanupStrategies,
    ) -> None:
        self._update_type = update_type
        self._state_visibility = state_visibility
        self._ttl_time_characteristic = ttl_time_characteristic
        self._ttl = _checked(ttl)
        self._cleanup_strategies = cleanup_strategies

    @staticmethod
    def new_builder(ttl: Time | Duration | timedelta) -> _Builder:
        """Begin a configuration whose values live for ``ttl`` (at least one millisecond).

        Raises:
            InvalidInputError: ``ttl`` is not positive.
        """
        return Builder(ttl)

    def is_enabled(self) -> bool:
        """Return True if anything expires."""
        return self._update_type is not UpdateType.Disabled

    def get_update_type(self) -> _UpdateType:
        """Return when the expiry of a value is extended."""
        return self._update_type

    def get_state_visibility(self) -> _StateVisibility:
        """Return the result of reading an expired value."""
        return self._state_visibility

    def get_ttl_time_characteristic(self) -> _TtlTimeCharacteristic:
        """Return the clock: processing time."""
        return self._ttl_time_characteristic

    def get_ttl(self) -> Time:
        """Return the time to live."""
        return self._ttl

    def get_cleanup_strategies(self) -> _CleanupStrategies:
        """Return how expired entries are removed if they are never read."""
        return self._cleanup_strategies

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StateTtlConfig) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def __repr__(self) -> str:
        return f"StateTtlConfig<ttl={self._ttl}, update_type={self._update_type.name}, state_visibility={self._state_visibility.name}>"

    def _parts(self) -> tuple[object, ...]:
        return self._update_type, self._state_visibility, self._ttl_time_characteristic, self._ttl, self._cleanup_strategies


def _checked(ttl: Time | Duration | timedelta) -> Time:
    given: object = Time.of(ttl).to_milliseconds()
    if not isinstance(given, int) or given < 1:
        raise InvalidInputError(
            "the time to live must be at least one millisecond, and whole", field="ttl", remedy="Give it as Time, e.g. Time.hours(1)"
        )
    return Time(min(given, _TTL_MS_MAX))
