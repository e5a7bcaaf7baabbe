"""Which table files pin their index and filter blocks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from statefulspark.state.store.metadata_pinning import Metadata, MetadataPinning, TableFile


def _file(number: int, size: int = 100, entries: int = 10) -> TableFile:
    return TableFile(f"{number}.sst", size, entries)


def test_files_pin_until_the_room_is_used_up_and_again_when_they_are_gone() -> None:
    """Files opened while there was room stay pinned; those opened afterwards are not; compacting the pinned ones away makes room."""
    pins = MetadataPinning(pinning=True)
    assert not pins.update([_file(1), _file(2)], Metadata(20, 80), capacity_bytes=150)
    assert (pins.pinning, pins.pinned_bytes) == (True, 100)
    assert pins.update([_file(1), _file(2), _file(3)], Metadata(30, 120), capacity_bytes=150)
    assert (pins.pinning, pins.pinned_bytes) == (False, 150)
    assert not pins.update([_file(number) for number in range(1, 7)], Metadata(60, 240), capacity_bytes=150)
    assert pins.pinned_bytes == 150, "files 4 to 6 came too late"
    assert pins.update([_file(number) for number in range(2, 7)], Metadata(50, 200), capacity_bytes=150)
    assert (pins.pinning, pins.pinned_bytes) == (True, 100)
    assert not pins.update([_file(number) for number in range(2, 8)], Metadata(60, 240), capacity_bytes=160)
    assert pins.pinned_bytes == 150, "file 7 is pinned, 4 to 6 are still not"


def test_near_the_room_nothing_changes() -> None:
    """Between nine tenths and all of the room the last decision stands: each change costs RocksDB an options file."""
    pins = MetadataPinning(pinning=False)
    pins.update([_file(1)], Metadata(0, 0), capacity_bytes=100)
    assert pins.pinning
    assert pins.update([_file(1), _file(2)], Metadata(0, 200), capacity_bytes=100)
    assert not pins.update([_file(1), _file(2)], Metadata(0, 190), capacity_bytes=100), "95 of 100"
    assert not pins.pinning


def test_index_goes_by_size_and_filter_by_entries() -> None:
    """A file of large values has a small filter."""
    pins = MetadataPinning(pinning=True)
    pins.update([_file(1, size=300, entries=10)], Metadata(30, 10), capacity_bytes=1)
    assert not pins.pinning
    pins.update([_file(1, size=300, entries=10), _file(2, size=100, entries=90)], Metadata(40, 100), capacity_bytes=1)
    assert pins.pinned_bytes == 30 + 10


@given(
    steps=st.lists(st.tuples(st.sets(st.integers(0, 9)), st.integers(1, 4)), max_size=30),
    room=st.integers(0, 2000),
    pinning=st.booleans(),
)
def test_it_never_pins_more_than_one_step_beyond_the_room(steps: list[tuple[set[int], int]], room: int, pinning: bool) -> None:
    """Whatever is flushed and compacted away: no file is pinned that appeared when the room was used up."""
    pins = MetadataPinning(pinning=pinning and room > 0)
    live: dict[int, bool] = {}
    number = 0
    for gone, new in steps:
        keys = list(live)
        for index in gone:
            if index < len(keys):
                del live[keys[index]]
        for _ in range(new):
            live[number] = pins.pinning
            number += 1
        pins.update([_file(each) for each in live], Metadata(10 * len(live), 90 * len(live)), room)
        assert pins.pinned_bytes == 100 * sum(live.values())
        assert not (pins.pinning and pins.pinned_bytes >= room)
