"""The demo's proof is only as good as its oracle: checked here on flights small enough to work out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest

from .conftest import Load

COLUMNS = ["time_hour", "minute", "tailnum", "carrier", "flight", "origin", "dest", "dep_delay", "arr_delay"]


@pytest.fixture(scope="module")
def oracle(load: Load) -> ModuleType:
    return load("01-flights/oracle.py")


def published(*rows: tuple[Any, ...]) -> pd.DataFrame:
    """Flights as published, from (time, tailnum, dest, dep_delay, arr_delay)."""
    full = []
    for at, tailnum, dest, dep_delay, arr_delay in rows:
        full.append((f"2013-{at[:8]}:00:00Z", int(at[9:11]), tailnum, "UA", 1, "EWR", dest, dep_delay, arr_delay))
    return pd.DataFrame(full, columns=COLUMNS)


def rows_of(oracle: ModuleType, flights: pd.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    found = oracle.expected(flights)[list(columns)]
    return [tuple(None if pd.isna(value) else value for value in row) for row in found.itertuples(index=False)]


def test_delay_is_carried_only_as_far_as_both_flights_are_late(oracle: ModuleType) -> None:
    flights = published(
        ("01-01T08:00", "N1", "BOS", 0, 40),
        ("01-01T12:00", "N1", "ORD", 25, -10),
        ("01-01T16:00", "N1", "BOS", 30, 50),
        ("01-01T20:00", "N1", "MIA", -5, 0),
    )
    assert rows_of(oracle, flights, "leg", "previous_arr_delay", "carried_delay", "legs_to_dest", "delay_recent") == [
        (1, None, None, 1, 0),
        (2, 40, 25, 1, 25),
        (3, -10, 0, 2, 55),
        (4, 50, 0, 1, 50),
    ]


def test_gaps_follow_schedule_and_actual_departure(oracle: ModuleType) -> None:
    flights = published(("01-01T08:00", "N1", "BOS", 30, 0), ("01-01T12:30", "N1", "ORD", -5, 0))
    assert rows_of(oracle, flights, "scheduled_gap", "actual_gap") == [(None, None), (270, 235)]


def test_recent_delay_is_the_sum_of_the_last_five_legs(oracle: ModuleType) -> None:
    flights = published(*((f"01-01T{hour:02}:00", "N1", "BOS", 10**place, 0) for place, hour in enumerate(range(6, 13))))
    assert [recent for (recent,) in rows_of(oracle, flights, "delay_recent")] == [1, 11, 111, 1111, 11111, 111110, 1111100]


def test_idle_at_exactly_24_hours_but_not_a_minute_before(oracle: ModuleType) -> None:
    flights = published(
        ("01-01T08:00", "N1", "BOS", 0, 5),
        ("01-02T08:00", "N1", "ORD", 9, 0),
        ("01-03T07:59", "N1", "MIA", 0, 0),
    )
    assert rows_of(oracle, flights, "kind", "leg", "dest", "carried_delay") == [
        ("leg", 1, "BOS", None),
        ("idle", 1, "BOS", None),
        ("leg", 2, "ORD", None),
        ("leg", 3, "MIA", 0),
    ]


@pytest.mark.parametrize(("last", "idle"), [("01-02T08:59", False), ("01-02T09:00", True)])
def test_timers_after_the_last_leg_fire_up_to_the_final_watermark(oracle: ModuleType, last: str, idle: bool) -> None:
    """The final watermark is an hour before the last flight of any aircraft with a tail number, cancelled or not."""
    flights = published(
        ("01-01T08:00", "N1", "BOS", 0, 0),
        (last, "N2", "BOS", None, None),
        ("01-30T08:00", None, "BOS", 0, 0),
    )
    assert [kind for (kind,) in rows_of(oracle, flights, "kind")] == (["leg", "idle"] if idle else ["leg"])


def test_cancelled_flights_count_for_the_next_leg_only(oracle: ModuleType) -> None:
    flights = published(
        ("01-01T07:00", "N1", "BOS", None, None),
        ("01-01T08:00", "N1", "BOS", None, None),
        ("01-01T09:00", "N1", "BOS", 0, 0),
        ("01-01T10:00", "N1", "BOS", 0, 0),
        ("01-01T11:00", "N1", "BOS", None, None),
        ("01-01T12:00", "N1", "BOS", 0, None),
    )
    assert rows_of(oracle, flights, "leg", "cancelled_before", "arr_delay") == [(1, 2, 0), (2, 0, 0), (3, 1, None)]


def test_published_order_does_not_matter(oracle: ModuleType) -> None:
    flights = published(("01-01T08:00", "N1", "BOS", 0, 7), ("01-01T12:00", "N1", "ORD", 9, 0), ("01-01T09:00", "N2", "ORD", 9, 0))
    assert oracle.compare(oracle.expected(flights), oracle.expected(flights[::-1])).equal


def test_comparison_names_what_is_missing_and_what_is_too_much(oracle: ModuleType) -> None:
    wanted = oracle.expected(published(("01-01T08:00", "N1", "BOS", 0, 7), ("01-01T12:00", "N1", "ORD", 9, 0)))
    changed = wanted.copy()
    changed.loc[1, "carried_delay"] = 8
    verdict = oracle.compare(wanted, changed)
    assert not verdict.equal
    assert verdict.missing.carried_delay.tolist() == [7]
    assert verdict.surplus.carried_delay.tolist() == [8]
    assert "1 missing rows" in str(verdict)


def test_a_row_written_twice_is_found(oracle: ModuleType) -> None:
    wanted = oracle.expected(published(("01-01T08:00", "N1", "BOS", 0, 7)))
    verdict = oracle.compare(wanted, pd.concat([wanted, wanted], ignore_index=True))
    assert (len(verdict.missing), len(verdict.surplus)) == (0, 1)


def test_null_and_value_differ(oracle: ModuleType) -> None:
    wanted = oracle.expected(published(("01-01T08:00", "N1", "BOS", 0, 0)))
    assert not oracle.compare(wanted, wanted.assign(arr_delay=pd.array([None], dtype="Int64"))).equal


def sink_log(output: Path, name: str, *files: str, version: str = "v1") -> None:
    log = output / "_spark_metadata"
    log.mkdir(exist_ok=True)
    (log / name).write_text("\n".join([version, *(json.dumps({"path": f"file://{output}/{file}", "action": "add"}) for file in files)]))


def test_only_files_that_the_sink_committed_count(oracle: ModuleType, tmp_path: Path) -> None:
    """A killed task leaves a file that no log entry names; a compacted log repeats the entries before it."""
    sink_log(tmp_path, "8", "old.parquet")
    sink_log(tmp_path, "9.compact", "a.parquet", "b.parquet")
    sink_log(tmp_path, "10", "c.parquet")
    (tmp_path / "_spark_metadata" / ".10.crc").touch()
    (tmp_path / "orphan.parquet").touch()
    assert [path.name for path in oracle.committed_files(tmp_path)] == ["a.parquet", "b.parquet", "c.parquet"]


def test_unknown_sink_log_version_is_refused(oracle: ModuleType, tmp_path: Path) -> None:
    sink_log(tmp_path, "0", "a.parquet", version="v2")
    with pytest.raises(ValueError, match="v2"):
        oracle.committed_files(tmp_path)
