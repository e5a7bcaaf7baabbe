"""Which changelogs of a batch belong together, if slots got the rows of a broadcast stream in different orders."""

from __future__ import annotations

from pathlib import Path

import pytest

from statefulspark.checkpoint.formats.changelog import ChangelogHeader, ChangelogWriter
from statefulspark.checkpoint.formats.paths import changelog_key
from statefulspark.checkpoint.formats.records import BatchRecord
from statefulspark.checkpoint.lineage.lineage import Lineage, write_record
from statefulspark.coordinator.batches.changelogs import BatchChangelogs
from statefulspark.storage.open import open_store

SLOTS = 2
KEY_GROUPS = 8

Written = tuple[int, str | None, int]
"""Slot, order of the broadcast rows, and number of the query."""


@pytest.mark.parametrize(
    ("written", "complete", "committed"),
    [
        ([(0, "a", 0), (1, "a", 0)], "a", "a"),
        ([(0, "a", 0), (1, "b", 0)], None, None),
        ([(0, "a", 0), (1, "b", 0), (1, "a", 0)], "a", "a"),
        # Of two orders that all slots have processed, the later query's counts, also if slots have gone on in the first one since.
        ([(0, "a", 0), (1, "a", 0), (0, "b", 1), (1, "b", 1)], "b", "b"),
        ([(0, "b", 2), (1, "b", 2), (0, "a", 3), (1, "a", 3)], "a", "a"),
        ([(0, "a", 0), (1, "a", 0), (0, "b", 1), (1, "b", 1), (0, "a", 2)], "b", "b"),
        # One query in two orders, or with rows and without: storage does not say which the coordinator took.
        ([(0, "a", 0), (1, "a", 0), (0, "b", 0), (1, "b", 0)], None, None),
        ([(0, None, 0), (1, None, 0), (0, "b", 0), (1, "b", 0)], None, None),
        ([(0, None, 0), (1, "b", 0)], None, None),
    ],
)
def test_changelogs_of_one_order_count(tmp_path: Path, written: list[Written], complete: str | None, committed: str | None) -> None:
    """Of each slot one; a batch that is committed but not known to be complete gets some of one order, never of two."""
    store = open_store(f"file://{tmp_path}/job")
    lineage = Lineage(attempt=1, base=None, records=(), record_keys=(), checkpoints=())
    orders: dict[str, str | None] = {}
    for number, (slot, order, query) in enumerate(written):
        half = KEY_GROUPS // SLOTS
        rows = {} if order is None else {"broadcast_digest": order * 64, "broadcast_query": query}
        groups = {"first_key_group": slot * half, "last_key_group": slot * half + half - 1}
        header = ChangelogHeader.model_validate({"uid": "u", "slot": slot, "batch": 0, "epoch": 1, **groups, **rows})
        path = tmp_path / str(number)
        ChangelogWriter(path, header).close()
        key = changelog_key(1, 0, "u", slot, 1)
        store.put_file(key, path)
        orders[key] = order
    record = BatchRecord(
        attempt=1, batch=0, previous=-1, processing_time_ms=0, watermarks={"u": None}, max_event_times={}, acks=(), files=b""
    )
    write_record(store, record, lambda: None)
    changelogs = BatchChangelogs(store, lineage, KEY_GROUPS)
    found = changelogs.complete(0)
    assert (found is not None) == (complete is not None)
    if found is not None:
        assert sorted((ref.slot, orders[ref.key]) for ref in found.refs) == [(slot, complete) for slot in range(SLOTS)]
    taken = [orders[ref.key] for ref in changelogs.of_committed(0)]
    assert len(set(taken)) == 1
    assert committed is None or taken == [committed] * SLOTS
