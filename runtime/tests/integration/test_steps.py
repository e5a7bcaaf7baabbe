"""Several keyed steps in one query, and sinks that are not files."""

from __future__ import annotations

import json

import pytest

from statefulspark.checkpoint.formats.paths import CHANGELOG_PREFIX
from statefulspark.coordinator.controls import JobState

from .oracles import by, counted, files, finals, row
from .pipelines import CARELESS
from .work import TWO_STEPS, Work


@pytest.mark.exhaustive
def test_a_second_step_is_keyed_by_what_the_first_gives_out(work: Work) -> None:
    """Both steps see every row once, in event-time order per key of their own, and keep their own state under the same name.

    The changelogs of both, of all slots, are in one object per batch.
    """
    work.script, work.entrypoint, work.checkpointing = TWO_STEPS, "chained", {"changelogInlineThreshold": "64Ki"}
    inputs = files(seed=1)
    for rows in inputs:
        work.write(rows)
    status = work.run()
    first = counted(by("account", inputs))
    second = counted((each["shop"], total) for each, (_, _, total) in zip([r for rows in inputs for r in rows], first, strict=True))
    assert work.rows() == sorted(second)
    assert work.state("by-account", "total") == finals(first, 2)
    assert work.state("by-shop", "total") == finals(second, 2)
    assert status.input_rows == 2 * len(first)
    objects = [info.key.split("/")[2:] for info in work.store().list(CHANGELOG_PREFIX)]
    assert len(objects) == len(dict(objects)), "a batch has several objects"
    assert all(name.startswith("group-") for _, name in objects)


def test_two_branches_share_the_slots_and_one_stage(work: Work) -> None:
    """A union puts both steps' tasks into one stage: partition numbers of it are no slot numbers, and a slot serves both at once."""
    work.entrypoint = "branches"
    inputs = files(seed=2)
    for rows in inputs:
        work.write(rows)
    work.run()
    accounts, shops = counted(by("account", inputs)), counted(by("shop", inputs))
    assert work.rows() == sorted(accounts + shops)
    assert work.state("accounts", "number") == finals(accounts, 1)
    assert work.state("shops", "number") == finals(shops, 1)


@pytest.mark.exhaustive
def test_a_sink_that_evaluates_its_batch_twice_changes_state_once(work: Work) -> None:
    """ForeachBatch may count, then write: each evaluation sees the same rows, and the state has seen each row once."""
    work.entrypoint = "counted_twice"
    inputs = files(seed=3)
    for rows in inputs:
        work.write(rows)
    work.run()
    parts = [json.loads(path.read_text()) for path in sorted((work.folder / "out").glob("*.json"))]
    expected = counted(by("account", inputs))
    assert [part["count"] for part in parts] == [len(part["rows"]) for part in parts]
    assert sorted(tuple(row) for part in parts for row in part["rows"]) == sorted(expected)
    assert work.state("count", "number") == finals(expected, 1)


def test_state_has_every_row_of_a_batch_whatever_the_sink_reads_of_it(work: Work) -> None:
    """Spark commits a batch although its sink has read a part of it or nothing; the rest is processed nevertheless, once."""
    work.entrypoint, work.parallelism = "careless", 4
    inputs = [
        [row(f"key-{each % (1 if number % 2 else 40)}", 1000 * number + each) for each in range(400)] for number in range(len(CARELESS))
    ]
    for rows in inputs:
        work.write(rows)
    work.run()
    assert work.state("count", "number") == finals(counted(by("account", inputs)), 1)


def test_a_query_that_ends_by_itself_ends_after_its_last_batch_is_complete(work: Work) -> None:
    """Its sink took a part of the last batch too; the job processes the rest before its last checkpoint."""
    work.entrypoint = "takes_what_is_available"
    inputs = [[row(f"key-{each % 10}", 1000 * number + each) for each in range(50)] for number in range(2)]
    for rows in inputs:
        work.write(rows)
    job = work.start()
    assert job.wait(120) is JobState.FINISHED, job.status().error
    assert work.state("count", "number") == finals(counted(by("account", inputs)), 1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("end", ["stop", "cancel"])
def test_a_batch_that_reaches_no_step_is_known_after_a_restart(work: Work, end: str) -> None:
    """Its rows are in the sink. Were it planned anew under its number, the sink would skip it with the rows that came since."""
    inputs = files(seed=31, number=2)
    keyed = [[each | {"amount": each["amount"] + 1} for each in rows] for rows in inputs]
    past = [[row(f"past-{number}-{each}", 20_000_000 + each, amount=0) for each in range(5)] for number in range(2)]
    work.entrypoint = "beside"
    work.write(keyed[0])
    job = work.start()
    work.wait_rows(40, 180)
    for number in range(2):
        work.write(past[number])
        work.wait_rows(45 + 5 * number, 180)
    savepoint: str | None = None
    if end == "stop":
        info = job.stop(savepoint=True, target=None, drain=False, timeout_s=60)
        assert info is not None
        assert info.batch == 2, "the savepoint says how far the job has come"
        savepoint = info.path
    else:
        job.cancel()
    work.write(keyed[1])
    work.run()
    expected = counted(by("account", keyed))
    beside = [(each["account"], 0, 0) for rows in past for each in rows]
    assert work.rows() == sorted([*expected, *beside])
    assert work.state("count", "total") == finals(expected, 2)
    if savepoint is not None:
        fork = Work(folder=work.folder, name="fork", out="fork", entrypoint="beside")
        fork.run(restore_from=savepoint)
        assert fork.rows() == sorted(expected[40:]), "a fork reads nothing that the savepoint contains"
