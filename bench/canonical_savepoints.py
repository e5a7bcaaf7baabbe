"""How fast a canonical savepoint is written and read, beside Parquet itself with the same rows and settings.

    .venv/bin/python bench/canonical_savepoints.py [--rounds 3]

Ours is a conversion of a savepoint of two slots on RocksDB, which writes every entry twice: as a table, and as the bytes that a restore needs.
Parquet's part is pyarrow, which writes and reads a table of equal rows that is in memory.
"""

from __future__ import annotations

import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from machine import Clock, load
from results import Load, Result, Table, Target, arguments_of, keep
from state_snapshots import UID, write_savepoint

from statefulspark import state_tables
from statefulspark.state.encoding.layout import StateInfo, store_key
from statefulspark.state.types.types import Types
from statefulspark.state_tables.canonical.conversion import convert_to_canonical
from statefulspark.storage.open import open_store

_GROUPS = 128
_WANTED = 0.5
_STATE = "kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """One kind of rows."""

    name: str
    entries: int
    value_bytes: int | None
    """None for a LONG."""

    def info(self) -> StateInfo:
        """The state that has them."""
        value = Types.LONG() if self.value_bytes is None else Types.PRIMITIVE_ARRAY(Types.BYTE())
        return StateInfo(state_id=1, uid=UID, name=_STATE, kind="value", key_type=[Types.STRING().to_json()], type=value.to_json())

    def stored(self) -> Iterator[tuple[bytes, bytes]]:
        """Store keys and values."""
        chance = random.Random(1)
        for number in range(self.entries):
            payload = Types.LONG().encode(number) if self.value_bytes is None else chance.randbytes(self.value_bytes)
            yield store_key(number % _GROUPS, 1, b"user-%09d" % number), b"\1" + payload


def measure(rows: Rows, work: Path, rounds: int) -> dict[str, list[float]]:
    """Seconds of each way, in turns."""
    origin = write_savepoint(work / "origin", [rows.info()], rows.stored(), backend="rocksdb", max_parallelism=_GROUPS)
    table = read(origin)
    ours, theirs = work / "ours", work / "theirs.parquet"
    made: list[str] = []

    def convert() -> int:
        made.append(convert_to_canonical(origin, ours.as_uri(), open_store=open_store).url)
        return rows.entries

    def write() -> int:
        pq.write_table(table, theirs, compression="zstd")
        return rows.entries

    ways: dict[str, Callable[[], int]] = {
        "canonical, write": convert,
        "Parquet, write": write,
        "canonical, read": lambda: int(read(made[-1]).num_rows),
        "Parquet, read": lambda: int(pq.read_table(theirs).num_rows),
    }
    measured: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, way in ways.items():
            if name.endswith("read"):
                way()  # else the first reader pays for the memory that the second one uses again
            began = time.perf_counter()
            if way() != rows.entries:
                raise SystemExit(f"{name}: other rows than were written")
            measured.setdefault(name, []).append(time.perf_counter() - began)
            print(f"{rows.name}, {name}: {measured[name][-1]:.2f} s", file=sys.stderr, flush=True)
        if not _sorted(read(made[-1])).equals(_sorted(table)):
            raise SystemExit("the canonical savepoint has other rows than its origin")
        shutil.rmtree(ours)
    return measured


def read(url: str) -> pa.Table:
    """Read the state of a savepoint."""
    return state_tables.read_arrow(url, UID, _STATE)


def _sorted(table: pa.Table) -> pa.Table:
    return table.sort_by("key").combine_chunks()


def main() -> None:
    """Measure small rows and large ones."""
    parser = arguments_of(__doc__)
    parser.add_argument("--entries", type=int, default=2_000_000, help="small rows; of the large ones there are a tenth")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    clock = Clock()
    kinds = (
        Rows(name="a LONG", entries=options.entries, value_bytes=None),
        Rows(name="1 KiB of bytes", entries=options.entries // 10, value_bytes=1024),
    )
    loads: list[Load] = []
    targets: list[Target] = []
    shown: list[tuple[str, ...]] = []
    figures: dict[str, Any] = {}
    for rows in kinds:
        loads.append(load(rows.name))
        with tempfile.TemporaryDirectory(prefix="bench-canonical-") as work:
            seconds = measure(rows, Path(work), options.rounds)
        figures[rows.name] = seconds
        median = {name: statistics.median(values) for name, values in seconds.items()}
        for verb in ("write", "read"):
            ratio = median[f"Parquet, {verb}"] / median[f"canonical, {verb}"]
            targets.append(
                Target(
                    what=f"canonical savepoint, {rows.name}: {verb}, by Parquet's speed",
                    wanted=_WANTED,
                    measured=ratio,
                    unit="x",
                    at_least=True,
                )
            )
        shown += [
            (rows.name, name, f"{median[name]:.2f}", f"{rows.entries / median[name]:,.0f}", f"{min(values):.2f} - {max(values):.2f}")
            for name, values in seconds.items()
        ]
    result = Result(
        **clock.header(__file__),
        title="Canonical savepoints",
        about=(
            f"{kinds[0].entries:,} entries with text keys and a `LONG`, and {kinds[1].entries:,} with 1 KiB of random bytes, in two slots on RocksDB. `canonical, "
            "write` is the conversion of that savepoint on one machine, one slot after the other: each entry is read from RocksDB, and written as a row of a "
            f"table and once more as it is stored. Medians of {options.rounds}, in turns; before each read that counts comes one that does not."
        ),
        loads=tuple(loads),
        targets=tuple(targets),
        tables=(Table(columns=("value", "what", "seconds", "rows/s", "range"), rows=tuple(shown)),),
        figures=figures,
    )
    keep(result, options.result)


if __name__ == "__main__":
    main()
