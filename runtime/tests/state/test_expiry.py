"""Time to live: what expires when, what a read sees of it, and what is cleaned up."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from statefulspark.errors import InvalidInputError
from statefulspark.state.api.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
)
from statefulspark.state.api.functions import AggregateFunction
from statefulspark.state.api.ttl import Builder, StateTtlConfig
from statefulspark.state.times import Duration, Time
from statefulspark.state.types.types import Types
from statefulspark.testing.keyed_state import KeyedSlot

from .expiring_states import ttl, value_descriptor, with_ttl

MakeSlot = Callable[..., KeyedSlot]


def read_after(slot: KeyedSlot, delays_ms: list[int], read: Callable[[], Any]) -> list[Any]:
    """Read in one batch after each delay."""
    seen = []
    for delay_ms in delays_ms:
        slot.now_ms += delay_ms
        with slot.batch("a"):
            seen.append(read())
    return seen


def test_value_lives_for_its_time(slot: KeyedSlot) -> None:
    """A value is there until just before its expiry, and gone at it, from the store too."""
    state = slot.backend.value_state(value_descriptor(ttl()))
    with slot.batch("a"):
        state.update(7)
    assert read_after(slot, [0, 99, 1], state.value) == [7, 7, None]
    slot.backend.apply_pending()
    assert slot.entries() == {}


def test_writing_prolongs_life(slot: KeyedSlot) -> None:
    """Each update starts the time again, also with the same value."""
    state = slot.backend.value_state(value_descriptor(ttl()))
    for _ in range(3):
        slot.now_ms += 60
        with slot.batch("a"):
            state.update(7)
    assert read_after(slot, [99, 1], state.value) == [7, None]


def test_reading_prolongs_life_when_asked(slot: KeyedSlot) -> None:
    """With OnReadAndWrite a value that is read in time never expires."""
    state = slot.backend.value_state(value_descriptor(ttl(Builder.update_ttl_on_read_and_write)))
    with slot.batch("a"):
        state.update(7)
    assert read_after(slot, [60, 60, 60, 100], state.value) == [7, 7, 7, None]


def test_expired_value_is_shown_once_when_asked(slot: KeyedSlot) -> None:
    """With ReturnExpiredIfNotCleanedUp the first read still gives the value, and cleans it up."""
    config = ttl(lambda builder: builder.return_expired_if_not_cleaned_up().disable_cleanup_in_background())
    state = slot.backend.value_state(value_descriptor(config))
    with slot.batch("a"):
        state.update(7)
    assert read_after(slot, [500, 0], state.value) == [7, None]


def test_list_elements_expire_one_by_one(slot: KeyedSlot) -> None:
    """Each element has its own time; adding does not prolong the others'."""
    state = slot.backend.list_state(with_ttl(ListStateDescriptor("list", Types.STRING()), ttl()))
    with slot.batch("a"):
        state.add("early")
    slot.now_ms += 50
    with slot.batch("a"):
        state.add("late")
    assert read_after(slot, [0, 50, 50], lambda: list(state.get())) == [["early", "late"], ["late"], []]


def test_map_entries_expire_one_by_one(slot: KeyedSlot) -> None:
    """Each entry has its own time, in get, contains, iteration and is_empty; a None value too."""
    state = slot.backend.map_state(with_ttl(MapStateDescriptor("map", Types.STRING(), Types.LONG()), ttl()))
    with slot.batch("a"):
        state.put("early", None)
    slot.now_ms += 50
    with slot.batch("a"):
        state.put("late", 2)
    assert read_after(slot, [0, 50, 50], lambda: (dict(state.items()), state.contains("early"), state.get("late"), state.is_empty())) == [
        ({"early": None, "late": 2}, True, 2, False),
        ({"late": 2}, False, 2, False),
        ({}, False, None, True),
    ]


class Total(AggregateFunction[int, list[int], int]):
    def create_accumulator(self) -> list[int]:
        return [0]

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        accumulator[0] += value
        return accumulator

    def get_result(self, accumulator: list[int]) -> int:
        return accumulator[0]

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        return [acc_a[0] + acc_b[0]]


def test_reducing_and_aggregating_state_expire(slot: KeyedSlot) -> None:
    """What was combined expires as a whole and then starts from nothing."""
    reducing = slot.backend.reducing_state(with_ttl(ReducingStateDescriptor("max", max, Types.LONG()), ttl()))
    aggregating = slot.backend.aggregating_state(with_ttl(AggregatingStateDescriptor("total", Total(), Types.LIST(Types.LONG())), ttl()))
    for number in (5, 3):
        with slot.batch("a"):
            reducing.add(number)
            aggregating.add(number)
    assert read_after(slot, [99], lambda: (reducing.get(), aggregating.get())) == [(5, 8)]
    slot.now_ms += 1
    with slot.batch("a"):
        aggregating.add(1)
        assert (reducing.get(), aggregating.get()) == (None, 1)


def test_retry_sees_the_same_values(make_slot: MakeSlot) -> None:
    """A retry of a batch has the processing time of the first attempt, so what had expired is expired again and no more."""
    slot = make_slot()
    state = slot.backend.value_state(value_descriptor(ttl()))
    with slot.batch("a"):
        state.update(7)
    slot.now_ms += 99
    first = read_after(slot, [0], state.value)
    slot.begin(slot.backend.batch)
    slot.key("a")
    assert [state.value()] == first == [7]


def test_builder_takes_pyflinks_names() -> None:
    """The builder's methods chain as in PyFlink, and refuse what makes no sense."""
    config = (
        StateTtlConfig.new_builder(Time.hours(1))
        .set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite)
        .set_state_visibility(StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp)
        .set_ttl_time_characteristic(StateTtlConfig.TtlTimeCharacteristic.ProcessingTime)
        .use_processing_time()
        .set_ttl(timedelta(seconds=2))
        .cleanup_incrementally(10, run_cleanup_for_every_record=True)
        .build()
    )
    assert config.get_ttl() == Time(2000) == Time.seconds(2)
    with pytest.raises(InvalidInputError, match="at least one millisecond"):
        StateTtlConfig.new_builder(Time.milliseconds(0))
    with pytest.raises(InvalidInputError, match="at least one entry"):
        StateTtlConfig.new_builder(Time.days(1)).cleanup_incrementally(0)
    with pytest.raises(InvalidInputError, match="query_time_after_num_entries"):
        StateTtlConfig.new_builder(Time.days(1)).cleanup_in_rocksdb_compact_filter(-1)


_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "set_update_type": (StateTtlConfig.UpdateType.OnReadAndWrite,),
    "set_state_visibility": (StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp,),
    "set_ttl": (Time.hours(1),),
    "cleanup_incrementally": (7,),
    "cleanup_in_rocksdb_compact_filter": (1000,),
    "set_ttl_time_characteristic": (StateTtlConfig.TtlTimeCharacteristic.ProcessingTime,),
}
_DEFAULTS = {
    "use_processing_time",
    "set_ttl_time_characteristic",
    "update_ttl_on_create_and_write",
    "never_return_expired",
}
"""Choose what is chosen anyway; of the clocks there is only one, as in Flink."""


def test_no_method_of_the_builder_does_nothing() -> None:
    """Every choice is in the configuration, so that one that nothing reads cannot come in again unnoticed."""
    methods = {name for name in vars(Builder) if not name.startswith("_")} - {"build"}
    without_effect = set()
    for name in methods:
        builder = StateTtlConfig.new_builder(Time.milliseconds(100))
        getattr(builder, name)(*_ARGUMENTS.get(name, ()))
        if builder.build() == ttl():
            without_effect.add(name)
    assert without_effect == _DEFAULTS


def test_disabled_ttl_is_none(make_slot: MakeSlot) -> None:
    """UpdateType.Disabled means that nothing expires."""
    slot = make_slot()
    disabled = ttl(lambda builder: builder.set_update_type(StateTtlConfig.UpdateType.Disabled))
    state = slot.backend.value_state(value_descriptor(disabled))
    with slot.batch("a"):
        state.update(1)
    assert read_after(slot, [10**12], state.value) == [1]


def test_every_method_of_pyflinks_time_to_live_is_there(slot: KeyedSlot) -> None:
    """A configuration as PyFlink 2 writes it (Duration, clean-up while RocksDB compacts) is taken, says what it was given, and expires."""
    config = (
        StateTtlConfig.new_builder(Duration.of_millis(100))
        .update_ttl_on_create_and_write()
        .cleanup_full_snapshot()
        .cleanup_in_rocksdb_compact_filter(1000, Duration.of_days(30))
        .cleanup_in_rocksdb_compact_filter(query_time_after_num_entries=1000)
        .build()
    )
    assert config.is_enabled()
    assert config.get_update_type() is StateTtlConfig.UpdateType.OnCreateAndWrite
    assert config.get_state_visibility() is StateTtlConfig.StateVisibility.NeverReturnExpired
    assert config.get_ttl_time_characteristic() is StateTtlConfig.TtlTimeCharacteristic.ProcessingTime
    state = slot.backend.value_state(value_descriptor(config))
    with slot.batch("a"):
        state.update(7)
    assert read_after(slot, [99, 1], state.value) == [7, None]


def test_a_configuration_tells_how_it_cleans_up() -> None:
    """The strategies as PyFlink gives them: what was chosen, else the default, else None once the default is off."""
    strategies = StateTtlConfig.CleanupStrategies
    by_default = ttl().get_cleanup_strategies()
    assert (by_default.is_cleanup_in_background(), by_default.in_full_snapshot()) == (True, False)
    assert by_default.get_incremental_cleanup_strategy() == strategies.IncrementalCleanupStrategy(5, False)
    assert by_default.get_rocksdb_compact_filter_cleanup_strategy() == strategies.RocksdbCompactFilterCleanupStrategy(1000)
    off = ttl(lambda builder: builder.disable_cleanup_in_background()).get_cleanup_strategies()
    assert off.is_cleanup_in_background() is False
    assert off.get_incremental_cleanup_strategy() is None
    assert off.get_rocksdb_compact_filter_cleanup_strategy() is None
    chosen = ttl(
        lambda builder: (
            builder.cleanup_incrementally(7, True)
            .cleanup_in_rocksdb_compact_filter(5, Duration.of_hours(1))
            .cleanup_full_snapshot()
            .disable_cleanup_in_background()
        )
    ).get_cleanup_strategies()
    incremental, compact_filter = chosen.get_incremental_cleanup_strategy(), chosen.get_rocksdb_compact_filter_cleanup_strategy()
    assert incremental is not None
    assert (incremental.get_cleanup_size(), incremental.run_cleanup_for_every_record()) == (7, True)
    assert compact_filter is not None
    assert (compact_filter.get_query_time_after_num_entries(), compact_filter.get_periodic_compaction_time()) == (5, Duration.of_hours(1))
    assert chosen.in_full_snapshot()


def test_a_configuration_is_made_without_a_builder_too() -> None:
    """The constructor takes PyFlink's arguments, checks the length, and makes what the builder makes; both survive pickle."""
    kinds = StateTtlConfig.CleanupStrategies.Strategies
    parts: tuple[Any, Any, Any] = (
        StateTtlConfig.UpdateType.OnReadAndWrite,
        StateTtlConfig.StateVisibility.NeverReturnExpired,
        StateTtlConfig.TtlTimeCharacteristic.ProcessingTime,
    )
    cleanup = StateTtlConfig.CleanupStrategies({kinds.FULL_STATE_SCAN_SNAPSHOT: StateTtlConfig.CleanupStrategies.EMPTY_STRATEGY}, False)
    config = StateTtlConfig(*parts, Time.hours(1), cleanup)
    builder = StateTtlConfig.Builder(Time.hours(1))
    built = builder.update_ttl_on_read_and_write().cleanup_full_snapshot().disable_cleanup_in_background().build()
    assert config == built == pickle.loads(pickle.dumps(config))
    assert hash(config) == hash(built)
    assert config != builder.cleanup_incrementally(1, False).build()
    with pytest.raises(InvalidInputError, match="at least one millisecond"):
        StateTtlConfig(*parts, Time(0), cleanup)


@pytest.mark.parametrize(
    ("length", "milliseconds"),
    [
        (Duration.of_days(2), 172_800_000),
        (Duration.of_hours(3), 10_800_000),
        (Duration.of_minutes(4), 240_000),
        (Duration.of_seconds(5), 5_000),
        (Duration.of_millis(6), 6),
        (Duration.of_nanos(7_999_999), 7),
    ],
)
def test_duration_is_cut_to_milliseconds(length: Duration, milliseconds: int) -> None:
    """PyFlink 2 knows Duration and no Time; both mean the same here, and equal lengths are equal."""
    assert StateTtlConfig.new_builder(length).build().get_ttl().to_milliseconds() == milliseconds
    assert Duration.of_seconds(60) == Duration.of_minutes(1)
