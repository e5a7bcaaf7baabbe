"""StateTtlConfig: how long a state's value lives after it was last written (or read). PyFlink's names; processing time only."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import ClassVar

from statefulspark.errors import InvalidInputError
from statefulspark.state.times import Duration, Time


class UpdateType(Enum):
    """What prolongs a value's life."""

    Disabled = 0
    """Nothing expires."""
    OnCreateAndWrite = 1
    """Writing."""
    OnReadAndWrite = 2
    """Writing and reading."""


class StateVisibility(Enum):
    """What a read of an expired value gives."""

    ReturnExpiredIfNotCleanedUp = 0
    """The value, once: reading cleans it up."""
    NeverReturnExpired = 1
    """Nothing."""


class TtlTimeCharacteristic(Enum):
    """Which clock counts."""

    ProcessingTime = 0
    """The batch's processing time, which is fixed for the batch, so that a retry sees the same values."""


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
        update_type: What prolongs a life.
        state_visibility: What reading an expired value gives.
        cleanup_entries: Entries that each batch looks at, in passing, to delete expired ones nobody reads; 0 switches it off.
    """

    ttl_ms: int
    update_type: UpdateType = UpdateType.OnCreateAndWrite
    state_visibility: StateVisibility = StateVisibility.NeverReturnExpired
    cleanup_entries: int = 1000

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
            raise InvalidInputError("a time to live is at least one millisecond", field="ttl")
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
    _cleanup_entries: int = 1000

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
        """Set how many entries each batch looks at (at least 1); the second argument is Flink's and has no meaning per batch."""
        del run_cleanup_for_every_record
        if cleanup_size < 1:
            raise InvalidInputError("at least one entry", field="cleanup_size", remedy="Use disable_cleanup_in_background() for none.")
        self._cleanup_entries = cleanup_size
        return self

    def cleanup_full_snapshot(self) -> Builder:
        """Accept Flink's strategy for full snapshots; without effect, as in Flink for incremental ones, which all are here."""
        return self

    def cleanup_in_rocksdb_compact_filter(
        self, query_time_after_num_entries: int, periodic_compaction_time: Time | Duration | timedelta | None = None
    ) -> Builder:
        """Accept Flink's strategy for RocksDB. Expired entries go in passing with each batch (`cleanup_incrementally`), not by compaction."""
        del query_time_after_num_entries, periodic_compaction_time
        return self

    def disable_cleanup_in_background(self) -> Builder:
        """Clean up only what is read."""
        self._cleanup_entries = 0
        return self

    def build(self) -> StateTtlConfig:
        """Return the configuration."""
        return StateTtlConfig(self._ttl_ms, self._update_type, self._state_visibility, self._cleanup_entries)
