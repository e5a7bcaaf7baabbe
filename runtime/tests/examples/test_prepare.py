"""The replayed files hold the published flights, once each, in the order in which Spark's file source will take them."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

from .conftest import Load

pytest.importorskip("matplotlib", reason="the demo extra is not installed")


@pytest.fixture(scope="module")
def prepare(load: Load) -> ModuleType:
    return load("01-flights/prepare.py")


@pytest.fixture(scope="module")
def flights(prepare: ModuleType) -> pd.DataFrame:
    """The published flights, read once."""
    published: pd.DataFrame = prepare.read_flights()
    return published


def test_every_flown_flight_leaves_at_its_recorded_clock_time(prepare: ModuleType, flights: pd.DataFrame) -> None:
    """Holds across both changes of daylight saving and across midnight, or event times would be wrong by hours."""
    ordered = prepare.in_event_time_order(flights)
    assert len(ordered) == 336_776
    assert ordered.scheduled.is_monotonic_increasing


def test_a_wrong_clock_time_is_found(prepare: ModuleType, flights: pd.DataFrame) -> None:
    wrong = flights.head(50).copy()
    wrong["dep_time"] = wrong["dep_time"].where(wrong.index != 7, 1)
    with pytest.raises(ValueError, match=r"1 flights.*row 7"):
        prepare.in_event_time_order(wrong)


def test_files_hold_each_flight_once_in_ascending_days(prepare: ModuleType, flights: pd.DataFrame, tmp_path: Path) -> None:
    some = flights.iloc[::37]
    prepared = prepare.write_days(prepare.in_event_time_order(some), tmp_path / "days")
    by_name = sorted((tmp_path / "days").iterdir())
    by_time = sorted(by_name, key=lambda path: path.stat().st_mtime)
    assert by_name == by_time
    assert len({path.stat().st_mtime for path in by_name}) == len(by_name) == prepared.files
    written = pd.concat([pd.read_parquet(path) for path in by_name], ignore_index=True)
    assert written.scheduled.is_monotonic_increasing
    assert sorted(written.flight_id) == sorted(some.index)
    assert prepared.rows == len(some)
    assert prepared.cancelled == some.dep_delay.isna().sum() == written.dep_delay.isna().sum()
    assert prepared.without_tailnum == some.tailnum.isna().sum() == written.tailnum.isna().sum()


def test_files_of_an_earlier_run_are_replaced(prepare: ModuleType, flights: pd.DataFrame, tmp_path: Path) -> None:
    (tmp_path / "flights-2012-12-31.parquet").touch()
    prepare.write_days(prepare.in_event_time_order(flights.head(20)), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["flights-2013-01-01.parquet"]
