"""Savepoints of a job whose states have evolved, as they were written when state evolution came."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from statefulspark import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    Row,
    RuntimeContext,
    StateTtlConfig,
    Time,
    Types,
    ValueStateDescriptor,
)
from statefulspark.checkpoint.inspect.reader import read_state
from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.testing import ADVANCE, SAVEPOINT, UPGRADE, TestingJob

_GOLDEN = Path(__file__).parent.parent / "checkpoint" / "golden"
_OUTPUT = "user STRING, count BIGINT, tag STRING"
A, B, C = (("ada",), ("bob",), ("cyd",))
_OLD = Types.ROW_NAMED(["count"], [Types.INT()])
_NEW = Types.ROW_NAMED(["tag", "count"], [Types.STRING(), Types.LONG()], defaults={"tag": "old"})


class Visits(KeyedProcessFunction, CheckpointedFunction):
    """Counts the rows of a user; the first release with smaller types, and with a time to live for what the second keeps for ever."""

    def __init__(self, release: int) -> None:
        self.release = release

    def open(self, runtime_context: RuntimeContext) -> None:
        fading = ValueStateDescriptor("fading", Types.LONG())
        if self.release == 1:
            fading.enable_time_to_live(StateTtlConfig.new_builder(Time.seconds(10)).build())
        self.fading = runtime_context.get_state(fading)
        self.last = runtime_context.get_state(ValueStateDescriptor("last", _OLD if self.release == 1 else _NEW))
        self.by_count = runtime_context.get_map_state(
            MapStateDescriptor("by count", Types.LONG(), Types.INT() if self.release == 1 else Types.LONG())
        )

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        rows = ListStateDescriptor("rows", Types.SHORT() if self.release == 1 else Types.LONG())
        self.rows = context.get_operator_state_store().get_list_state(rows)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        pass

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        last: Any = self.last.value()
        count = 1 if last is None else last["count"] + 1
        assert self.fading.value() in (None, count - 1)
        assert all(self.by_count.get(each) in (None, each) for each in range(1, count))
        self.last.update(Row(count=count) if self.release == 1 else Row(tag="new", count=count))
        self.by_count.put(count, None if count == 1 else count)
        self.fading.update(count)
        self.rows.add(count)
        yield value.user, count, "" if self.release == 1 or last is None else last["tag"]


def job(release: int, **settings: Any) -> TestingJob:
    return TestingJob(Visits(release), "user STRING", _OUTPUT, key="user", **settings)


def write(folder: Path, backend: Any) -> str:
    """Make the savepoint: ada and bob by the first release, ada again and cyd by the second. It made the golden ones."""
    with job(1, folder=folder, backend=backend) as old:
        old.run([ADVANCE(1000), A, B, ADVANCE(1000), UPGRADE(Visits(2)), A, C, SAVEPOINT])
        return old.savepoints[0]


def check(url: str, folder: Path, backend: Any) -> None:
    assert verify(url).problems == ()
    values = {entry.key: entry.value for entry in read_state(url, "testing", "last")}
    assert values == {"ada": Row(tag="new", count=2), "bob": Row(tag="old", count=1), "cyd": Row(tag="new", count=1)}
    assert sorted(entry.value for entry in read_state(url, "testing", "rows")) == [1, 1, 1, 2]
    assert all(entry.expires_ms is None for entry in read_state(url, "testing", "fading"))
    for parallelism in (1, 3):
        with job(2, folder=folder / f"job-{parallelism}", backend=backend, parallelism=parallelism, restore_from=url) as restored:
            output = restored.run([ADVANCE(3_600_000), A, B, C])
            assert sorted(output) == [("ada", 3, "new"), ("bob", 2, "old"), ("cyd", 2, "new")]
            assert restored.state("by count") == {"ada": {1: None, 2: 2, 3: 3}, "bob": {1: None, 2: 2}, "cyd": {1: None, 2: 2}}


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_a_savepoint_of_evolved_states_restores(tmp_path: Path, backend: Any) -> None:
    """Never regenerate the golden ones. Values of both releases, None in a map, time to live switched off, operator state of two schemas."""
    check(shutil.copytree(_GOLDEN / f"savepoint-{backend}-evolved-v5", tmp_path / "savepoint").as_uri(), tmp_path, backend)


@pytest.mark.parametrize("backend", ["memory", "filesystem", "rocksdb"])
def test_a_new_savepoint_of_evolved_states_restores(tmp_path: Path, backend: Any) -> None:
    """The same with what today's code writes."""
    check(write(tmp_path / "old", backend), tmp_path, backend)
