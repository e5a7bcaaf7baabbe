"""CleanupStrategies: how expired entries are removed if they are never read. PyFlink's names."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from enum import Enum
from typing import ClassVar, Final

from statefulspark.errors import InvalidInputError
from statefulspark.state.times import Duration

__all__ = ["CleanupStrategies"]

_DEFAULT_CLEANUP_SIZE: Final = 5
"""Flink's. Here the default cleanup follows the clock instead."""
_DEFAULT_QUERY_TIME_AFTER_NUM_ENTRIES: Final = 1000


class CleanupStrategies:
    """How expired entries are removed if they are never read. Only the sweep removes them; the strategies control whether and when it runs.

    Args:
        strategies: The chosen strategies. `StateTtlConfig.Builder` makes them.
        is_cleanup_in_background: True if the default strategy is on.
    """

    class Strategies(Enum):
        """The kinds of strategies."""

        FULL_STATE_SCAN_SNAPSHOT = 0
        """Full snapshots leave expired entries out."""
        INCREMENTAL_CLEANUP = 1
        """Each access to the state lets the sweep check some entries."""
        ROCKSDB_COMPACTION_FILTER = 2
        """In Flink a filter of RocksDB's compactions, here the sweep that follows the clock."""

    class CleanupStrategy(ABC):  # noqa: B024  # as in PyFlink: a common base, nothing to implement
        """One chosen strategy; equal to another one of the same class with the same settings."""

        _settings: tuple[object, ...] = ()

        def __eq__(self, other: object) -> bool:
            return type(other) is type(self) and self._settings == other._settings

        def __hash__(self) -> int:
            return hash((type(self), self._settings))

    class EmptyCleanupStrategy(CleanupStrategy):
        """A strategy without settings."""

    class IncrementalCleanupStrategy(CleanupStrategy):
        """Settings of the checks that accesses cause.

        Args:
            cleanup_size: Number of entries checked per access to the state (minimum 1).
            run_cleanup_for_every_record: True if each processed row counts as an access.

        Raises:
            InvalidInputError: ``cleanup_size`` is less than 1.
        """

        _settings: tuple[int, bool]

        def __init__(self, cleanup_size: int, run_cleanup_for_every_record: bool) -> None:
            if cleanup_size < 1:
                raise InvalidInputError("at least one entry", field="cleanup_size", remedy="Use disable_cleanup_in_background() for none.")
            self._settings = cleanup_size, run_cleanup_for_every_record

        def get_cleanup_size(self) -> int:
            """Return the number of entries checked per access to the state."""
            return self._settings[0]

        def run_cleanup_for_every_record(self) -> bool:
            """Return True if each processed row counts as an access."""
            return self._settings[1]

    class RocksdbCompactFilterCleanupStrategy(CleanupStrategy):
        """Settings of Flink's compaction filter; they have no effect here, see `StateTtlConfig.Builder.cleanup_in_rocksdb_compact_filter`.

        Args:
            query_time_after_num_entries: Number of entries after which the filter asks for the time (minimum 0).
            periodic_compaction_time: Age at which files are compacted again, 30 days by default.

        Raises:
            InvalidInputError: A setting is negative.
        """

        _settings: tuple[int, Duration]

        def __init__(self, query_time_after_num_entries: int, periodic_compaction_time: Duration | None = None) -> None:
            if query_time_after_num_entries < 0:
                raise InvalidInputError("is negative", field="query_time_after_num_entries", remedy="Give 0 or more.")
            if periodic_compaction_time is not None and periodic_compaction_time.nanos < 0:
                raise InvalidInputError("is negative", field="periodic_compaction_time", remedy="Give 0 or more.")
            self._settings = query_time_after_num_entries, periodic_compaction_time or Duration.of_days(30)

        def get_query_time_after_num_entries(self) -> int:
            """Return the number of entries."""
            return self._settings[0]

        def get_periodic_compaction_time(self) -> Duration:
            """Return the age."""
            return self._settings[1]

    EMPTY_STRATEGY: ClassVar = EmptyCleanupStrategy()

    __slots__ = ("_is_cleanup_in_background", "_strategies")

    def __init__(self, strategies: Mapping[Strategies, CleanupStrategy], is_cleanup_in_background: bool) -> None:
        self._strategies = dict(strategies)
        self._is_cleanup_in_background = is_cleanup_in_background

    def is_cleanup_in_background(self) -> bool:
        """Return True if the default strategy is on."""
        return self._is_cleanup_in_background

    def in_full_snapshot(self) -> bool:
        """Return True if full snapshots leave expired entries out."""
        return self.Strategies.FULL_STATE_SCAN_SNAPSHOT in self._strategies

    def get_incremental_cleanup_strategy(self) -> IncrementalCleanupStrategy | None:
        """Return the settings; None if `StateTtlConfig.Builder.cleanup_incrementally` was not called and the default is off."""
        chosen = self._strategies.get(self.Strategies.INCREMENTAL_CLEANUP)
        if isinstance(chosen, CleanupStrategies.IncrementalCleanupStrategy):
            return chosen
        return self.IncrementalCleanupStrategy(_DEFAULT_CLEANUP_SIZE, False) if self._is_cleanup_in_background else None

    def get_rocksdb_compact_filter_cleanup_strategy(self) -> RocksdbCompactFilterCleanupStrategy | None:
        """Return the settings of the filter; None if it was not chosen and the default strategy is off."""
        chosen = self._strategies.get(self.Strategies.ROCKSDB_COMPACTION_FILTER)
        if isinstance(chosen, CleanupStrategies.RocksdbCompactFilterCleanupStrategy):
            return chosen
        return self.RocksdbCompactFilterCleanupStrategy(_DEFAULT_QUERY_TIME_AFTER_NUM_ENTRIES) if self._is_cleanup_in_background else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CleanupStrategies) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash((frozenset(self._strategies.items()), self._is_cleanup_in_background))

    def _parts(self) -> tuple[object, ...]:
        return self._strategies, self._is_cleanup_in_background


def sweeps(cleanup: CleanupStrategies) -> bool:
    """Return True if expired entries are removed while the job runs."""
    return cleanup.get_incremental_cleanup_strategy() is not None or cleanup.get_rocksdb_compact_filter_cleanup_strategy() is not None


def chosen_pace(cleanup: CleanupStrategies) -> CleanupStrategies.IncrementalCleanupStrategy | None:
    """Return the settings of the checks that accesses cause, None if `StateTtlConfig.Builder.cleanup_incrementally` was not called."""
    without_default = CleanupStrategies(cleanup._strategies, False)  # noqa: SLF001  # the class of this module
    return without_default.get_incremental_cleanup_strategy()
