"""Answers of tenants' code: whatever bytes come, the outcome is a value within its bounds or one error of ours."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.errors import UnavailableError
from statefulspark_operator.api.jobs import ErrorInfo, LagInfo, SnapshotInfo
from statefulspark_operator.api.responses import (
    CheckpointsResponse,
    EndingResponse,
    OperationsResponse,
    ProblemResponse,
    StatusResponse,
    StorageReport,
    driver_of,
    parse,
)

KINDS = (CheckpointsResponse, EndingResponse, OperationsResponse, ProblemResponse, StatusResponse, StorageReport)
Scalar = (
    st.none() | st.booleans() | st.integers() | st.integers(-2, 40_000) | st.floats() | st.text(max_size=20)
    | st.sampled_from(["RUNNING", "FAILED", "checkpoint", "1-9", "9-1", "0-9999999999999999", "s3://b/x", "UserFunction", "x" * 5000, "\ud800"])
)  # fmt: skip
Names = st.sampled_from(
    [
        "state", "attempt", "batch", "parallelism", "max_parallelism", "slots", "slot", "first", "last", "memory", "last_checkpoint", "id", "kind",
        "path", "completed_ms", "error", "reason", "message", "operations", "key", "checkpoint", "checkpoints", "version", "snapshot", "disposed",
    ]
)  # fmt: skip
Anything = st.recursive(Scalar, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(Names, inner, max_size=8), max_leaves=30)
GOOD: dict[str, Any] = {
    "version": 1, "state": "RUNNING", "attempt": 1, "batch": 3, "parallelism": 1, "max_parallelism": 128, "path": None, "error": None,
    "slots": [{"slot": 0, "first": 0, "last": 127, "state": "RUNNING"}], "checkpoints": [], "operations": [],
}  # fmt: skip


def test_the_lag_of_the_sources_is_read_and_absent_before_the_first_batch() -> None:
    """To the second, which is what the status holds: else each look at an idle job would be a change."""
    said: dict[str, Any] = {"rows": 1204, "files": None, "bytes": 4096, "unknown_sources": 1, "at_ms": 1_795_944_600_123, "added later": {}}
    lag = driver_of(parse(StatusResponse, json.dumps(GOOD | {"lag": said})), None, None).lag
    assert lag == LagInfo(rows=1204, size_bytes=4096, unknown_sources=1, at=datetime(2026, 11, 29, 9, 30, tzinfo=UTC))
    assert driver_of(parse(StatusResponse, json.dumps(GOOD)), None, None).lag is None
    with pytest.raises(UnavailableError, match=r"lag\.rows"):
        parse(StatusResponse, json.dumps(GOOD | {"lag": {"rows": 1 << 60}}))


@given(st.dictionaries(Names, Anything, max_size=4) | Anything | st.binary(max_size=40))
def test_no_answer_is_anything_but_a_value_or_unavailable(part: Any) -> None:
    document = GOOD | part if isinstance(part, dict) else part
    body = part if isinstance(part, bytes) else json.dumps(document).encode()
    for kind in KINDS:
        try:
            said: Any = parse(kind, body)
        except UnavailableError:
            continue
        if isinstance(said, StatusResponse):
            driver = driver_of(said, None, None)
            for info in (driver.last_checkpoint, driver.last_savepoint):
                if info is not None:
                    SnapshotInfo.model_validate(info.model_dump())
            if driver.error is not None:
                # As the status keeps it.
                ErrorInfo.model_validate({"reason": driver.error.reason, "message": driver.error.message, "since": "2026-11-22T00:00:00Z"})
        if isinstance(said, EndingResponse):
            assert len(said.kept() or ()) <= 10_000


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("levels", [500, 5_000, 500_000])
def test_depth_is_bounded(kind: Any, levels: int) -> None:
    for body in (b"[" * levels + b"]" * levels, b'{"error":' * levels + b"1" + b"}" * levels, b'{"unknown": ' + b"[" * levels):
        with pytest.raises(UnavailableError):
            parse(kind, body)


HEAD = b'{"state":"RUNNING","attempt":1,"batch":1,"parallelism":1,"max_parallelism":1,"slots":['
BODY_BYTES = 4 << 20


@pytest.mark.parametrize(
    ("kind", "start", "unit", "end"),
    [
        (StatusResponse, HEAD, b"0,", b"0]}"),
        (StatusResponse, HEAD, b"{},", b"{}]}"),
        (StatusResponse, HEAD, b'{"slot":"a","first":"b","last":"c","state":1,"executor":1,"host":2,"memory":3},', b"{}]}"),
        (StatusResponse, HEAD, b'{"slot":1,"first":1,"last":1,"state":"R","unknown":"field"},', b"{}]}"),
        (
            OperationsResponse,
            b'{"operations":[',
            b'{"id":1,"key":2,"state":3,"checkpoint":{"id":-1,"kind":"","path":""},"error":{}},',
            b"{}]}",
        ),
        (CheckpointsResponse, b'{"checkpoints":[', b'{"id":-1,"kind":"","path":"","completed_ms":-1,"batch":-9},', b"{}]}"),
        (CheckpointsResponse, b"[", b"{},", b"{}]"),
        (EndingResponse, b'{"version":1,"state":"x","batch":1,"path":null,"error":null,"checkpoints":"', b"5-1,", b'1"}'),
        (EndingResponse, b'{"version":1,"state":"x","batch":1,"path":null,"error":null,"checkpoints":"', b"12345-1234567,", b'1"}'),
        (StatusResponse, b'{"attempt":', b"9", b"}"),
        (StatusResponse, b'{"attempt":"', b"9", b'"}'),
    ],
)
def test_wrong_values_take_little_time(kind: Any, start: bytes, unit: bytes, end: bytes) -> None:
    """As many as a response may have took up to two minutes and 5 GiB, in the loop that all jobs share: an error was made for each."""
    body = start + unit * ((BODY_BYTES - len(start) - len(end)) // len(unit)) + end
    began = time.thread_time()
    with pytest.raises(UnavailableError):
        parse(kind, body)
    assert time.thread_time() - began < 2


def test_many_unknown_fields_take_little_time() -> None:
    body = json.dumps({f"{number:x}": 0 for number in range(240_000)}).encode()
    began = time.thread_time()
    with pytest.raises(UnavailableError, match="state: missing"):
        parse(StatusResponse, body)
    assert time.thread_time() - began < 5


def test_a_driver_of_8000_slots_is_understood() -> None:
    slot = {"first": 0, "last": 3, "state": "RUNNING", "executor": "12", "host": "10.1.2.3", "memory": {"container_oom_kills": 1}}
    slot |= {f"field_{number}": number for number in range(22)}
    document = GOOD | {"slots": [slot | {"slot": number} for number in range(8_000)]}
    assert len(parse(StatusResponse, json.dumps(document, separators=(",", ":")).encode()).slots) == 8_000
