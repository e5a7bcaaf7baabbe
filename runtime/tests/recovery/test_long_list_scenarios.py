"""Long lists through failures, rescaling and savepoints: every element once, in order, for the job and for those who read its state."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from statefulspark import KeyedProcessFunction, ListStateDescriptor, RuntimeContext, Types
from statefulspark.checkpoint.catalog import open_checkpoint
from statefulspark.checkpoint.inspect.reader import read_state
from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.storage.open import open_store
from statefulspark.testing import (
    CHECKPOINT,
    KILL_DRIVER,
    KILL_DRIVER_BEFORE_SINK_COMMIT,
    KILL_SLOT,
    RESCALE,
    RETRY_BATCH,
    SAVEPOINT,
    TestingJob,
)

_LONG = 1000
"""Elements of 8 bytes, more than one stored value holds."""


class Collect(KeyedProcessFunction):
    """Adds as many elements as a row says; negative numbers replace the list by so many. Tells what the list is of, when asked with 0."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.numbers = runtime_context.get_list_state(ListStateDescriptor("numbers", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        if value.count > 0:
            self.numbers.add_all(range(value.at, value.at + value.count))
        elif value.count < 0:
            self.numbers.update(range(-value.count))
        else:
            found = list(self.numbers.get())
            yield value.user, len(found), sum(found)


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
@pytest.mark.parametrize(
    "event", [CHECKPOINT, KILL_DRIVER, KILL_DRIVER_BEFORE_SINK_COMMIT, RETRY_BATCH, KILL_SLOT(1), RESCALE(3), RESCALE(1)], ids=str
)
def test_long_lists_survive(tmp_path: Path, event: Any, backend: Literal["memory", "rocksdb"]) -> None:
    """The event comes after each batch: one makes lists long, one appends, one replaces a list, one reads."""
    users = [f"user-{number}" for number in range(4)]
    made = [(user, 0, _LONG) for user in users]
    more = [(user, _LONG, 3) for user in users]
    with TestingJob(
        Collect(),
        "user STRING, at BIGINT, count BIGINT",
        "user STRING, count BIGINT, sum BIGINT",
        key="user",
        backend=backend,
        folder=tmp_path,
    ) as job:
        job.run([*made, event, *more, event, (users[0], 0, -2), event, *[(user, 0, 0) for user in users], SAVEPOINT])
        whole = list(range(_LONG + 3))
        expected = dict.fromkeys(users[1:], whole) | {users[0]: [0, 1]}
        assert sorted(job.output) == sorted((user, len(numbers), sum(numbers)) for user, numbers in expected.items())
        assert job.state("numbers") == expected
        savepoint = job.savepoints[-1]
        assert verify(savepoint).problems == ()
        metadata = open_checkpoint(savepoint, open_store).metadata
        assert [state.get("segmented") for state in metadata.states if state["name"] == "numbers"] == [True], "whoever took over"
        for user, numbers in expected.items():
            assert [entry.value for entry in read_state(savepoint, "testing", "numbers", key=user)] == [numbers]
