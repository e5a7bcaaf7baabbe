"""Canonical savepoints on the local disk, and what is in them."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from statefulspark.checkpoint.catalog import open_checkpoint
from statefulspark.checkpoint.inspect.reader import opened_slot
from statefulspark.checkpoint.restore.slot import RestorePlan, restore_slot
from statefulspark.keygroups import key_group_range
from statefulspark.state.store.open_store import open_snapshot
from statefulspark.state.store.open_store import open_store as open_kind
from statefulspark.state_tables.canonical.conversion import ConvertedSavepoint, convert_to_canonical
from statefulspark.storage.open import open_store

Entries = dict[bytes, bytes]


def converted(url: str, folder: Path) -> ConvertedSavepoint:
    """Convert on the local disk."""
    return convert_to_canonical(url, folder.absolute().as_uri(), open_store=open_store)


def contents(url: str) -> Entries:
    """Every stored entry of a savepoint."""
    checkpoint = open_checkpoint(url, open_store)
    found: Entries = {}
    for slot in checkpoint.metadata.slots:
        with opened_slot(checkpoint, slot, open_snapshot) as store:
            found |= dict(store.scan(b"", b"\xff" * 8))
    return found


def restored(url: str, backend: str, parallelism: int, folder: Path) -> Entries:
    """Every entry that the slots of a job have after a restore."""
    checkpoint = open_checkpoint(url, open_store)
    groups = checkpoint.metadata.max_parallelism
    found: Entries = {}
    for number in range(parallelism):
        plan = RestorePlan(
            store=open_store((folder / "job").as_uri()),
            base=checkpoint,
            changelogs=(),
            batch=checkpoint.metadata.batch,
            key_groups=key_group_range(number, parallelism, groups),
            max_parallelism=groups,
            backend=backend,
        )
        slot = restore_slot(plan, folder / f"{backend}-{parallelism}-{number}", partial(open_kind, backend), threads=1)
        found |= dict(slot.store.scan(b"", b"\xff" * 8))
        slot.store.close()
        assert slot.uploaded == ()
    return found


def table_of(url: str, uid: str, state: str) -> pa.Table:
    """The rows of a state, read with pyarrow alone: as any program would, from the names of files."""
    root = Path(url.removeprefix("file://")) / "tables"
    named = json.loads((root.parent / "_metadata").read_text())["body"]["tables"]
    files = [root.parent / each["path"] for each in named if (each["uid"], each["state"]) == (uid, state)]
    assert files
    return pa.concat_tables(pq.read_table(each, partitioning=None) for each in sorted(files))
