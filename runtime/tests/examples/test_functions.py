"""The examples' functions on the real function runner and state backend, cut into batches at random, against independent computations."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import chain, repeat
from types import ModuleType
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark import EventTimeSessionWindows
from statefulspark.testing import WindowHarness
from statefulspark.testing.harness import KeyedProcessHarness

from .conftest import EXAMPLES, Load

pytest.importorskip("matplotlib", reason="the demo extra is not installed")

AIRCRAFT_EVERY = 97
HOUR_MS = 3_600_000
NINE = int(datetime(2026, 1, 5, 9, tzinfo=UTC).timestamp() * 1000)


def arrow(ddl: str) -> dict[str, pa.DataType]:
    """Read the DDL that the examples hand to Spark."""
    types = {"STRING": pa.string(), "INT": pa.int32(), "BIGINT": pa.int64(), "TIMESTAMP": pa.timestamp("us", tz="UTC")}
    return {name: types[kind] for name, kind in (column.split() for column in ddl.split(","))}


def replay(harness: KeyedProcessHarness, rows: list[dict[str, Any]], time: str, delay_ms: int, sizes: Iterator[int]) -> list[Any]:
    """Feed rows in batches of ``sizes``; after each the watermark follows the latest row, as in a job."""
    with harness:
        position = 0
        while position < len(rows):
            batch = rows[position : position + next(sizes)]
            harness.process_elements(batch)
            harness.process_watermark(int(batch[-1][time].timestamp() * 1000) - delay_ms)
            position += len(batch)
        return harness.get_output()


@pytest.fixture(scope="module")
def flights(load: Load) -> ModuleType:
    return load("01-flights/flights.py")


@pytest.fixture(scope="module")
def oracle(load: Load) -> ModuleType:
    return load("01-flights/oracle.py")


@pytest.fixture(scope="module")
def some_aircraft(oracle: ModuleType) -> pd.DataFrame:
    """Every 97th aircraft with all its flights, cancelled ones too: about 3,000 flights over the whole year."""
    published: pd.DataFrame = oracle.published()
    chosen = sorted(published.tailnum.dropna().unique())[::AIRCRAFT_EVERY]
    return published[published.tailnum.isin(chosen)]


@pytest.fixture(scope="module")
def input_rows(load: Load, some_aircraft: pd.DataFrame) -> list[dict[str, Any]]:
    ordered = load("01-flights/prepare.py").in_event_time_order(some_aircraft)
    objects = ordered.astype(object).where(ordered.notna(), None)
    rows: list[dict[str, Any]] = objects.to_dict("records")
    return rows


@pytest.mark.parametrize(
    "sizes",
    [lambda _: 1_000_000, lambda _: 1, lambda seeded: seeded.randint(1, 30), lambda seeded: seeded.choice([1, 5, 200, 1500])],
    ids=["one batch", "a batch per row", "small batches", "mixed batches"],
)
def test_aircraft_rotation_equals_pandas_wherever_the_stream_is_cut(
    flights: ModuleType,
    oracle: ModuleType,
    some_aircraft: pd.DataFrame,
    input_rows: list[dict[str, Any]],
    sizes: Callable[[random.Random], int],
) -> None:
    seeded = random.Random(20130101)
    schemas = arrow(flights.FLIGHT_SCHEMA), arrow(flights.ROTATION_SCHEMA)
    harness = KeyedProcessHarness(flights.AircraftRotation(), *schemas, key="tailnum", event_time="scheduled")
    output = replay(harness, input_rows, "scheduled", HOUR_MS, iter(lambda: sizes(seeded), 0))
    found = pd.DataFrame([row.as_dict() for row in output])
    found["at"] = pd.to_datetime(found.pop("at_ms"), unit="ms", utc=True)
    verdict = oracle.compare(oracle.expected(some_aircraft), oracle.tidy(found))
    assert verdict.equal, str(verdict)
    assert (found.kind == "idle").sum() > 100


def sessions_of(clicks: list[int], watermark_ms: int) -> list[tuple[str, int, int]]:
    """The sessions of one user, from sorted click times, that have ended by the watermark."""
    found: list[list[int]] = []
    for click in clicks:
        if found and click < found[-1][-1] + HOUR_MS // 2:
            found[-1].append(click)
        else:
            found.append([click])
    ends = [("ada", len(session), session[-1] + HOUR_MS // 2) for session in found]
    return [*ends[:-1], *(end for end in ends[-1:] if end[2] <= watermark_ms)]


@given(gaps=st.lists(st.integers(0, 90), min_size=1, max_size=30), sizes=st.lists(st.integers(1, 5), min_size=1, max_size=5))
def test_sessions_end_after_half_an_hour_without_a_click(load: Load, gaps: list[int], sizes: list[int]) -> None:
    clicks = [NINE + 60_000 * sum(gaps[: place + 1]) for place in range(len(gaps))]
    rows = [{"user": "ada", "at": datetime.fromtimestamp(click / 1000, UTC)} for click in clicks]
    harness = KeyedProcessHarness(
        load("02-sessions/sessions.py").Sessions(),
        arrow("user STRING, at TIMESTAMP"),
        arrow("user STRING, clicks BIGINT, end_ms BIGINT"),
        key="user",
        event_time="at",
    )
    output = replay(harness, rows, "at", 5 * 60_000, iter([size for size in sizes for _ in gaps] + [1]))
    assert output == sessions_of(clicks, clicks[-1] - 5 * 60_000)


@given(
    minutes=st.lists(st.integers(0, 600), min_size=1, max_size=40),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    seed=st.integers(0, 99),
)
def test_session_windows_merge_what_comes_late(load: Load, minutes: list[int], sizes: list[int], seed: int) -> None:
    """In any order of the clicks: two clicks are of one session if at most half an hour is between them, also if the one in between comes last."""
    clicks = [NINE + 60_000 * minute for minute in minutes]
    random.Random(seed).shuffle(clicks)
    example = load("02-sessions/session_windows.py")
    windows = WindowHarness(EventTimeSessionWindows.with_gap(example.GAP), "user STRING, at TIMESTAMP", key="user")
    with example.sessions_of(windows) as harness:
        position = 0
        for size in chain(sizes, repeat(9)):
            rows = [("ada", datetime.fromtimestamp(click / 1000, UTC)) for click in clicks[position : position + size]]
            harness.process_elements(rows)
            position += size
            if position >= len(clicks):
                break
        harness.process_watermark(max(clicks) + HOUR_MS)
        output = [tuple(row) for row in harness.get_output()]
    ordered = sorted(clicks)
    starts = [place for place, click in enumerate(ordered) if place == 0 or click - ordered[place - 1] > HOUR_MS // 2]
    ends = [*starts[1:], len(ordered)]
    assert output == [("ada", end - start, ordered[end - 1] + HOUR_MS // 2) for start, end in zip(starts, ends, strict=True)]


@pytest.mark.parametrize("batch", [1, 2, 100])
def test_the_ported_pyflink_function_reports_what_its_hour_adds_up_to(load: Load, batch: int) -> None:
    """The payments of the example: 60,000 + 50,000 within an hour is too much, a payment exactly an hour old no longer counts."""
    payments = pd.read_json(EXAMPLES / "03-pyflink-port" / "payments" / "2026-01-05.jsonl", lines=True, dtype={"card": str})
    rows: list[Any] = payments.assign(at=pd.to_datetime(payments["at"], utc=True)).to_dict("records")
    harness = KeyedProcessHarness(
        load("03-pyflink-port/card_guard.py").CardGuard(),
        arrow("card STRING, at TIMESTAMP, cents BIGINT"),
        arrow("card STRING, at_ms BIGINT, spent_cents BIGINT, largest_cents BIGINT, report INT"),
        key="card",
        event_time="at",
    )
    output = replay(harness, rows, "at", 10 * 60_000, iter(lambda: batch, 0))
    assert sorted(output) == [
        ("0815", NINE + 3 * HOUR_MS, 150_000, 150_000, 1),
        ("4711", NINE + HOUR_MS // 2, 110_000, 60_000, 1),
        ("4711", NINE + HOUR_MS - 1000, 111_000, 60_000, 2),
    ]
