"""Writes savepoints with any entries, without a job: for benchmarks and tests of what reads them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from statefulspark.checkpoint.formats.digests import digest_file
from statefulspark.checkpoint.formats.metadata import METADATA_NAME, CheckpointMetadata, FileRef, SlotState, encode_metadata
from statefulspark.checkpoint.formats.pipeline import WIDENED, KeyColumn, Pipeline, StepKey
from statefulspark.keygroups import ranges
from statefulspark.state.encoding.entries import write_entries
from statefulspark.state.encoding.layout import StateInfo
from statefulspark.state.store.heap_store import ENTRIES_FILE
from statefulspark.state.store.rocksdb_store import RocksDBStore

UID = "orders"
NOW_MS = 1_700_000_000_000
"""Processing time of the last batch."""


def write_savepoint(
    folder: Path,
    states: Sequence[StateInfo],
    entries: Iterable[tuple[bytes, bytes]],
    *,
    backend: str = "filesystem",
    parallelism: int = 2,
    max_parallelism: int = 128,
    columns: Sequence[tuple[str, str]] = (),
) -> str:
    """Write a savepoint and return its URL.

    Args:
        folder: Of the savepoint.
        states: Its states.
        entries: Store keys and values, in any order.
        backend: ``filesystem`` or ``rocksdb``.
        parallelism: Slots.
        max_parallelism: Key groups.
        columns: Names and Spark's types of the key columns; none for a savepoint that does not say.
    """
    folder.mkdir(parents=True)
    every = sorted(entries)
    slots = []
    for number, groups in enumerate(ranges(parallelism, max_parallelism)):
        part = folder / f"slot-{number}"
        mine = [entry for entry in every if int.from_bytes(entry[0][:2], "big") in groups]
        _write_slot(part, mine, backend)
        files = tuple(_file(path, folder) for path in sorted(part.iterdir()) if path.name != "LOCK")
        slots.append(SlotState(slot=number, first=groups.first, last=groups.last, backend=backend, private=files))
    pipeline = None
    if columns:
        named = tuple(KeyColumn(name=name, type=type_) for name, type_ in columns)
        pipeline = Pipeline(steps=(StepKey(uid=UID, hashing=WIDENED, columns=named),))
    metadata = CheckpointMetadata(
        job_id="shop",
        job_name="shop",
        checkpoint_id=1,
        kind="savepoint",
        attempt=1,
        batch=7,
        max_parallelism=max_parallelism,
        parallelism=parallelism,
        created_ms=NOW_MS,
        duration_ms=1,
        states=tuple(state.to_json() for state in states),
        slots=tuple(slots),
        processing_time_ms=NOW_MS,
        pipeline=pipeline,
    )
    (folder / METADATA_NAME).write_bytes(encode_metadata(metadata))
    return folder.absolute().as_uri()


def _write_slot(part: Path, entries: Sequence[tuple[bytes, bytes]], backend: str) -> None:
    if backend == "filesystem":
        part.mkdir()
        write_entries(part / ENTRIES_FILE, entries)
        return
    work = part.with_suffix(".work")
    store = RocksDBStore(work)
    store.write(entries)
    store.begin_snapshot(part).write()
    store.close()
    shutil.rmtree(work)


def _file(path: Path, folder: Path) -> FileRef:
    digest = digest_file(path)
    return FileRef(name=path.name, path=str(path.relative_to(folder)), size_bytes=digest.size_bytes, checksum=digest.checksum)
