"""Savepoints of a job whose list states have evolved, as they were written when lists began to evolve."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from statefulspark import KeyedProcessFunction, ListStateDescriptor, RuntimeContext, StateTtlConfig, Time, Types
from statefulspark.checkpoint.inspect.reader import read_state, state_sizes
from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.testing import ADVANCE, BATCH, SAVEPOINT, UPGRADE, TestingJob

_GOLDEN = Path(__file__).parent.parent / "checkpoint" / "golden"
_OUTPUT = "user STRING, all_count BIGINT, recent_count BIGINT"
ADA, BOB, CYD, EVE = (("ada",), ("bob",), ("cyd",), ("eve",))
_ADDED = {"ada": 150, "bob": 2, "cyd": 150, "eve": 150}
"""Numbers that a row adds: bob's lists are short."""


class Histories(KeyedProcessFunction):
    """Appends numbers to two lists of each user; the first release with a smaller type, and with a time to live for the recent ones."""

    def __init__(self, release: int) -> None:
        self.release = release

    def open(self, runtime_context: RuntimeContext) -> None:
        element = Types.INT() if self.release == 1 else Types.LONG()
        recent = ListStateDescriptor("recent", element)
        if self.release == 1:
            recent.enable_time_to_live(StateTtlConfig.new_builder(Time.seconds(10)).build())
        self.all = runtime_context.get_list_state(ListStateDescriptor("all", element))
        self.recent = runtime_context.get_list_state(recent)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        numbers, recent = list(self.all.get()), list(self.recent.get())
        assert numbers == list(range(len(numbers)))
        assert recent == numbers[len(numbers) - len(recent) :]
        added = range(len(numbers), len(numbers) + _ADDED[value.user])
        self.all.add_all(added)
        self.recent.add_all(added)
        yield value.user, len(numbers), len(recent)


def job(release: int, **settings: Any) -> TestingJob:
    return TestingJob(Histories(release), "user STRING", _OUTPUT, key="user", **settings)


def write(folder: Path, backend: Any) -> str:
    """Make the savepoint. Eve's recent numbers have expired before the upgrade; ada's lists have segments of both releases. It made the golden ones."""
    with job(1, folder=folder, backend=backend) as old:
        first = [ADVANCE(1000), EVE, BATCH, ADVANCE(11_000), ADA, BOB, BATCH, ADVANCE(1000), ADA, BATCH]
        old.run([*first, UPGRADE(Histories(2)), ADA, BATCH, ADA, CYD, SAVEPOINT])
        return old.savepoints[0]


COUNTS = {"ada": 600, "bob": 2, "cyd": 150, "eve": 150}


def check(url: str, folder: Path, backend: Any) -> None:
    assert verify(url).problems == ()
    assert {size.info.name: size.entries for size in state_sizes(url) if size.info.kind == "list"}["all"] == 4
    for name, users in (("all", COUNTS), ("recent", {user: count for user, count in COUNTS.items() if user != "eve"})):
        found = {entry.key: entry.value for entry in read_state(url, "testing", name)}
        assert found == {user: list(range(count)) for user, count in users.items()}
        assert [entry.value for entry in read_state(url, "testing", name, key="ada")] == [list(range(600))]
    for parallelism in (1, 3):
        with job(2, folder=folder / f"job-{parallelism}", backend=backend, parallelism=parallelism, restore_from=url) as restored:
            output = restored.run([ADVANCE(3_600_000), ADA, BOB, CYD, EVE, BATCH, BOB])
            assert sorted(output) == [("ada", 600, 600), ("bob", 2, 2), ("bob", 4, 4), ("cyd", 150, 150), ("eve", 150, 0)]
            assert {user: len(numbers) for user, numbers in restored.state("all").items()} == {
                user: count + (2 if user == "bob" else 1) * _ADDED[user] for user, count in COUNTS.items()
            }


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_a_savepoint_of_evolved_lists_restores(tmp_path: Path, backend: Any) -> None:
    """Never regenerate the golden ones. Short and long lists, segments of two schemas, and what had expired when time to live was switched off."""
    check(shutil.copytree(_GOLDEN / f"savepoint-{backend}-evolved-lists", tmp_path / "savepoint").as_uri(), tmp_path, backend)


@pytest.mark.parametrize("backend", ["memory", "filesystem", "rocksdb"])
def test_a_new_savepoint_of_evolved_lists_restores(tmp_path: Path, backend: Any) -> None:
    """The same with what today's code writes."""
    check(write(tmp_path / "old", backend), tmp_path, backend)
