"""The stored form of the history: it comes back, what another wrote is refused with a known error, and its size is bounded."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.coordinator.history import HistoryEvent, HistorySample, HistorySnapshot, JobHistory
from statefulspark.errors import CorruptDataError, IncompatibleFormatError
from statefulspark.job.history.encoding import RAW_BYTES_MAX, decode_history, encode_history
from statefulspark.job.history.events import EVENTS_MAX, MESSAGE_BYTES_MAX, PATH_BYTES_MAX, REASON_BYTES_MAX, SNAPSHOTS_MAX, EventLog
from statefulspark.job.history.samples import SAMPLES_MAX, SERIES_MAX, UID_BYTES_MAX, UIDS_MAX, series_name

GOLDEN = Path(__file__).parents[2] / "checkpoint" / "golden" / "history-v1.bin"
HISTORY = JobHistory(
    samples=(
        HistorySample(
            from_ms=1_790_000_000_000, to_ms=1_790_000_005_000, active_ms=5_001, rows_in=50_000, rows_out=48_000, batches=4, step_batches=8,
            parts={"process": 1.5, "durable": 0.25}, slot_wait_s=0.5, send_wait_s=1.25, watermark_lag_ms=9_000, states={"turnaround": 1 << 30},
            slots=2, memory_bytes=260 << 20, memory_budget_bytes=304 << 20, skew=4.75, checkpoints=1, failed_checkpoints=1, failures=2,
        ),
        HistorySample(from_ms=1_790_000_005_000, to_ms=1_790_000_010_000, active_ms=5_000),
    ),
    snapshots=(
        HistorySnapshot(
            ended_ms=1_790_000_003_000, kind="savepoint", id=3, batch=9, duration_ms=840, sync_ms=12, size_bytes=1 << 30, uploaded_bytes=1 << 20,
            path="s3://bucket/savepoints/savepoint-job-0123456789ab",
        ),
        HistorySnapshot(ended_ms=1_790_000_004_000, kind="checkpoint", error="Unavailable: slot 1 does not answer"),
    ),
    events=(
        HistoryEvent(first_ms=1_790_000_000_000, last_ms=1_790_000_000_000, kind="driver", message="the driver of attempt 1 has started with 2 slots"),
        HistoryEvent(
            first_ms=1_790_000_001_000, last_ms=1_790_000_002_000, kind="slot", message='Traceback …\nValueError: "no"', reason="UserFunction",
            slot=1, count=3,
        ),
    ),
)  # fmt: skip
WITH_METRICS = replace(
    HISTORY,
    samples=(
        replace(
            HISTORY.samples[0],
            counts={"turnaround: rejected": 17.0, "turnaround: size.count": 4.0, "turnaround: size.sum": 62.5},
            gauges={"turnaround: cached": 40.0},
            backlog_rows=120_000,
            backlog_files=3,
        ),
        HISTORY.samples[1],
    ),
)
WITH_FORMAT = replace(WITH_METRICS, snapshots=(replace(HISTORY.snapshots[0], format="canonical"), HISTORY.snapshots[1]))
FAILED_FORMAT = replace(WITH_METRICS, snapshots=(HISTORY.snapshots[0], replace(HISTORY.snapshots[1], kind="savepoint", format="canonical")))
WITH_RETURN = replace(
    WITH_FORMAT,
    events=(
        *HISTORY.events,
        HistoryEvent(
            first_ms=1_790_000_009_000,
            last_ms=1_790_000_009_000,
            kind="return",
            message="the job went back to batch 4",
            reason="CorruptData",
        ),
    ),
)


def test_the_golden_file_reads_the_same() -> None:
    """Never regenerate it: drivers of this release must read what those of versions 1 to 4 have stored."""
    assert decode_history(GOLDEN.read_bytes(), path="golden") == HISTORY
    assert decode_history((GOLDEN.parent / "history-v2.bin").read_bytes(), path="golden") == WITH_METRICS
    assert decode_history((GOLDEN.parent / "history-v3.bin").read_bytes(), path="golden") == WITH_FORMAT
    assert decode_history((GOLDEN.parent / "history-v4.bin").read_bytes(), path="golden") == WITH_RETURN
    for history, version in ((HISTORY, 2), (WITH_METRICS, 2), (WITH_FORMAT, 3), (FAILED_FORMAT, 3), (WITH_RETURN, 4)):
        data = encode_history(history)
        assert decode_history(data, path="again") == history
        assert data[4] == version, "an earlier release reads what it can"


def test_an_unknown_version_is_refused_as_such() -> None:
    data = bytearray(encode_history(HISTORY))
    data[4] = 5
    with pytest.raises(IncompatibleFormatError, match="version 5"):
        decode_history(bytes(data), path="x")


@given(st.data())
def test_damage_is_found(data: st.DataObject) -> None:
    """A byte that was changed, a file that was cut, and anything at all give the one error."""
    good = encode_history(HISTORY)
    at = data.draw(st.sampled_from([i for i in range(len(good)) if i != 4]))
    changed = bytearray(good)
    changed[at] ^= data.draw(st.integers(1, 255))
    for bad in (bytes(changed), good[:at], data.draw(st.binary(max_size=50))):
        with pytest.raises(CorruptDataError):
            decode_history(bad, path="x")


def stored(raw: bytes, raw_length: int | None = None) -> bytes:
    compressed = zlib.compress(raw)
    return struct.pack(">4sBII", b"SSJH", 1, len(raw) if raw_length is None else raw_length, zlib.crc32(compressed)) + compressed


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"[]", b"null", b'{"samples":5}', b'{"samples":[{}]}', b'{"unknown":1}', b'{"samples":[{"from_ms":NaN,"to_ms":1,"active_ms":1}]}',
        b'{"samples":[{"from_ms":5,"to_ms":1,"active_ms":1}]}', b'{"samples":[{"from_ms":-9,"to_ms":1,"active_ms":1}]}',
        b'{"samples":[{"from_ms":0,"to_ms":9,"active_ms":1},{"from_ms":5,"to_ms":9,"active_ms":1}]}',
        b'{"samples":[{"from_ms":"0","to_ms":9,"active_ms":1}]}', b'{"events":[{"first_ms":0,"last_ms":0,"kind":"other","message":""}]}',
        b'{"samples":[' + b",".join(b'{"from_ms":%d,"to_ms":%d,"active_ms":1}' % (i, i) for i in range(50_000)) + b"]}",
    ],
)  # fmt: skip
def test_intact_bytes_with_other_contents_are_damage_too(raw: bytes) -> None:
    """Whatever a person or a program has put there."""
    with pytest.raises(CorruptDataError):
        decode_history(stored(raw), path="x")


def test_a_small_file_that_unpacks_to_gigabytes_is_refused_without_unpacking() -> None:
    with pytest.raises(CorruptDataError):
        decode_history(stored(b" " * (64 << 20)), path="x")
    with pytest.raises(CorruptDataError):
        decode_history(stored(b" " * (64 << 20), raw_length=10), path="x")


def test_the_largest_history_fits() -> None:
    """Every list full and every text as long as allowed, of characters that JSON has to escape."""
    big, text = (1 << 53) - 1, '"'
    states = {f"{i:02d}".ljust(UID_BYTES_MAX, text): big for i in range(UIDS_MAX)}
    series = {series_name(f"{i:02d}".ljust(300, text), text * 300): -1 / 3e300 for i in range(SERIES_MAX)}
    sample = HistorySample(
        from_ms=big, to_ms=big, active_ms=big, rows_in=big, rows_out=big, batches=big, step_batches=big,
        parts=dict.fromkeys(("begin", "input", "process", "output", "encode", "durable"), 1 / 3e300), slot_wait_s=1 / 3e300, send_wait_s=1 / 3e300,
        watermark_lag_ms=big, states=states, slots=big, memory_bytes=big, memory_budget_bytes=big, skew=1 / 3e300, checkpoints=big,
        failed_checkpoints=big, failures=big, counts=series, gauges=series, backlog_rows=big, backlog_files=big,
    )  # fmt: skip
    snapshot = HistorySnapshot(
        ended_ms=big, kind="checkpoint", id=big, batch=big, duration_ms=big, sync_ms=big, size_bytes=big, uploaded_bytes=big,
        path=text * PATH_BYTES_MAX, error=text * REASON_BYTES_MAX,
    )  # fmt: skip
    log = EventLog([snapshot] * SNAPSHOTS_MAX)
    for i in range(EVENTS_MAX):
        log.add(
            HistoryEvent(
                first_ms=i, last_ms=i, kind="failed", message=f"{i}".ljust(9 * MESSAGE_BYTES_MAX, text), reason=text * 9_000, slot=i
            )
        )
    full = JobHistory(samples=(sample,) * SAMPLES_MAX, snapshots=tuple(log.snapshots), events=tuple(log.events))
    assert len(full.events) == EVENTS_MAX
    data = encode_history(full)
    assert int.from_bytes(data[5:9], "big") <= RAW_BYTES_MAX
    assert decode_history(data, path="x") == full
