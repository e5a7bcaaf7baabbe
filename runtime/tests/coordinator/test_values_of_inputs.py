"""Inputs with ``watermark_by``: the watermark is the minimum over the values of their columns. The oracle knows the whole history of a job."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runtime.tests.coordinator.test_batch_log import ack

from statefulspark.checkpoint.catalog import StoredCheckpoint
from statefulspark.checkpoint.formats.bundle import encode_bundle
from statefulspark.checkpoint.formats.documents import decode_document, encode_document
from statefulspark.checkpoint.formats.metadata import CheckpointMetadata, SlotState, decode_metadata, encode_metadata
from statefulspark.checkpoint.formats.records import BatchRecord
from statefulspark.checkpoint.lineage.going_back import gone_back
from statefulspark.checkpoint.lineage.resumed import Lineage
from statefulspark.coordinator.batches.log import BatchLog
from statefulspark.coordinator.durable.recovery import batch_log, recovered_batch
from statefulspark.errors import InvalidInputError
from statefulspark.process.rows.value_times import InputValueTimes, value_of

END_OF_TIME = (1 << 63) - 1
MINUTE = 60_000
PARTITION = ("partition",)
BY: dict[str, tuple[tuple[str, ...], ...]] = {"u": (PARTITION,)}
Seen = dict[int, int]
"""Greatest event time by partition."""


def values(seen: Seen, columns: tuple[str, ...] = PARTITION) -> dict[str, int]:
    return {value_of(columns, (partition,)): latest for partition, latest in seen.items()}


def run(log: BatchLog, now_ms: int, *slots: Seen, uid: str = "u", drain: bool = False) -> int | None:
    """Run a batch in which each slot has seen these event times; returns its watermark."""
    log.commit_current()
    batch = log.committed + 1
    log.begin(log.next_parameters(batch, now_ms, drain=drain))
    for slot, seen in enumerate(slots):
        by_value: InputValueTimes = (values(seen), {})
        told = replace(ack(batch, uid=uid, slot=slot, seen=max(seen.values(), default=None)), event_times_by_value=by_value)
        log.check_values(told)
        assert log.acknowledge(told)
    assert log.current is not None
    return log.current.watermarks[uid]


def test_it_is_the_smallest_over_the_values_of_all_slots() -> None:
    log = BatchLog(delays_ms={"u": (10,)}, watermark_by=BY)
    run(log, 0, {0: 100, 1: 60}, {1: 70, 2: 90})
    assert run(log, 0, {1: 85}, {1: 65}) == 60
    assert run(log, 0, {0: 300}) == 75
    assert run(log, 0) == 75


def test_a_value_that_is_new_holds_the_watermark_where_it_is() -> None:
    """A partition that was added: its rows from before the watermark are late, but the watermark does not go back, nor on without it."""
    log = BatchLog(delays_ms={"u": (0,)}, watermark_by=BY)
    run(log, 0, {0: 100})
    assert run(log, 0, {0: 200, 1: 20}) == 100
    assert run(log, 0, {0: 300}) == 100
    assert run(log, 0, {1: 250}) == 100
    assert run(log, 0) == 250


def test_a_silent_value_holds_the_watermark_for_a_minute_and_counts_again_when_it_speaks() -> None:
    plain = BatchLog(delays_ms={"u": (0,)}, watermark_by=BY)
    log = BatchLog(delays_ms={"u": (0,)}, watermark_by=BY, idle_after_ms={"u": MINUTE})
    for each, last in ((plain, 50), (log, 110)):
        run(each, 0, {0: 50, 1: 50})
        marks = [run(each, 1_000 * second, {0: 50 + second}) for second in range(1, 62)]
        assert marks == [50] * 60 + [last]
    run(log, 62_000, {0: 140, 1: 120})
    assert run(log, 63_000, {0: 150}) == 120, "it counts again"
    log.timers["u", 0] = (130, None)
    assert not log.tick_due("u", 63_000)
    assert run(log, 63_000 + MINUTE) == 120
    assert log.tick_due("u", 63_000 + MINUTE)
    assert run(log, 63_001 + MINUTE) == 150, "all are idle: the greatest counts"


def test_a_drain_ends_everything_and_the_job_goes_on_after_it() -> None:
    log = BatchLog(delays_ms={"u": (10,)}, watermark_by=BY)
    run(log, 0, {0: 100, 1: 60})
    assert run(log, 0, drain=True) == END_OF_TIME
    assert run(log, 0) == 50


def test_a_step_after_it_never_passes_it() -> None:
    log = BatchLog(delays_ms={"u": (0,), "v": (None,), "w": (5,)}, after={"v": ("u",), "w": ("u",)}, watermark_by=BY | {"w": (("site",),)})
    run(log, 0, {0: 100, 1: 60})
    told = replace(ack(0, uid="w", slot=1, seen=500), event_times_by_value=(values({7: 500}, ("site",)), {}))
    assert log.acknowledge(told)
    assert run(log, 0, {1: 90}) == 60
    for expected in (60, 90):
        log.commit_current()
        assert [log.watermark(uid) for uid in ("v", "w")] == [expected, expected], "what the step emits up to there has arrived"
        assert run(log, 0) == 90


def test_a_second_input_has_values_of_its_own() -> None:
    by: dict[str, tuple[tuple[str, ...], ...]] = {"u": ((), PARTITION)}
    log = BatchLog(delays_ms={"u": (0, 10)}, watermark_by=by)
    log.begin(log.next_parameters(0, 0))
    first = replace(ack(0, seen=100), second_max_event_time_ms=90, event_times_by_value=({}, values({0: 90, 1: 40})))
    assert log.acknowledge(first)
    log.commit_current()
    assert log.watermark("u") == 30
    one_input = batch_log(_lineage(log), {"u": (0,)}, None, None, None)
    assert one_input.watermark("u") == 100


def test_other_columns_begin_anew_and_the_watermark_stays() -> None:
    """Also none. Values of a step that the job no longer has stay, as its event times do."""
    log = BatchLog(delays_ms={"u": (0,)}, watermark_by=BY)
    run(log, 0, {0: 100, 1: 60})
    run(log, 0, {0: 200})
    lineage = _lineage(log)
    assert lineage.base is not None
    assert lineage.base.metadata.batch_watermarks == {"u": 60}
    for by, expected in ((BY, 60), ({"u": (("site",),)}, 200), ({}, 200)):
        again = batch_log(lineage, {"u": (0,)}, None, None, by)
        assert again.watermark("u") == expected
        assert bool(again.event_times.values("u", 0)) == (by == BY)
    gone = batch_log(lineage, {"other": (0,)}, None, None, {})
    assert gone.event_times.by_value() == {"u": (values({0: 200, 1: 60}), {})}


def test_more_values_than_a_record_should_hold_are_refused_by_name() -> None:
    """Over all slots and batches; the batch is not acknowledged."""
    log = BatchLog(delays_ms={"u": (0,)}, watermark_by=BY)
    run(log, 0, dict.fromkeys(range(600), 1))
    run(log, 0, dict.fromkeys(range(500, 1_000), 1), dict.fromkeys(range(900, 1_024), 1))
    with pytest.raises(
        InvalidInputError, match=r"^uid 'u': watermark_by: column 'partition' has had more than 1,024 values\. Give columns"
    ):
        run(log, 0, {1_024: 1})


def test_a_job_that_goes_back_knows_the_values_of_then() -> None:
    """In checkpointing mode at-least-once: the record of the jump has those of the first record whose changelogs are missing."""
    log = BatchLog(delays_ms={"u": (0,)}, watermark_by=BY)
    files = {"offsets/0": b"", "commits/0": b""}
    run(log, 0, {0: 100, 1: 60})
    first = _record(log)
    run(log, 0, {0: 900, 1: 900})
    second = _record(log).model_copy(update={"without_changelogs": True})
    run(log, 0)
    records = tuple(each.model_copy(update={"files": encode_bundle(files)}) for each in (first, second, _record(log)))
    lineage = Lineage(attempt=1, base=None, records=records, record_keys=(), checkpoints=())
    jump = gone_back(lineage).records[-1]
    assert jump.event_times_by_value == second.event_times_by_value == {"u": (values({0: 100, 1: 60}), {})}


DELAY_MS, IDLE_MS = 7, 9


@dataclass
class History:
    """All committed batches of a job: processing time, event times by partition, watermark."""

    batches: list[tuple[int, Seen, int | None]] = field(default_factory=list)

    def watermark(self, first: int) -> int | None:
        """The watermark of the next batch, of a driver whose first new batch is ``first``."""
        if not self.batches:
            return None
        until_ms, reached = self.batches[-1][0], self.batches[-1][2]
        awake, every = [], []
        for partition in {partition for _, seen, _ in self.batches for partition in seen}:
            mark = max(seen[partition] for _, seen, _ in self.batches if partition in seen) - DELAY_MS
            every.append(mark)
            mine = self.batches[first:]
            spoke = [processed for processed, seen, _ in mine if partition in seen]
            active = max([mine[0][0] if mine else until_ms, *spoke])
            if until_ms - active < IDLE_MS:
                awake.append(mark)
        chosen = min(awake) if awake else max(every, default=None)
        if not every:
            # No row has come: no input is known, as without watermark_by.
            return reached
        return max(mark for mark in (reached, chosen) if mark is not None)


Rows = st.dictionaries(st.integers(0, 3), st.integers(0, 60), max_size=3)
Steps = st.lists(st.tuples(st.integers(0, 6), Rows, Rows, st.sampled_from(["run", "run", "run", "crash", "checkpoint"])), max_size=40)


@given(Steps)
def test_the_watermark_is_that_of_the_whole_history(steps: list[tuple[int, Seen, Seen, str]]) -> None:
    """With two slots, partitions that lag, fall silent and come back, drivers that die in a batch, and others that start from a checkpoint alone."""
    history, now_ms, first = History(), 1_000, 0
    log = BatchLog(delays_ms={"u": (DELAY_MS,)}, idle_after_ms={"u": IDLE_MS}, watermark_by=BY)
    for gap, one, other, event in steps:
        now_ms += gap
        expected = history.watermark(first)
        assert run(log, now_ms, one, other) == expected
        assert log.current is not None
        if event == "crash":
            now_ms += 7 * gap
            lineage = Lineage(attempt=1, base=None, records=_before(log), record_keys=(), checkpoints=())
            again = batch_log(lineage, {"u": (DELAY_MS,)}, None, {"u": IDLE_MS}, BY)
            recovered = recovered_batch(lineage, again)
            assert recovered == log.current
            assert recovered is not None
            again.begin(recovered)
            for told in log.acknowledgements.values():
                assert again.acknowledge(told)  # type: ignore[arg-type]
            log, first = again, len(history.batches) + 1
        seen = {partition: max(each[partition] for each in (one, other) if partition in each) for partition in {*one, *other}}
        assert log.current is not None
        history.batches.append((log.current.processing_time_ms, seen, expected))
        if event == "checkpoint":
            log.commit_current()
            log = batch_log(_lineage(log), {"u": (DELAY_MS,)}, None, {"u": IDLE_MS}, BY)
            first = len(history.batches)


def _before(log: BatchLog) -> tuple[BatchRecord, ...]:
    """The record of the running batch, after one that says what the batch before it had."""
    record = _record(log)
    if log.committed < 0:
        return (record,)
    update: dict[str, Any] = {
        "batch": log.committed,
        "previous": log.committed - 1,
        "watermarks": dict(log.watermarks),
        "processing_time_ms": log.committed_time_ms,
    }
    return record.model_copy(update=update), record


def _record(log: BatchLog) -> BatchRecord:
    current = log.current
    assert current is not None
    record = BatchRecord(
        attempt=1,
        batch=current.batch,
        previous=log.committed,
        processing_time_ms=current.processing_time_ms,
        watermarks=dict(current.watermarks),
        max_event_times=log.event_times.of_input(0),
        second_max_event_times=log.event_times.of_input(1),
        event_times_by_value=log.event_times.by_value(),
        files=b"",
    )
    return decode_document(encode_document("batch", record), "batch", BatchRecord, path="record")


def _lineage(log: BatchLog) -> Lineage:
    """A checkpoint of the last committed batch, and nothing after it."""
    log.commit_current()
    metadata = CheckpointMetadata(
        job_id="j",
        job_name="j",
        checkpoint_id=1,
        kind="checkpoint",
        attempt=1,
        batch=log.committed,
        max_parallelism=1,
        parallelism=1,
        created_ms=0,
        duration_ms=0,
        processing_time_ms=log.processing_time_ms,
        slots=(SlotState(slot=0, first=0, last=0, backend="memory", operator_batches={}),),
        watermarks=log.event_times.of_input(0),
        second_watermarks=log.event_times.of_input(1),
        event_times_by_value=log.event_times.by_value(),
        batch_watermarks=log.chained_watermarks(),
    )
    stored: Any = StoredCheckpoint(None, "checkpoint", decode_metadata(encode_metadata(metadata), path="checkpoint"))  # type: ignore[arg-type]
    return Lineage(attempt=1, base=stored, records=(), record_keys=(), checkpoints=())
