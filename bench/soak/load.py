"""The load of the memory soak: a function with many states, small and large values, random updates and scans.

Of 50 states 10 hold small values, 10 values of 0.2 to 4 KiB, 10 values of 16 to 64 KiB; 8 are lists and 12 are maps (one in ten of both kinds
with a time to live, whose clean-up scans). Each row updates a random part of its key's states and scans one of its maps.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from statefulspark import (
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    RuntimeContext,
    StateDescriptor,
    StateTtlConfig,
    Time,
    Types,
    ValueStateDescriptor,
)
from statefulspark.process.rows.step_spec import StepSpec

UID: Final = "soak"
INPUT: Final = pa.schema([("key", pa.int64()), ("seed", pa.int64())])
OUTPUT: Final = pa.schema([("key", pa.int64()), ("written", pa.int64()), ("read", pa.int64())])

_NOISE_BYTES: Final = 4 << 20
_LIST_ELEMENTS_MAX: Final = 24
_MAP_ENTRIES_MAX: Final = 40
_KINDS: Final = ("small",) * 10 + ("medium",) * 10 + ("large",) * 10 + ("list",) * 8 + ("map",) * 12
"""Of 50 states; other numbers of states repeat it."""


class ManyStates(KeyedProcessFunction):
    """Updates and scans.

    Args:
        states: How many states are registered.
        updates: How many of them a row updates.
    """

    def __init__(self, states: int = 50, updates: int = 20) -> None:
        self._count = states
        self._updates = updates

    def open(self, runtime_context: RuntimeContext) -> None:
        """Register the states."""
        # A quarter noise, the rest zeros: compresses to a quarter, as much real state does.
        self._noise = np.random.default_rng(11).bytes(_NOISE_BYTES)
        self._states: list[tuple[str, Any]] = []
        data = Types.PRIMITIVE_ARRAY(Types.BYTE())
        for number in range(self._count):
            kind = _KINDS[number % len(_KINDS)]
            name = f"{kind}-{number:02d}"
            if kind == "list":
                elements = ListStateDescriptor(name, data)
                _expire(number, elements)
                self._states.append((kind, runtime_context.get_list_state(elements)))
            elif kind == "map":
                entries = MapStateDescriptor(name, Types.INT(), data)
                _expire(number, entries)
                self._states.append((kind, runtime_context.get_map_state(entries)))
            else:
                self._states.append((kind, runtime_context.get_state(ValueStateDescriptor(name, data))))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[int, int, int]]:
        """Update some states, scan a map, and tell how many bytes that were."""
        chance = random.Random(value.seed)
        written = sum(self._update(chance, *self._states[number]) for number in chance.sample(range(self._count), self._updates))
        yield value.key, written, self._scan(chance)

    def _update(self, chance: random.Random, kind: str, state: Any) -> int:
        if kind == "list":
            elements = list(state.get())
            data = self._bytes(chance, 50, 500)
            if len(elements) < _LIST_ELEMENTS_MAX:
                state.add(data)
            else:
                state.update([data])
            return sum(map(len, elements)) + len(data) if len(elements) < _LIST_ELEMENTS_MAX else len(data)
        if kind == "map":
            puts = [(chance.randrange(_MAP_ENTRIES_MAX), self._bytes(chance, 100, 1000)) for _ in range(4)]
            for user_key, data in puts:
                state.put(user_key, data)
            return sum(len(data) for _, data in puts)
        data = self._bytes(chance, *_SIZES[kind])
        state.update(data)
        return len(data)

    def _scan(self, chance: random.Random) -> int:
        maps = [state for kind, state in self._states if kind == "map"]
        return sum(len(data) for _, data in chance.choice(maps).items()) if maps else 0

    def _bytes(self, chance: random.Random, least: int, most: int) -> bytes:
        size = chance.randint(least, most)
        start = chance.randrange(_NOISE_BYTES - size)
        return self._noise[start : start + size // 4] + bytes(size - size // 4)


_SIZES: Final = {"small": (8, 100), "medium": (200, 4 << 10), "large": (16 << 10, 64 << 10)}


def _expire(number: int, descriptor: StateDescriptor) -> None:
    if number % 10 == 0:
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).cleanup_incrementally(100).build())


def step(max_parallelism: int, states: int) -> StepSpec:
    """The one keyed step of the soak."""
    return StepSpec(
        uid=UID,
        function=ManyStates(states),
        input_schema=INPUT,
        output_schema=OUTPUT,
        key_columns=("key",),
        event_time=None,
        watermark_delay_ms=0,
        max_parallelism=max_parallelism,
    )


def key_hashes(keys: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Hashes of the keys 0 .. keys-1; any well-mixed numbers do, Spark's are not needed."""
    return np.random.default_rng(5).integers(-(1 << 62), 1 << 62, keys)


def rows(chance: np.random.Generator, keys: Any, hashes: Any, count: int) -> pa.RecordBatch:
    """Random rows of the given keys, as an exchange gets them."""
    chosen = chance.integers(0, len(keys), count)
    columns = {
        "__kh": pa.array(hashes[chosen], pa.int64()),
        "__src": pa.array(np.zeros(count, np.int32)),
        "key": pa.array(keys[chosen], pa.int64()),
        "seed": pa.array(chance.integers(0, 1 << 62, count), pa.int64()),
    }
    return pa.RecordBatch.from_pydict(columns)
