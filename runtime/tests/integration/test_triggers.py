"""Queries that end by themselves: ``trigger(availableNow=True)``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from runtime.tests.depth import left_to_test_all

from statefulspark.coordinator.controls import JobState

from .oracles import START_MS, by, counted, files, finals, row
from .work import TIMERS, TWO_STEPS, Work, wait_until


def _run_to_the_end(work: Work) -> int:
    """Run a job that ends by itself; the batch of its last checkpoint."""
    job = work.start()
    job.wait(120)
    status = job.status()
    assert status.state is JobState.FINISHED, status.error
    assert status.last_checkpoint is not None
    assert status.last_checkpoint.batch == status.batch
    return status.batch


def _batches(folder: Path) -> dict[int, list[tuple[Any, ...]]]:
    return {int(path.stem): [tuple(row) for row in json.loads(path.read_text())] for path in sorted(folder.glob("*.json"))}


def test_available_now_goes_on_where_the_last_run_ended(work: Work) -> None:
    """Each run takes all files, in batches with new numbers through both steps, lets the timers fire that are due, and ends with a checkpoint."""
    work.script, work.entrypoint = TWO_STEPS, "available_now"
    inputs = files(seed=41, number=5)
    seen: list[tuple[Any, ...]] = []
    last = -1
    for run in (inputs[:3], inputs[3:]):
        for rows in run:
            work.write(rows)
        end = _run_to_the_end(work)
        batches = _batches(work.folder / "out")
        assert end >= last + len(run)
        assert set(batches) == set(range(end + 1))
        seen, last = [row for rows in batches.values() for row in rows], end
    first = counted(by("account", inputs))
    flat = [each for rows in inputs for each in rows]
    second = counted((each["shop"], total) for each, (_, _, total) in zip(flat, first, strict=True))
    assert sorted(row for row in seen if row[0] != "timer") == sorted(second)
    assert work.state("by-account", "total") == finals(first, 2)
    # Every timer is set for the event time of a row, and the watermark is the latest of them.
    assert sum(row[1] for row in seen if row[0] == "timer") == len({(each["shop"], each["at"]) for each in flat})
    assert work.state("by-shop", "event-timers") == []


@pytest.mark.exhaustive
def test_available_now_after_a_driver_was_lost(work: Work) -> None:
    """The batch that was running runs again under its number, and the same run goes on with all that is there."""
    work.script, work.entrypoint = TWO_STEPS, "available_now"
    inputs = files(seed=42, number=4)
    for rows in inputs:
        work.write(rows)
    job = work.start()
    wait_until((work.folder / "out" / "0000.json").exists, 240, "a batch is in the sink")
    job.cancel()  # no checkpoint: as if the driver were lost
    end = _run_to_the_end(work)
    batches = _batches(work.folder / "out")
    assert set(batches) == set(range(end + 1))
    first = counted(by("account", inputs))
    flat = [each for rows in inputs for each in rows]
    second = counted((each["shop"], total) for each, (_, _, total) in zip(flat, first, strict=True))
    assert sorted(row for rows in batches.values() for row in rows if row[0] != "timer") == sorted(second)


@pytest.mark.parametrize("drain", [*left_to_test_all([False]), True])
def test_a_query_that_ends_by_itself_is_drained_if_the_job_is(work: Work, *, drain: bool) -> None:
    """The timer after the last row is beyond every watermark: only ``--until-idle --drain`` fires it, which takes another query."""
    work.script, work.entrypoint = TIMERS, "alarms_now"
    work.write([row("a", 0, amount=0), row("b", 5_000, amount=0)])
    job = work.start(until_idle=True, drain=drain)
    job.wait(120)
    status = job.status()
    assert status.state is JobState.FINISHED, status.error
    rows = {("a", "row", START_MS), ("b", "row", START_MS + 5_000), ("a", "EVENT_TIME", START_MS + 1_000)}
    left = ("b", "EVENT_TIME", START_MS + 6_000)
    assert set(work.rows()) == (rows | {left} if drain else rows)
    assert len(work.rows()) == 3 + drain
    assert len(work.state("alarm", "event-timers")) == 1 - drain
    assert status.last_checkpoint is not None
    assert status.last_checkpoint.batch == status.batch
