"""Timers fire when nothing arrives any more."""

from __future__ import annotations

import logging
import time

import pytest

from statefulspark.coordinator.controls import JobState

from .oracles import START_MS, row
from .work import TIMERS, Work


def test_timers_fire_while_the_query_is_idle_and_a_drained_job_has_none_left(work: Work) -> None:
    """Event time: once the watermark of the last batch allows it. Processing time: soon after it is due. Drain: all of event time."""
    work.script, work.entrypoint = TIMERS, "alarms"
    work.write([row("a", 0, amount=0), row("b", 500, amount=0)])
    job = work.start()
    given = {("a", "row", START_MS), ("b", "row", START_MS + 500)}
    assert set(work.wait_rows(2)) == given
    work.write([row("c", 10_000, amount=3_000)])
    rows = work.wait_rows(6)
    seen_ms = int(time.time() * 1000)
    due_ms = next(at for key, kind, at in rows if (key, kind) == ("c", "PROCESSING_TIME"))
    logging.getLogger(__name__).info("processing-time timer: its row was in the sink %d ms after it was due", seen_ms - due_ms)
    assert 0 <= seen_ms - due_ms < 30_000
    given |= {(key, "PROCESSING_TIME", at) for key, kind, at in rows if kind == "PROCESSING_TIME"}
    given |= {("a", "EVENT_TIME", START_MS + 1000), ("b", "EVENT_TIME", START_MS + 1500), ("c", "row", START_MS + 10_000)}
    assert set(rows) == given

    info = job.stop(savepoint=True, target=None, drain=True, timeout_s=60)

    assert job.status().state is JobState.FINISHED
    assert set(work.rows()) == given | {("c", "EVENT_TIME", START_MS + 11_000)}
    assert info is not None
    assert work.state("alarm", "event-timers", info.path) == []
    assert work.state("alarm", "last", info.path) == [("a", START_MS), ("b", START_MS + 500), ("c", START_MS + 10_000)]


@pytest.mark.exhaustive
def test_a_processing_time_timer_that_came_due_while_the_job_was_down_fires_when_it_is_back(work: Work) -> None:
    """No row is needed, and a job that shall run until it is idle does not end before its slots have told their timers."""
    work.script, work.entrypoint = TIMERS, "alarms"
    work.write([row("a", 0, amount=3_600_000)])
    work.run()
    ((_, due_ms),) = work.state("alarm", "processing-timers")
    assert len(work.rows()) == 1
    work.shift_clock(hours=2)
    work.run()
    assert work.rows() == [("a", "PROCESSING_TIME", due_ms), ("a", "row", START_MS)]
    assert work.state("alarm", "processing-timers") == []
