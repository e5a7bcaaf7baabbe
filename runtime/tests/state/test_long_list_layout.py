"""How long lists are stored: to the byte, in what earlier releases wrote, and what is refused as damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statefulspark.errors import CorruptDataError, IncompatibleFormatError, UnavailableError
from statefulspark.state.encoding.layout import StateInfo
from statefulspark.state.encoding.segments import NEVER_MS, ListHead, is_head, is_segment
from statefulspark.state.registry import StateRegistry
from statefulspark.state.store.base import KeyValueStore
from statefulspark.state.store.heap_store import HeapStore
from statefulspark.state.tables.lists import SEGMENT_BYTES, SHORT_BYTES, TAIL_BYTES

from .long_lists import NO_CACHE, ROOM, append, elements, fill, lists, read, slot_on, written

_STORED_BYTES = 12
"""Of a LONG in a list."""


def test_a_short_list_is_one_value_as_before(store: KeyValueStore, tmp_path: Path) -> None:
    """To the byte what earlier releases wrote, and its description is theirs too."""
    slot = slot_on(store, tmp_path)
    fill(slot, SHORT_BYTES // _STORED_BYTES)
    assert [state.segmented for state in slot.registry.states() if state.kind == "list"] == [False]
    fill(slot, 3)
    (key, data), *others = slot.entries().items()
    assert others == []
    assert key.endswith(b"\0\0\0\1a")
    assert data.hex() == "01" + "00000003" + "".join(f"00000008{number:016x}" for number in range(3))
    assert all("segmented" not in state.to_json() for state in slot.registry.states())


def test_the_layout_of_a_long_list(store: KeyValueStore, tmp_path: Path) -> None:
    """To the byte: segments of 64 KiB and more, and a head with the tail. docs/formats.md describes it."""
    slot = slot_on(store, tmp_path)
    per_segment = -(-SEGMENT_BYTES // _STORED_BYTES)
    fill(slot, 2 * per_segment)
    append(slot, 1, 2)
    (head_key, head), (first_key, first), (second_key, second) = slot.entries().items()
    assert head.hex() == "06" + f"{2:016x}" + "7fffffffffffffff" + "01" + "00000002" + f"00000008{1:016x}" + f"00000008{2:016x}"
    assert first_key == head_key + bytes(8)
    assert second_key == head_key + bytes(7) + b"\1"
    packed = [f"00000008{number:016x}" for number in range(2 * per_segment)]
    assert first.hex() == "0801" + f"{per_segment:08x}" + "".join(packed[:per_segment])
    assert second.hex() == "0801" + f"{per_segment:08x}" + "".join(packed[per_segment:])


def test_a_long_list_of_an_earlier_release_is_read_and_becomes_long_when_it_changes(store: KeyValueStore, tmp_path: Path) -> None:
    """All of its elements are in one value under the list's key."""
    old = slot_on(store, tmp_path)
    fill(old, 3)
    (key,) = old.entries()
    store.write([(key, bytes.fromhex("01" + "00002710" + "".join(f"00000008{number:016x}" for number in range(10_000))))])
    slot = slot_on(store, tmp_path, ROOM, old.registry)
    assert read(slot) == list(range(10_000))
    append(slot, 1)
    assert written(slot.changes) > 100_000
    append(slot, 2)
    assert written(slot.changes) < TAIL_BYTES + 200
    assert read(slot) == [*range(10_000), 1, 2]
    assert [state.segmented for state in slot.registry.states() if state.kind == "list"] == [True]


def test_a_list_becomes_long_only_if_the_description_says_so(tmp_path: Path) -> None:
    """A batch whose state cannot be described as segmented has written no segment, whatever the function makes of the error."""

    class Refusing(StateRegistry):
        def register(self, uid: str, name: str, kind: str, description: dict[str, Any]) -> StateInfo:
            if description.get("segmented"):
                raise UnavailableError("the coordinator does not answer")
            return super().register(uid, name, kind, description)

    slot = slot_on(HeapStore(), tmp_path, ROOM, Refusing())
    with slot.batch("a"):
        elements(slot).add_all(range(5))
        for change in (elements(slot).add_all, elements(slot).update):
            with pytest.raises(UnavailableError):
                change(range(5000))
    slot.backend.apply_pending()
    assert read(slot) == list(range(5))
    assert not any(is_head(data) or is_segment(data) for data in slot.entries().values())


@pytest.mark.parametrize("data", [b"\x06", b"\x06" + bytes(15), b"\x06" + bytes(16), b"\x06" + bytes(16) + b"\1", b"\x08\1\0\0\0\0"])
def test_a_damaged_head_is_told_by_the_name_of_its_state(tmp_path: Path, data: bytes) -> None:
    store = HeapStore()
    old = slot_on(store, tmp_path)
    fill(old, 1)
    (key,) = old.entries()
    store.write([(key, data)])
    with pytest.raises(CorruptDataError, match=r"state 'list' of uid 'step': damaged"):
        read(slot_on(store, tmp_path, ROOM, old.registry))


def test_a_version_of_a_later_release_is_refused_as_unknown(tmp_path: Path) -> None:
    """In place of a head, of a segment and of a tail: the remedy is another release, not an older checkpoint."""
    store = HeapStore()
    old = slot_on(store, tmp_path)
    fill(old, 6000)
    (key, head), (segment_key, _), *_ = old.entries().items()
    for change in [(key, b"\x09"), (key, head[:17] + b"\x09"), (segment_key, b"\x09"), (segment_key, b"\x08\x09")]:
        whole = old.entries()
        store.write([change])
        with pytest.raises(IncompatibleFormatError, match="found 9"):
            read(slot_on(store, tmp_path, ROOM, old.registry))
        store.write(whole.items())


def test_a_missing_segment_is_damage(tmp_path: Path) -> None:
    """For the slot and for those who read a checkpoint; without time to live nothing removes single segments."""
    store = HeapStore()
    slot = slot_on(store, tmp_path)
    fill(slot, 6000)
    store.write([(next(key for key, data in slot.entries().items() if is_segment(data)), None)])
    with pytest.raises(CorruptDataError, match="segments of a list are missing"):
        read(slot_on(store, tmp_path, ROOM, slot.registry))
    with pytest.raises(CorruptDataError, match="segments of a list are missing"):
        lists(slot)


def test_segments_outside_of_the_head_are_no_part_of_the_list(store: KeyValueStore, tmp_path: Path) -> None:
    """What a sweep has not reached yet, for the slot and for those who read a checkpoint."""
    slot = slot_on(store, tmp_path)
    fill(slot, 3000)
    (key, head), (_, segment) = slot.entries().items()
    assert ListHead.unpack(head, "the test")[:2] == (1, NEVER_MS)
    store.write([(key + bytes(7) + b"\1", segment), (key + bytes(7) + b"\2", segment)])
    assert read(slot_on(store, tmp_path, NO_CACHE, slot.registry)) == list(range(3000))
    assert lists(slot) == [(key, segment[1:])]
    store.write([(key, None)])
    assert lists(slot) == []
