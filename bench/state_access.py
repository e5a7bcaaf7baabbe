"""What a state access costs: microseconds per row for value() + update() of a LONG, with everything that belongs to it.

One row per key, rows sorted by key, batches of half of the keys in turn, on RocksDB. Parts: `prefetch` (multi-get of what is not cached),
`rows` (set_current_key, value, update), `finish` (encode), `apply` (write to the store). Once with a cache that holds all keys, once
with one that holds no more than is prefetched, so that each value comes from RocksDB. Times are CPU time of the thread, which other work
on the machine disturbs little.

    .venv/bin/python bench/state_access.py [--keys 100000] [--rounds 6] [--profile]
"""

from __future__ import annotations

import cProfile
import pstats
import statistics
import tempfile
from pathlib import Path
from time import thread_time

from machine import Clock, load
from results import Result, Table, arguments_of, keep

from statefulspark.keygroups import KeyGroupRange
from statefulspark.state.api.descriptors import ValueStateDescriptor
from statefulspark.state.backend import BatchBudget, KeyedStateBackend
from statefulspark.state.encoding.keys import KeyCodec
from statefulspark.state.registry import StateRegistry
from statefulspark.state.store.rocksdb_store import RocksDBStore
from statefulspark.state.types.types import Types

PREFETCH_KEYS = 4096
PARTS = ("prefetch", "rows", "finish", "apply")

Key = tuple[int, str, bytes]


def run_batch(backend: KeyedStateBackend, batch: int, keys: list[Key]) -> dict[str, float]:
    """Run one batch with a row per key; return CPU seconds of this thread per part."""
    state = backend.value_state(ValueStateDescriptor("count", Types.LONG()))
    spent = dict.fromkeys(PARTS, 0.0)
    started = thread_time()
    backend.begin_batch(batch, processing_time_ms=0)
    spent["apply"] = thread_time() - started
    for start in range(0, len(keys), PREFETCH_KEYS):
        chunk = keys[start : start + PREFETCH_KEYS]
        started = thread_time()
        backend.prefetch(backend.idents.of_all([(key_group, key_bytes) for key_group, _, key_bytes in chunk]))
        fetched = thread_time()
        for key_group, key, key_bytes in chunk:
            backend.set_current_key(key_group, key, key_bytes)
            state.update((state.value() or 0) + 1)
        spent["prefetch"] += fetched - started
        spent["rows"] += thread_time() - fetched
    started = thread_time()
    backend.finish_batch(lambda _changes: None)
    spent["finish"] = thread_time() - started
    return spent


def measure(cache_bytes: int, keys: list[Key], rounds: int) -> dict[str, float]:
    """Return the median microseconds per row of each part, after one round over all keys that is not counted."""
    with tempfile.TemporaryDirectory() as directory:
        store = RocksDBStore(Path(directory) / "store")
        backend = KeyedStateBackend(
            store,
            StateRegistry(),
            uid="bench",
            key_codec=KeyCodec([Types.STRING()]),
            key_groups=KeyGroupRange(0, 127),
            budget=BatchBudget(cache_bytes=cache_bytes),
            spill_directory=Path(directory) / "spill",
        )
        halves = [keys[::2], keys[1::2]]
        spent = [run_batch(backend, batch, halves[batch % 2]) for batch in range(2 * rounds + 2)]
        store.close()
    return {part: statistics.median(each[part] for each in spent[2:]) / len(halves[0]) * 1e6 for part in PARTS}


def main() -> None:
    """Measure with a cache that holds all keys and with one that holds few."""
    parser = arguments_of(__doc__)
    parser.add_argument("--keys", type=int, default=100_000, help="distinct keys; a batch has half of them")
    parser.add_argument("--rounds", type=int, default=6, help="rounds over all keys that are counted")
    parser.add_argument("--profile", action="store_true", help="print where the time goes, by function")
    options = parser.parse_args()
    clock = Clock()
    texts = [f"key{number:07d}" for number in range(options.keys)]
    keys = sorted((number % 128, text, text.encode()) for number, text in enumerate(texts))
    profile = cProfile.Profile()
    loads = []
    costs: dict[str, dict[str, float]] = {}
    for name, cache_bytes in (("all keys cached", 512 << 20), ("few keys cached", 4 << 20)):
        loads.append(load(name))
        if options.profile:
            profile.enable()
        costs[name] = measure(cache_bytes, keys, options.rounds)
        profile.disable()
    rows = [(name, *(f"{cost[part]:.2f}" for part in PARTS), f"{sum(cost.values()):.2f}") for name, cost in costs.items()]
    result = Result(
        **clock.header(__file__),
        title="State access",
        about=(
            f"CPU microseconds of the slot's thread per row for `value()` and `update()` of a `LONG` on RocksDB, with all that belongs to them; "
            f"{options.keys:,} keys, a row per key, half of the keys in a batch. `prefetch` reads what is not cached, `rows` is the user's part, "
            "`finish` encodes, `apply` writes to the store when the batch has been committed."
        ),
        loads=tuple(loads),
        tables=(Table(columns=("", *PARTS, "all"), rows=tuple(rows)),),
        figures={"microseconds_per_row": costs},
    )
    keep(result, options.result)
    if options.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(15)


if __name__ == "__main__":
    main()
