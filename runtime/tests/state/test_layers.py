"""The layered view against a dict: whatever is spilled, held or settled, a read sees the newest change, and the store only settled ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from statefulspark.state.store.base import Change
from statefulspark.state.store.heap_store import HeapStore
from statefulspark.state.store.layers import HELD_MAX, Layers
from statefulspark.testing.keyed_state import MemorySpill

KEYS = [bytes([0, letter]) for letter in range(5)]
CHANGES = st.dictionaries(st.sampled_from(KEYS), st.none() | st.binary(max_size=40), max_size=4).map(lambda found: list(found.items()))
STEPS = st.lists(st.tuples(st.sampled_from(["spill", "undo", "commit", "commit held", "settle held"]), CHANGES), max_size=25)


def changed(entries: dict[bytes, bytes], changes: list[Change]) -> dict[bytes, bytes]:
    """The oracle of one batch's changes."""
    merged: dict[bytes, bytes | None] = {**entries, **dict(changes)}
    return {key: value for key, value in merged.items() if value is not None}


@given(steps=STEPS, held_bytes=st.sampled_from([0, 300, 10_000]), bounds=st.tuples(st.sampled_from(KEYS), st.sampled_from(KEYS)))
def test_reads_see_the_newest_change(steps: list[tuple[str, list[Change]]], held_bytes: int, bounds: tuple[bytes, bytes]) -> None:
    """Get, get_many and scan agree with the model after every step, and the store has what was settled and nothing else."""
    spills: list[MemorySpill] = []

    def open_spill() -> MemorySpill:
        spills.append(MemorySpill())
        return spills[-1]

    base = HeapStore()
    layers = Layers(base, open_spill, held_bytes=held_bytes)
    stored: dict[bytes, bytes] = {}
    committed: dict[bytes, bytes] = {}
    running: dict[bytes, bytes] = {}
    for step, changes in steps:
        if step == "spill":
            layers.spill(changes)
            running = changed(running, changes)
        elif step == "undo":
            layers.drop_spill()
            running = committed
        elif step == "settle held":
            layers.settle_held()
            stored = committed
        else:
            # A batch that spilled has spilled all of its changes when it is committed.
            pending = [] if layers.spills else [changes]
            committed = running = running if layers.spills else changed(running, changes)
            if step == "commit held" and layers.can_hold:
                layers.hold(pending)
            else:
                layers.settle(pending)
                stored = committed
        assert [layers.get(key) for key in KEYS] == layers.get_many(KEYS) == [running.get(key) for key in KEYS]
        first, end = bounds
        assert list(layers.scan(first, end)) == [(key, running[key]) for key in KEYS if first <= key < end and key in running]
        assert dict(base.scan(b"", b"\xff")) == stored
        needed = (HELD_MAX if layers.holding else 0) + (layers.spills > 0)
        assert sum(not spill._closed for spill in spills) <= needed, "spills that nobody needs are destroyed"
