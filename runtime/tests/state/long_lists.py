"""What the tests of long lists share: a list of numbers in one slot, and how it is filled and read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from statefulspark.state.api.descriptors import ListStateDescriptor
from statefulspark.state.api.states import ListState
from statefulspark.state.api.ttl import StateTtlConfig
from statefulspark.state.backend import BatchBudget
from statefulspark.state.encoding.segments import is_segment, whole_list
from statefulspark.state.registry import StateRegistry
from statefulspark.state.store.base import Change, KeyValueStore
from statefulspark.state.times import Time
from statefulspark.state.types.types import Types
from statefulspark.testing.keyed_state import KeyedSlot

ROOM = BatchBudget(64 << 20, 64 << 20)
NO_CACHE = BatchBudget(0, 64 << 20)
TTL_MS = 1000


def slot_on(store: KeyValueStore, tmp_path: Path, budget: BatchBudget = ROOM, registry: StateRegistry | None = None) -> KeyedSlot:
    return KeyedSlot(store, tmp_path, budget, registry)


def elements(slot: KeyedSlot, *, ttl: bool = False, ttl_ms: int = TTL_MS) -> ListState[Any]:
    descriptor = ListStateDescriptor("list", Types.LONG())
    if ttl:
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(ttl_ms)).build())
    return slot.backend.list_state(descriptor)


def written(changes: Iterable[Change]) -> int:
    return sum(len(key) + len(data or b"") for key, data in changes)


def fill(slot: KeyedSlot, count: int, *, ttl: bool = False, key: str = "a") -> None:
    with slot.batch(key):
        elements(slot, ttl=ttl).update(range(count))
    slot.backend.apply_pending()


def append(slot: KeyedSlot, *values: int, ttl: bool = False, key: str = "a") -> None:
    with slot.batch(key):
        elements(slot, ttl=ttl).add_all(values)
    slot.backend.apply_pending()


def read(slot: KeyedSlot, *, ttl: bool = False, key: str = "a") -> list[int]:
    """Read in a batch that is undone."""
    slot.begin()
    slot.key(key)
    found = list(elements(slot, ttl=ttl).get())
    slot.backend.abort_batch()
    return found


def lists(slot: KeyedSlot) -> list[tuple[bytes, bytes | None]]:
    """Put all lists together, as a person sees them who looks at a checkpoint."""
    return [(key, whole_list(key, data, slot.store.scan, "list")) for key, data in slot.entries().items() if not is_segment(data)]
