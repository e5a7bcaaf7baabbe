"""Inputs that are silent: after ``idle_after`` without rows, they hold the watermark no more. The oracle knows the whole history of a job."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runtime.tests.coordinator.test_batch_log import ack

from statefulspark.checkpoint.formats.records import BatchRecord
from statefulspark.coordinator.batches.log import BatchLog
from statefulspark.coordinator.durable.recovery import batch_log, recovered_batch

END_OF_TIME = (1 << 63) - 1
MINUTE = 60_000


def run(log: BatchLog, now_ms: int, **seen: tuple[int | None, ...]) -> dict[str, int | None]:
    """Run a batch with rows of these greatest event times per step and input; returns its watermarks."""
    log.commit_current()
    batch = log.committed + 1
    log.begin(log.next_parameters(batch, now_ms))
    for uid, latest in seen.items():
        first, second = (*latest, None)[:2]
        told = ack(batch, uid=uid, seen=first)
        fields = {name: getattr(told, name) for name in told.__slots__} | {"second_max_event_time_ms": second}
        assert log.acknowledge(cast("Any", SimpleNamespace(**fields)))
    assert log.current is not None
    return dict(log.current.watermarks)


@pytest.mark.parametrize("had_rows", [False, True])
def test_a_silent_second_input_holds_event_time_for_a_minute_and_not_for_ever(had_rows: bool) -> None:
    """Without ``idle_after``, for ever: two days of event time here."""
    for idle_after_ms, expected in (({}, None), ({"u": MINUTE}, 2_880 * MINUTE)):
        log = BatchLog(delays_ms={"u": (0, 0)}, idle_after_ms=idle_after_ms)
        run(log, 0, u=(0, 0 if had_rows else None))
        marks = [run(log, 1_000 * second, u=(48 * MINUTE * second, None))["u"] for second in range(1, 62)]
        held = 0 if had_rows else None
        assert marks[:60] == [held] * 60, "up to here, a row may have come within the minute"
        assert marks[60] == (held if expected is None else expected)


def test_a_batch_that_takes_long_makes_no_input_idle() -> None:
    log = BatchLog(delays_ms={"u": (0, 0)}, idle_after_ms={"u": MINUTE})
    for hour in range(1, 5):
        marks = run(log, 60 * MINUTE * hour, u=(100 * hour, 10 * hour))
        assert marks["u"] == (10 * (hour - 1) if hour > 1 else None)


def test_if_all_inputs_are_idle_the_greatest_counts_as_in_flink() -> None:
    log = BatchLog(delays_ms={"u": (0, 5)}, idle_after_ms={"u": MINUTE})
    run(log, 0, u=(100, 50))
    assert run(log, MINUTE - 1)["u"] == 45
    assert run(log, MINUTE)["u"] == 45, "no batch has shown yet that nothing has come in the minute"
    assert run(log, MINUTE + 1)["u"] == 100


def test_an_input_that_comes_back_counts_again_and_nothing_goes_back() -> None:
    log = BatchLog(delays_ms={"u": (0, 0)}, idle_after_ms={"u": MINUTE})
    run(log, 0, u=(100, 50))
    run(log, MINUTE, u=(200, None))
    assert run(log, MINUTE, u=(300, 60))["u"] == 200
    assert run(log, MINUTE, u=(400, 350))["u"] == 200
    assert run(log, MINUTE, u=(500, None))["u"] == 350


def test_a_step_before_that_is_idle_lets_the_watermark_pass() -> None:
    """Through a step of its own too; and what it has yet to fire comes first."""
    delays = {"a": (0,), "b": (0,), "between": (None,), "c": (None,)}
    after = {"between": ("b",), "c": ("a", "b", "between")}
    log = BatchLog(delays_ms=delays, after=after, idle_after_ms={"b": MINUTE})
    run(log, 0, a=(100,), b=(50,))
    for second in range(1, 61):
        run(log, 1_000 * second, a=(100 + second,))
    assert log.watermark("c") == 50
    log.timers["b", 0] = (40, None)
    assert run(log, 61_000, a=(161,))["c"] == 50, "it has a timer behind its watermark"
    log.timers["b", 0] = (90, None)
    assert run(log, 62_000)["c"] == 160, "a step lives one batch behind those before it"
    without = BatchLog(delays_ms=delays, after=after)
    run(without, 0, a=(100,), b=(50,))
    for second in range(1, 100):
        assert run(without, 1_000 * second, a=(100 + second,))["c"] in {None, 50}


def test_ticks_bring_the_watermark_to_the_timers_when_nothing_comes_any_more() -> None:
    """One batch shows that nothing has come, the next one fires the timer; then ticks end. A drain does not wait for the minute."""
    log = BatchLog(delays_ms={"u": (0, 0)}, idle_after_ms={"u": MINUTE})
    run(log, 0, u=(100, 50))
    log.timers["u", 0] = (80, None)
    assert not log.tick_due("u", MINUTE - 1)
    assert log.tick_due("u", MINUTE - 1, drain=True)
    assert log.tick_due("u", MINUTE)
    assert run(log, MINUTE)["u"] == 50
    assert log.tick_due("u", MINUTE + 1)
    assert run(log, MINUTE + 1)["u"] == 100
    log.timers["u", 0] = (101, None)
    assert not log.tick_due("u", 1_000 * MINUTE)


def test_a_drained_job_that_goes_on_has_the_watermark_of_its_rows() -> None:
    log = BatchLog(delays_ms={"u": (0, 0)}, idle_after_ms={"u": MINUTE}, watermarks={"u": END_OF_TIME})
    log.event_times.see("u", 100, 50)
    assert run(log, 0)["u"] == 50


# -- random histories ------------------------------------------------------------------------------------------------------

IDLE_MS = 10
DELAYS = (3, 1)


@dataclass
class Life:
    """A driver: its batches, and the number of its first new one."""

    log: BatchLog
    first: int


@dataclass
class History:
    """All committed batches of a job: processing time, greatest event time of each input, watermark."""

    batches: list[tuple[int, tuple[int | None, int | None], int | None]] = field(default_factory=list)
    records: list[BatchRecord] = field(default_factory=list)

    def watermark(self, first: int) -> int | None:
        """The watermark of the next batch, of a driver whose first new batch is ``first``."""
        if not self.batches:
            return None
        until_ms, reached = self.batches[-1][0], self.batches[-1][2]
        marks, idle = [], []
        for number, delay in enumerate(DELAYS):
            times = [seen[number] for _, seen, _ in self.batches if seen[number] is not None]
            marks.append(max(cast("list[int]", times)) - delay if times else None)
            mine = self.batches[first:]
            active = [mine[0][0]] if mine else [until_ms]
            active += [processed for processed, seen, _ in mine if seen[number] is not None]
            idle.append(until_ms - max(active) >= IDLE_MS)
        awake = [mark for mark, silent in zip(marks, idle, strict=True) if not silent]
        if None in awake:
            return reached
        chosen = min(cast("list[int]", awake)) if awake else max((mark for mark in marks if mark is not None), default=None)
        return max((mark for mark in (reached, chosen) if mark is not None), default=None)


Rows = st.tuples(st.none() | st.integers(0, 100), st.none() | st.integers(0, 100))
Steps = st.lists(st.tuples(st.integers(0, 6), Rows, st.sampled_from(["run", "run", "run", "crash", "checkpoint"])), max_size=40)


@given(Steps)
def test_the_watermark_is_that_of_the_whole_history(steps: list[tuple[int, tuple[int | None, int | None], str]]) -> None:
    """With drivers that die in a batch, which runs again with its watermark, and others that start from a checkpoint alone."""
    history, now_ms = History(), 1_000
    life = Life(BatchLog(delays_ms={"u": DELAYS}, idle_after_ms={"u": IDLE_MS}), 0)
    for gap, rows, event in steps:
        now_ms += gap
        expected = history.watermark(life.first)
        assert run(life.log, now_ms, u=rows)["u"] == expected
        history.records.append(_record(life.log))
        if event == "crash":
            now_ms += 7 * gap
            log = _restarted(life.log, history.records, base=None)
            recovered = recovered_batch(cast("Any", SimpleNamespace(records=history.records)), log)
            assert recovered is not None
            assert recovered == life.log.current
            assert recovered.watermarks["u"] == expected
            log.begin(recovered)
            told = life.log.acknowledgements["u", 0]
            assert log.acknowledge(cast("Any", told))
            life = Life(log, len(history.batches) + 1)
        assert life.log.current is not None
        history.batches.append((life.log.current.processing_time_ms, rows, expected))
        if event == "checkpoint":
            life.log.commit_current()
            times = life.log.event_times
            metadata = SimpleNamespace(
                batch=life.log.committed, watermarks=times.of_input(0), second_watermarks=times.of_input(1),
                batch_watermarks=life.log.chained_watermarks(), processed_ms=now_ms, event_times_by_value={},
            )  # fmt: skip
            history.records = []
            life = Life(_restarted(life.log, [], base=SimpleNamespace(metadata=metadata)), len(history.batches))


def _record(log: BatchLog) -> BatchRecord:
    current = log.current
    assert current is not None
    return BatchRecord(
        attempt=1,
        batch=current.batch,
        previous=log.committed,
        processing_time_ms=current.processing_time_ms,
        watermarks=dict(current.watermarks),
        max_event_times=log.event_times.of_input(0),
        second_max_event_times=log.event_times.of_input(1),
        files=b"",
    )


def _restarted(log: BatchLog, records: list[BatchRecord], *, base: Any) -> BatchLog:
    committed = records[-1].previous if records else log.committed
    lineage = SimpleNamespace(base=base, records=tuple(records), committed_batch=committed, changelogs=())
    return batch_log(cast("Any", lineage), {"u": DELAYS}, None, {"u": IDLE_MS})
