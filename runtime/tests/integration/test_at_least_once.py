"""Mode ``at-least-once`` with real Spark: the way back of a running job and of the next one, for sinks and sources of several kinds."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from statefulspark.checkpoint.formats.paths import CHANGELOG_PREFIX
from statefulspark.errors import InvalidInputError

from .oracles import by, counted, files, finals
from .work import Work, wait_until

MODE = {"mode": "at-least-once"}
COMPACTING = {"sparkConf": {"spark.sql.streaming.fileSink.log.compactInterval": "2"}}
"""The sink sums up its log every other batch, and fails if an entry is missing."""

pytestmark = pytest.mark.timeout(900)


def kill_slot(job: Any) -> None:
    """SIGKILL one of the job's Python workers."""
    os.kill(next(slot.pid for slot in job.status().slots if slot.pid), signal.SIGKILL)


def changelogs(work: Work) -> set[int]:
    """Batches that left changelogs."""
    return {int(info.key.split("/")[2]) for info in work.store().list(CHANGELOG_PREFIX)}


def test_a_slot_that_is_killed(work: Work) -> None:
    """The file sink skips numbers that it knows, and gets all rows since the checkpoint again, under new ones; a savepoint of then is whole."""
    inputs = files(seed=41, number=5, rows=20)
    expected = [counted(by("account", inputs[: number + 1])) for number in range(5)]
    work.spec, work.checkpointing = COMPACTING, MODE
    work.write(inputs[0])
    job = work.start()
    work.wait_rows(20, 200)
    wait_until(lambda: job.status().batch >= 0, 60, "the first commit")
    checkpoint = job.trigger_checkpoint(60)
    for number in (1, 2):
        work.write(inputs[number])
        work.wait_rows(20 * (number + 1), 200)
    savepoint = job.trigger_savepoint(None, 60)
    last = job.status().batch
    assert last > checkpoint.batch
    assert changelogs(work) <= {0}, "a batch after the first one left changelogs"
    kill_slot(job)
    rows = work.wait_rows(100, 200)
    assert rows == sorted(expected[2] + expected[2][20:])
    (returned,) = [event for event in job.history().events if event.kind == "return"]
    assert f"the job went back to batch {checkpoint.batch}, from {checkpoint.path}" in returned.message
    for number in (3, 4):
        work.write(inputs[number])
    rows = work.wait_rows(140, 200)
    assert rows == sorted(expected[4] + expected[2][20:])
    assert job.status().batch > last
    job.stop(savepoint=False, target=None, drain=False, timeout_s=100)
    assert work.state("count", "total") == finals(expected[4], 2)
    assert work.state("count", "total", savepoint.path) == finals(expected[2], 2)


# protocol/test_at_least_once.py has drivers of both modes in turns.
@pytest.mark.exhaustive
def test_the_mode_is_changed_after_failures_in_both_directions(work: Work) -> None:
    """Jobs that are canceled leave batches with changelogs or without: the next one resumes after the last batch that is stored, once."""
    inputs = files(seed=42, number=7, rows=20)
    expected = [counted(by("account", inputs[: number + 1])) for number in range(7)]
    work.spec = COMPACTING
    work.write(inputs[0])
    job = work.start()
    work.wait_rows(20, 200)
    wait_until(lambda: job.status().batch >= 0, 60, "the first commit")
    job.trigger_checkpoint(60)
    work.write(inputs[1])
    work.wait_rows(40, 200)
    wait_until(lambda: job.status().batch >= 1, 60, "the commit")
    job.cancel()

    # From exactly-once: a checkpoint and the changelogs of a batch after it. Nothing is repeated.
    work.checkpointing = MODE
    work.write(inputs[2])
    job = work.start()
    assert work.wait_rows(60, 200) == sorted(expected[2])
    wait_until(lambda: job.status().batch >= 2, 60, "the commit")
    work.write(inputs[3])
    work.wait_rows(80, 200)
    wait_until(lambda: job.status().batch >= 3, 60, "the commit")
    job.cancel()

    # From at-least-once: batches 2 and 3 left no changelogs, so the job goes back to batch 1. Nothing is repeated after that.
    work.checkpointing = {}
    job = work.start()
    assert work.wait_rows(120, 200) == sorted(expected[3] + expected[3][40:])
    wait_until(lambda: job.status().batch >= 6, 60, "the commit")
    job.cancel()
    work.write(inputs[4])
    job = work.start()
    assert work.wait_rows(140, 200) == sorted(expected[4] + expected[3][40:])

    # Stops take a checkpoint, also beside a savepoint, so nothing is repeated whatever the next mode is.
    for number, mode in ((5, MODE), (6, {})):
        job.stop(savepoint=mode == {}, target=None, drain=False, timeout_s=100)
        work.checkpointing = mode
        work.write(inputs[number])
        job = work.start()
        assert work.wait_rows(40 + 20 * (number + 1), 200) == sorted(expected[number] + expected[3][40:])
    job.stop(savepoint=False, target=None, drain=False, timeout_s=100)
    assert work.state("count", "total") == finals(expected[6], 2)


@pytest.mark.exhaustive
def test_a_sink_that_is_idempotent_by_number_and_a_source_that_counts(work: Work) -> None:
    """`foreachBatch` that skips numbers it has, after `rate-micro-batch`: no value is lost, and repetitions have other numbers."""
    work.entrypoint, work.checkpointing = "rates", MODE
    out = work.folder / work.out
    job = work.start()
    wait_until(lambda: len(_batches(out)) >= 2, 200, "two batches")
    checkpoint = job.trigger_checkpoint(60)
    wait_until(lambda: job.status().batch >= checkpoint.batch + 2, 200, "batches without changelogs")
    kill_slot(job)
    before = max(_batches(out))
    wait_until(lambda: max(_batches(out)) >= before + 4, 200, "batches after the way back")
    job.stop(savepoint=False, target=None, drain=False, timeout_s=100)
    given = Counter(tuple(row) for rows in _batches(out).values() for row in rows)
    last = max(number for _, number in given)
    assert set(given) == {(key, number) for key in range(3) for number in range(1, last + 1)}
    assert max(given.values()) > 1, "nothing was processed again, so nothing was tested"
    assert work.state("count", "number") == [(key, last) for key in range(3)]


@pytest.mark.parametrize(
    ("entrypoint", "says"),
    [("windows", r"Spark keys the state of its own operators by batch number"), ("deleting", r"source json .* has cleanSource set")],
)
def test_what_could_not_go_back_is_refused_before_anything_is_touched(work: Work, entrypoint: str, says: str) -> None:
    """Spark's own stateful steps, and sources that delete what they have read."""
    work.entrypoint, work.checkpointing = entrypoint, MODE
    if entrypoint == "windows":
        work.script = Path(__file__).parent / "spark_steps.py"
    work.write(files(seed=43, number=1)[0])
    with pytest.raises(InvalidInputError, match=rf"spec\.checkpointing\.mode: .*{says}"):
        work.start()
    assert not (work.folder / "storage" / "job").exists()


def _batches(folder: Path) -> dict[int, list[list[int]]]:
    """What the sink of ``rates`` has, by batch."""
    return {int(path.stem): json.loads(path.read_text()) for path in folder.glob("*.json")}
