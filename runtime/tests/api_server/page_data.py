"""A job with a past for the status page: three hours of flights with a slow sink, a failing function, a rescale and failed checkpoints."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import Any

from runtime.tests.api_server.fake_job import FakeJob

from statefulspark.api_server.models.history import HistoryModel
from statefulspark.api_server.models.log import LogRecordModel
from statefulspark.coordinator.controls import CheckpointInfo, JobStatus
from statefulspark.coordinator.history import HistoryEvent, HistorySample, HistorySnapshot, JobHistory
from statefulspark.coordinator.reported_metrics import PartitionBacklog, SourceStatus, UserMetricStatus
from statefulspark.coordinator.slots.status import BusyKeyGroup, SlotMemory, SlotSpread, StepSkew
from statefulspark.job.history.samples import thinned
from statefulspark.job.metrics.sources import lag_of
from statefulspark.logs.tail import LogTail

MIB = 1 << 20
MARKUP = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
"""What a hostile job says in every text that it may choose."""
TRACEBACK = """the user's function raised ValueError in uid 'turnaround', key group 17
Traceback (most recent call last):
  File "/app/flights.py", line 42, in process_element
    delay = int(row["dep_delay"])
ValueError: invalid literal for int() with base 10: 'NA'"""


class BusyJob(FakeJob):
    """Reads more rows each time it is asked for its status, as the page does every two seconds."""

    def status(self) -> JobStatus:
        self.change(input_rows=super().status().input_rows + 60_000)
        return super().status()


def eventful(job: FakeJob, *, now_ms: int, uid: str = "turnaround", message: str = TRACEBACK) -> FakeJob:
    """Give ``job`` a past that ends at ``now_ms``."""
    parallelism = 4
    samples = [_sample(now_ms - (2160 - i) * 5000, i, uid) for i in range(2160)]
    job.past = JobHistory(samples=tuple(thinned(samples, 600)), snapshots=_snapshots(now_ms), events=_events(now_ms, message))
    for number in (178, 179):
        job.keep(
            CheckpointInfo(
                id=number, path=f"s3://state/turnaround/chk-{number}", batch=number * 11, completed_ms=now_ms - (180 - number) * 60_000,
                duration_ms=764, sync_ms=41, size_bytes=(220 + number * 4) * MIB, uploaded_bytes=14 * MIB,
            )
        )  # fmt: skip
    memory = SlotMemory(
        rss_bytes=310 * MIB, pss_bytes=260 * MIB, baseline_bytes=90 * MIB, process_budget_bytes=304 * MIB, budget_bytes=128 * MIB,
        managed_bytes=128 * MIB, used_bytes=97 * MIB, cache_bytes=107 * MIB, write_buffer_bytes=43 * MIB, write_buffer_used_bytes=12 * MIB,
    )  # fmt: skip
    job.rescale(parallelism, 1)
    slots = tuple(
        replace(
            slot, rows_in=1_900_000 + 170_000 * slot.slot, store_bytes=(210 + 31 * slot.slot) * MIB, cache_hit_ratio=0.94,
            memory=replace(memory, pss_bytes=(220 + 25 * slot.slot) * MIB),
        )
        for slot in job.status().slots
    )  # fmt: skip
    skew = StepSkew(
        ratio=4.8,
        top=(BusyKeyGroup(key_group=17, slot=0, rows=75_000), BusyKeyGroup(key_group=99, slot=3, rows=41_000)),
        slots=tuple(SlotSpread(slot=i, rows_max=(75_000, 19_000, 17_000, 41_000)[i], rows_mean=15_600.0 - 2_000 * i) for i in range(4)),
    )
    job.change(
        slots=slots, skew={uid: skew}, watermarks={uid: now_ms - 12_000, "carriers": now_ms - 9_000}, since_ms=now_ms - 10_800_000,
        attempt=3, batch=2_041, input_rows=48_211_904, output_rows=47_988_113, failed_checkpoints=2, restarts=3,
        sources=_sources(), lag=lag_of(_sources(), None), user_metrics=_user_metrics(uid),
    )  # fmt: skip
    return job


def _sources() -> tuple[SourceStatus, ...]:
    kafka = SourceStatus(
        description="KafkaV2[Subscribe[flights]]", input_rows=61_204, input_rows_per_second=22_310.5, processed_rows_per_second=24_881.2,
        backlog_rows=184_220,
        partitions=(PartitionBacklog(topic="flights", partition="2", rows=51_873), PartitionBacklog(topic="flights", partition="0", rows=46_124)),
        metrics={"avgOffsetsBehindLatest": 46_055.0, "maxOffsetsBehindLatest": 51_873.0, "minOffsetsBehindLatest": 40_101.0},
    )  # fmt: skip
    return kafka, SourceStatus(description="FileStreamSource[s3://input/carriers]", input_rows=16)


def _user_metrics(uid: str) -> dict[str, tuple[UserMetricStatus, ...]]:
    return {
        uid: (
            UserMetricStatus(name="cancelled", kind="counter", value=1_289.0, slots={0: 340.0, 1: 301.0, 2: 322.0, 3: 326.0}),
            UserMetricStatus(name="delay_minutes", kind="distribution", value=470_021.0, sum=5_950_466.0, min=-43.0, max=1_301.0),
            UserMetricStatus(
                name="open_legs", kind="gauge", value=2_140.0, min=498.0, max=571.0, slots={0: 571.0, 1: 498.0, 2: 530.0, 3: 541.0}
            ),
        )
    }


def _sample(from_ms: int, i: int, uid: str) -> HistorySample:
    load = 1 + 0.35 * math.sin(i / 140) + 0.12 * math.sin(i * 1.7) * math.sin(i / 9)
    slow = 900 < i < 1100
    rows = 0 if 1500 < i < 1512 else int(22_000 * load * (0.6 if slow else 1.0))
    return HistorySample(
        from_ms=from_ms, to_ms=from_ms + 5000, active_ms=5000, rows_in=rows, rows_out=int(rows * 0.97), batches=1 if rows else 0,
        step_batches=8 if rows else 0,
        parts={
            "input": 1.1 * load, "begin": 0.3, "process": 2.4 * load, "output": 6.0 if slow else 0.8, "encode": 0.5 * load,
            "durable": 0.9 + 0.3 * math.sin(i / 31),
        } if rows else {},
        send_wait_s=4.0 if slow else 0.3 * load, slot_wait_s=14.0 if not rows else 0.0,
        watermark_lag_ms=int(9_000 * load + (60_000 if slow else 0)),
        states={uid: int((180 + i * 0.3) * MIB), "carriers": (40 + i // 60) * MIB}, slots=2 if i < 1506 else 4,
        memory_bytes=int((230 + 45 * (1 - math.exp(-i / 400)) + 5 * math.sin(i / 11)) * MIB), memory_budget_bytes=304 * MIB,
        counts={
            f"{uid}: cancelled": rows * 0.0003, f"{uid}: delay_minutes.count": float(rows),
            f"{uid}: delay_minutes.sum": rows * (12.6 + 3 * math.sin(i / 200)),
        },
        gauges={f"{uid}: open_legs": 540 + 60 * math.sin(i / 90)}, backlog_rows=int(180_000 * load) + (900_000 if slow else 0),
        skew=4.1 + 0.8 * math.sin(i / 260), checkpoints=1 if i % 12 == 0 else 0, failures=1 if i in {300, 306, 312} else 0,
    )  # fmt: skip


def _snapshots(now_ms: int) -> tuple[HistorySnapshot, ...]:
    found = []
    for i in range(180):
        ended_ms = now_ms - (180 - i) * 60_000
        if i in {84, 171}:
            error = "Unavailable: checkpoint 84 took longer than 60 s: slot 1 has not uploaded its files"
            found.append(HistorySnapshot(ended_ms=ended_ms, kind="checkpoint", error=error))
            continue
        full = i % 20 == 0
        found.append(
            HistorySnapshot(
                ended_ms=ended_ms, kind="savepoint" if i == 120 else "checkpoint", id=i, batch=i * 11,
                duration_ms=int(700 + 180 * math.sin(i) + (4200 if i == 120 else 900 if full else 0)), sync_ms=int(60 + 25 * math.sin(i * 2)),
                size_bytes=(220 + i * 4) * MIB, uploaded_bytes=((220 + i * 4) if i == 120 else 90 if full else 14) * MIB, path=f"s3://state/turnaround/chk-{i}",
                format="canonical" if i == 120 else "native",
            )
        )  # fmt: skip
    return tuple(found)


def _events(now_ms: int, message: str) -> tuple[HistoryEvent, ...]:
    start = now_ms - 10_800_000
    return (
        HistoryEvent(first_ms=start, last_ms=start, kind="driver", message="the driver of attempt 3 has started with 2 slots"),
        HistoryEvent(first_ms=start + 1_500_000, last_ms=start + 1_560_000, kind="query", message=message, reason="UserFunction", count=3),
        HistoryEvent(
            first_ms=start + 5_000_000, last_ms=start + 5_000_000, kind="slot", message="the slot's process ended (signal 9)",
            reason="Unavailable", slot=1,
        ),
        HistoryEvent(first_ms=start + 7_530_000, last_ms=start + 7_530_000, kind="rescale", message="rescaled from 2 to 4 slots"),
    )  # fmt: skip


def stored(job: FakeJob, tail: LogTail, *, name: str = "turnaround", error: str) -> dict[str, Any]:
    """Return the document of the page of a job that has failed, as `statefulspark ui` makes it."""
    records, _ = tail.read(after=0, most=500, level=0, slot=None, uid=None)
    return {
        "name": name, "state": "FAILED", "ended_ms": job.past.samples[-1].to_ms, "reason": "UserFunction", "error": error,
        "advice": "Fix the function and run the manifest again: it resumes after batch 2041, nothing is lost.",
        "directory": "s3://state/turnaround", "manifest": "/home/ada/turnaround/job.yaml",
        "history": HistoryModel.of(job.past, since_ms=0, samples=600).model_dump(mode="json"),
        "records": [LogRecordModel.of(one).model_dump(mode="json") for one in records],
    }  # fmt: skip


def record(tail: LogTail, level: int, text: str, **facts: object) -> None:
    """Keep a log record of the job in ``tail``."""
    tail.handle(
        logging.makeLogRecord(
            {
                "name": "flights",
                "levelno": level,
                "levelname": logging.getLevelName(level),
                "msg": text,
                "created": 1_790_000_000.25,
                **facts,
            }
        )
    )


def logged(tail: LogTail) -> None:
    """Keep what a job says in an ordinary minute."""
    record(tail, logging.INFO, "batch 2039 committed", rows=61_204)
    record(tail, logging.WARNING, "carrier ZZ is not known", slot=1, uid="turnaround", key_group=99)
    record(tail, logging.ERROR, "the row was left out", slot=0, uid="turnaround", key_group=17, exception=TRACEBACK)
    record(tail, logging.DEBUG, "dep_delay was NA", slot=0, uid="turnaround", key_group=17)
    record(tail, logging.INFO, "checkpoint 179 completed", uploaded_bytes=14 * MIB)
