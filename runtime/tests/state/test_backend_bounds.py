"""The memory of a backend is bounded: large batches spill, held changes and caches stay within their budgets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from statefulspark.state.api.descriptors import (
    MapStateDescriptor,
    ValueStateDescriptor,
)
from statefulspark.state.store.base import Change
from statefulspark.state.store.heap_store import HeapStore
from statefulspark.state.store.layers import Layers
from statefulspark.state.store.overlays import MemoryOverlay
from statefulspark.state.timers import EVENT_TIMERS
from statefulspark.state.types.types import Types
from statefulspark.testing.keyed_state import KeyedSlot

MakeSlot = Callable[..., KeyedSlot]
COUNT = ValueStateDescriptor("count", Types.LONG())


class TestBounds:
    def test_batch_beyond_memory_spills(self, make_slot: MakeSlot, tmp_path: Path) -> None:
        """A batch of far more changes than may be in memory goes through, with few entries in memory at any time."""
        slot = make_slot(dirty_bytes=64 << 10, cache_bytes=64 << 10)
        state = slot.backend.value_state(COUNT)
        entries = slot.backend.map_state(MapStateDescriptor("map", Types.LONG(), Types.STRING()))
        most = 0
        slot.begin()
        for number in range(6000):
            key = f"{chr(97 + number % 20)}{number}"
            slot.key(key)
            state.update((state.value() or 0) + number)
            slot.backend.timers.register(EVENT_TIMERS, number)
            if not number % 200:
                most = max(most, sum(slot.backend.entry_counts().values()))
        slot.key("a")
        entries.put_all(dict.fromkeys(range(3000), "x" * 50))
        most = max(most, sum(slot.backend.entry_counts().values()))
        slot.finish()
        assert most < 2500
        assert len(slot.changes) == len(dict(slot.changes)) == 15_000
        slot.begin()
        assert len(slot.entries()) == 15_000
        assert not any((tmp_path / "spill").glob("*"))
        slot.key("n13")
        assert state.value() == 13

    def test_held_changes_are_bounded(self, make_slot: MakeSlot, monkeypatch: pytest.MonkeyPatch) -> None:
        """While a snapshot takes long, held changes and those of the running batch share one budget; more lies in a few spills."""
        held_bytes: dict[int, int] = {}
        running_bytes = 0
        write, destroy, spill = MemoryOverlay.write, MemoryOverlay.destroy, Layers.spill

        def watched(overlay: MemoryOverlay, changes: Iterable[Change]) -> None:
            write(overlay, changes)
            held_bytes[id(overlay)] = sum(len(key) + len(value or b"") for key, value in overlay.changes(b"", b"\xff\xff"))

        def destroyed(overlay: MemoryOverlay) -> None:
            destroy(overlay)
            del held_bytes[id(overlay)]

        def spilled(layers: Layers, changes: list[Change]) -> None:
            nonlocal running_bytes
            spill(layers, changes)
            running_bytes = 0

        monkeypatch.setattr(MemoryOverlay, "write", watched)
        monkeypatch.setattr(MemoryOverlay, "destroy", destroyed)
        monkeypatch.setattr(Layers, "spill", spilled)
        slot = make_slot(dirty_bytes=64 << 10, cache_bytes=32 << 10)
        state = slot.backend.value_state(ValueStateDescriptor("text", Types.STRING()))
        held = most = together = 0
        for number in range(40):
            # Some batches fit into memory, some spill.
            slot.begin(hold=number > 0 and slot.backend.can_hold)
            running_bytes = 0
            for key in range(number % 7 * 8):
                slot.key(f"a{key}")
                running_bytes += 1100
                state.update(f"{number}-{key}" + "x" * 1100)
                most = max(most, running_bytes + sum(held_bytes.values()))
                together += bool(running_bytes and held_bytes)
            slot.finish()
            held += number > 0 and slot.backend.can_hold
            if not slot.backend.can_hold:
                slot.backend.apply_pending()
        assert together > 100
        assert 48 << 10 < most <= 64 << 10
        assert held > 5
        assert 0 < most <= 64 << 10
        slot.begin()
        newest = {key: max(number for number in range(40) if key < number % 7 * 8) for key in range(48)}
        for key, number in newest.items():
            slot.key(f"a{key}")
            assert state.value() == f"{number}-{key}" + "x" * 1100
        assert len(slot.entries()) == 48

    def test_a_batch_larger_than_the_cache_does_not_stay_in_it(self, make_slot: MakeSlot) -> None:
        """What a committed batch changed is cached only within the cache's budget, and is gone before writing it takes native memory."""
        decoded: list[int] = []

        class WatchedStore(HeapStore):
            """Notes how many decoded entries there are while it is written."""

            def write(self, changes: Iterable[Change]) -> None:
                decoded.append(slot.backend.entry_counts()["text"])
                super().write(changes)

        slot = make_slot(WatchedStore(), cache_bytes=32 << 10, dirty_bytes=1 << 20)
        state = slot.backend.value_state(ValueStateDescriptor("text", Types.STRING()))
        for count in (20, 1000):
            with slot.batch():
                for number in range(count):
                    slot.key(f"a{number}")
                    state.update("x" * 100)
        slot.begin()
        assert decoded == [20, 0]
        assert slot.backend.entry_counts()["text"] == 0
        assert len(slot.entries()) == 1000

    def test_cache_is_bounded(self, make_slot: MakeSlot) -> None:
        """Reading many keys keeps a bounded number of them, and evicted ones are read again."""
        slot = make_slot(cache_bytes=32 << 10)
        state = slot.backend.value_state(ValueStateDescriptor("text", Types.STRING()))
        keys = [f"a{number}" for number in range(3000)]
        with slot.batch():
            for key in keys:
                slot.key(key)
                state.update("x" * 20)
        for _ in range(2):
            with slot.batch():
                for key in keys:
                    slot.key(key)
                    assert state.value() == "x" * 20
            assert slot.backend.entry_counts()["text"] < 600

    def test_repeated_updates_of_one_key_do_not_spill(self, make_slot: MakeSlot) -> None:
        """Growth is estimated and counted again before anything is spilled: one value updated a thousand times is one value."""
        slot = make_slot(dirty_bytes=64 << 10)
        state = slot.backend.value_state(ValueStateDescriptor("text", Types.STRING()))
        with slot.batch("a"):
            for number in range(2000):
                state.update("x" * 100 + str(number))
            assert slot.backend.entry_counts()["text"] == 1
        assert len(slot.changes) == 1
