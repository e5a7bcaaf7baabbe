"""A job with raw state through restarts, upgrades and rescales, and its savepoint of today."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statefulspark import (
    CheckpointedFunction,
    KeyedProcessFunction,
    RuntimeContext,
    StateInitializationContext,
    StateSnapshotContext,
    Types,
    ValueStateDescriptor,
)
from statefulspark.checkpoint.inspect.reader import read_state
from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.errors import InvalidInputError
from statefulspark.testing import (
    CHECKPOINT,
    KILL_DRIVER,
    KILL_SLOT,
    RESCALE,
    RESTORE_FROM_SAVEPOINT,
    RETRY_BATCH,
    SAVEPOINT,
    UPGRADE,
    TestingJob,
)

_GOLDEN = Path(__file__).parent.parent / "checkpoint" / "golden" / "savepoint-raw-state-v4"
_SCHEMA = {"user": pa.string()}
_OUTPUT = {"user": pa.string(), "seen": pa.int64()}
A, B, C, D, E, F = (("ada",), ("bob",), ("cyd",), ("dan",), ("eve",), ("fay",))


class Visits(KeyedProcessFunction, CheckpointedFunction):
    """Numbers the rows of each user with a dict that is raw keyed state, and keeps the slot's last row as raw operator state."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.context = runtime_context

    def initialize_state(self, context: StateInitializationContext) -> None:
        self.visits = {part.get_key_group_id(): pickle.load(part.get_stream()) for part in context.get_raw_keyed_state_inputs()}
        self.last = [part.get_stream().read() for part in context.get_raw_operator_state_inputs()]

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        group = self.visits.setdefault(self.context.get_current_key_group_index(), {})
        group[value.user] = group.get(value.user, 0) + 1
        self.last = [value.user.encode()]
        yield value.user, group[value.user]

    def snapshot_state(self, context: StateSnapshotContext) -> None:
        out = context.get_raw_keyed_operator_state_output()
        for group, visits in self.visits.items():
            out.start_new_key_group(group)
            pickle.dump(visits, out)
        partitions = context.get_raw_operator_state_output()
        for last in self.last:
            partitions.start_new_partition()
            partitions.write(last)


class Plain(KeyedProcessFunction):
    """Keeps an ordinary count and knows nothing of raw state."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        yield value.user, self.count.value()


def job(function: KeyedProcessFunction | None = None, **settings: Any) -> TestingJob:
    """A job keyed by user, with two slots unless the scenario is about another number."""
    return TestingJob(function if function is not None else Visits(), _SCHEMA, _OUTPUT, key="user", **settings)


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_streams_come_back_after_everything(backend: Any) -> None:
    """A lost slot, a lost driver with and without a checkpoint, a retry, more slots and fewer."""
    with job(backend=backend) as tried:
        slot = tried.slot_of("ada")
        rows = [
            A,
            B,
            KILL_SLOT(slot, "before_ack"),
            A,
            C,
            CHECKPOINT,
            A,
            KILL_DRIVER,
            A,
            RESCALE(3),
            A,
            B,
            RETRY_BATCH,
            RESCALE(1),
            A,
            C,
            D,
        ]
        assert sorted(tried.run(rows)) == sorted(
            [*(("ada", n) for n in range(1, 7)), ("bob", 1), ("bob", 2), ("cyd", 1), ("cyd", 2), ("dan", 1)]
        )


def test_a_release_without_raw_state_keeps_it() -> None:
    """Through batches, rescales and restarts, and a new state beside it is not taken for a renamed one."""
    with job() as upgraded:
        rows = [A, B, UPGRADE(Plain()), A, RESCALE(3), KILL_DRIVER, CHECKPOINT, KILL_DRIVER, A, UPGRADE(Visits()), A, B]
        assert sorted(upgraded.run(rows)) == [("ada", 1), ("ada", 1), ("ada", 2), ("ada", 2), ("bob", 1), ("bob", 2)]


def test_a_job_goes_back_to_a_savepoint_with_its_streams() -> None:
    """What later batches wrote is gone."""
    with job() as back:
        given = back.run([A, B, SAVEPOINT, A, A, RESTORE_FROM_SAVEPOINT(3), A])
        # The two rows after the savepoint are read again.
        assert given == [("ada", 1), ("bob", 1), ("ada", 2), ("ada", 3), ("ada", 2), ("ada", 3), ("ada", 4)]


def test_a_savepoint_with_raw_state_restores(tmp_path: Path) -> None:
    """It was written when raw state came: never regenerate it. Today's code verifies it and restores it to other numbers of slots."""
    url = shutil.copytree(_GOLDEN, tmp_path / "savepoint").as_uri()
    assert verify(url).problems == ()
    groups = [entry.key_group or 0 for entry in read_state(url, "testing", "_raw_keyed")]
    assert groups == sorted(set(groups)) != []
    assert sum(entry.value for entry in read_state(url, "testing", "_raw_operator")) == len("evefay")
    with pytest.raises(InvalidInputError, match="raw keyed state has a stream per key group"):
        list(read_state(url, "testing", "_raw_keyed", key="ada"))
    for parallelism in (1, 2, 3):
        with job(folder=tmp_path / f"job-{parallelism}", parallelism=parallelism, restore_from=url) as restored:
            assert sorted(restored.run([A, E])) == [("ada", 3), ("eve", 2)]
