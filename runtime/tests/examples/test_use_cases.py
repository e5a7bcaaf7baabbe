"""Examples 06 to 12: their functions without Spark while everything fails, and the whole jobs on Spark, against their oracles."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest

from statefulspark.testing import (
    BATCH,
    BROADCAST,
    CHECKPOINT,
    DRAIN,
    KILL_DRIVER,
    KILL_SLOT,
    RESCALE,
    RETRY_BATCH,
    SECOND,
    BroadcastInput,
    KeyedProcessHarness,
    SecondInput,
    TestingJob,
)

from .conftest import EXAMPLES, Load

WEATHER = "origin STRING, at TIMESTAMP, temp DOUBLE"
DIFFERENCES = "origin STRING, at TIMESTAMP, temp DOUBLE, difference DOUBLE"
FLIGHTS = "flight_id INT, scheduled TIMESTAMP, dep_delay INT, arr_delay INT, carrier STRING"
PREDICTIONS = "flight_id INT, carrier STRING, predicted DOUBLE, arrived DOUBLE"


def with_failures(rows: Sequence[Any], seed: int, share: float) -> list[Any]:
    """The rows, and after some of them something that fails or changes; every one ends a batch."""
    chance = random.Random(seed)
    items: list[Any] = []
    for row in rows:
        items.append(row)
        if chance.random() < share:
            items.append(chance.choice([KILL_DRIVER, KILL_SLOT(0), RESCALE(1), RESCALE(3), RETRY_BATCH, CHECKPOINT]))
    return items


def naive(times: pd.Series) -> list[datetime]:
    """As a function in a UTC session gets them."""
    return [at.tz_localize(None).to_pydatetime() for at in times]


@pytest.mark.parametrize("seed", range(2))
def test_weather_is_compared_with_yesterdays_whatever_fails(load: Load, tmp_path: Path, seed: int) -> None:
    """Two weeks of real observations, with the hours that are missing from them; no observation is kept for longer than it is needed."""
    prepare, weather, oracle = load("08-weather/prepare.py"), load("08-weather/weather.py"), load("08-weather/oracle.py")
    prepare.prepare(tmp_path / "input", weeks=2)
    observations = pd.read_parquet(tmp_path / "input")
    rows = list(zip(observations["origin"], naive(observations["at"]), observations["temp"], strict=True))
    items = with_failures(rows, seed, 0.01)
    with TestingJob(
        weather.SinceYesterday(), WEATHER, DIFFERENCES, key="origin", event_time="at", watermark_ms=3_600_000, folder=tmp_path / "job"
    ) as job:
        job.run(items)
        kept = max(len(hours) for hours in job.state("temperatures").values())
        found = [(origin, pd.Timestamp(at, tz="UTC"), temp, difference) for origin, at, temp, difference in job.output]
    assert sorted(found) == oracle.expected(tmp_path / "input")
    assert len(found) > 900
    assert kept <= 26


@pytest.mark.parametrize("seed", range(2))
def test_the_model_learns_each_flight_once_whatever_fails(load: Load, tmp_path: Path, seed: int) -> None:
    """Three days of flights: a flight learned twice, or not, would change every later prediction of its airline."""
    flights, model, oracle = load("01-flights/prepare.py"), load("09-delay-model/delay_model.py"), load("09-delay-model/oracle.py")
    days = flights.in_event_time_order(flights.read_flights()).head(2_500)
    flights.write_days(days, tmp_path / "input")
    flown = days.dropna(subset=["dep_delay", "arr_delay"])
    carriers = flown["flight"].str[:2]
    columns = flown["flight_id"], naive(flown["scheduled"]), flown["dep_delay"], flown["arr_delay"], carriers
    rows = list(zip(*columns, strict=True))
    with TestingJob(model.DelayModel(), FLIGHTS, PREDICTIONS, key="carrier", event_time="scheduled", folder=tmp_path / "job") as job:
        job.run(with_failures(rows, seed, 0.01))
        found = pd.DataFrame(job.output, columns=["flight_id", "carrier", "predicted", "arrived"])
    assert oracle.equal(oracle.expected(tmp_path / "input"), found.set_index("flight_id")[["predicted", "arrived"]].sort_index())


def test_a_delivery_is_passed_on_again_once_its_id_is_forgotten(load: Load) -> None:
    """An hour of event time later the id is unknown again, however long that took."""
    example = load("07-deduplication/deduplication.py")
    schema = "id STRING, at TIMESTAMP, value DOUBLE"
    with KeyedProcessHarness(example.FirstDelivery(), schema, schema, key="id", event_time="at") as test:
        for _ in range(3):
            test.process_element(("a", 1.0), timestamp=0)
        test.process_element(("b", 2.0), timestamp=0)
        test.set_processing_time(24 * 3_600_000)
        test.process_element(("a", 1.0), timestamp=3_599_999)
        assert [row.id for row in test.get_output()] == ["a", "b"]
        test.process_element(("a", 1.0), timestamp=3_600_000)
        assert [row.id for row in test.get_output()] == ["a", "b", "a"]


def with_both_inputs(load: Load, folder: Path, flights: int) -> list[Any]:
    """The first flights and the observations of their weeks, as the two sources have them; both inputs in event-time order."""
    prepare_flights, prepare_weather = load("01-flights/prepare.py"), load("08-weather/prepare.py")
    days = prepare_flights.in_event_time_order(prepare_flights.read_flights()).head(flights)
    prepare_flights.write_days(days, folder / "flights")
    prepare_weather.prepare(folder / "weather", weeks=1)
    observed = pd.read_parquet(folder / "weather")
    scheduled, hours = naive(days["scheduled"]), naive(days["scheduled"].dt.floor("h"))
    departures = list(zip(days["flight_id"], scheduled, days["origin"], hours, strict=True))
    observations = [SECOND(row) for row in zip(observed["origin"], naive(observed["at"]), observed["temp"], strict=True)]
    return [*departures, *observations]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_each_departure_gets_the_temperature_of_its_hour_whatever_fails(load: Load, tmp_path: Path, seed: int) -> None:
    """Flights and observations of two days, interleaved at random; a departure waits for its observation or finds it, or there is none."""
    example, oracle = load("11-departure-weather/departure_weather.py"), load("11-departure-weather/oracle.py")
    rows = with_both_inputs(load, tmp_path, 1_500)
    chance = random.Random(seed)
    of_first, of_second = ([row for row in rows if isinstance(row, SECOND) == second] for second in (False, True))
    mixed: list[Any] = []
    while of_first or of_second:
        source = chance.choice([each for each in (of_first, of_second) if each])
        taken = chance.randint(1, 60)
        mixed += source[:taken]
        del source[:taken]
    with TestingJob(
        example.WithTemperature(),
        "flight_id INT, scheduled TIMESTAMP, origin STRING, hour TIMESTAMP",
        "flight_id INT, origin STRING, temp DOUBLE",
        key=("origin", "hour"),
        event_time="scheduled",
        second=SecondInput("airport STRING, at TIMESTAMP, temp DOUBLE", key=("airport", "at"), event_time="at"),
        folder=tmp_path / "job",
    ) as job:
        job.run([*with_failures(mixed, seed, 0.008), DRAIN])
        assert job.state("waiting") == job.state("temperature") == {}
        found = {flight: (origin, temp) for flight, origin, temp in job.output}
        assert len(found) == len(job.output)
    wanted = oracle.expected(tmp_path / "flights", tmp_path / "weather")
    assert found == wanted
    assert None in {temp for _, temp in wanted.values()}


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_each_observation_is_judged_by_the_rules_of_its_week_whatever_fails(load: Load, tmp_path: Path, seed: int) -> None:
    """Four weeks of real observations, with the rules that begin with each of them; a deleted rule leaves nothing behind at any airport."""
    example, oracle = load("12-alert-rules/alert_rules.py"), load("12-alert-rules/oracle.py")
    alert_rules_input(load, tmp_path)
    weeks = load("12-alert-rules/prepare.py").WEEKS
    items: list[Any] = []
    for week, path in enumerate(sorted((tmp_path / "out/alert-rules/weather").iterdir())):
        observed = pd.read_parquet(path)
        rules = [BROADCAST((each["rule"], each.get("condition"), each.get("limit"))) for each in weeks[week]]
        rows = zip(observed["origin"], naive(observed["at"]), observed["temp"], strict=True)
        items += [*with_failures([*rules, *rows], 10 * seed + week, 0.01), BATCH]
    with TestingJob(
        example.Alerts(),
        WEATHER,
        "origin STRING, at TIMESTAMP, rule STRING, alert STRING, temp DOUBLE",
        key="origin",
        event_time="at",
        broadcast=BroadcastInput("rule STRING, condition STRING, limit DOUBLE", example.RULES),
        folder=tmp_path / "job",
    ) as job:
        job.run(items)
        found = [(origin, pd.Timestamp(at, tz="UTC"), rule, alert, temp) for origin, at, rule, alert, temp in job.output]
        raised = {rule for rules in job.state("raised").values() for rule in rules}
        in_force = job.broadcast_state("rules")
    assert sorted(found) == oracle.expected(tmp_path / "out/alert-rules/weather", tmp_path / "out/alert-rules/rules")
    assert len(found) > 90
    assert in_force == {"cold": ("below", 25.0), "frost": ("below", 30.0), "thaw": ("above", 40.0)}
    assert raised <= in_force.keys()


def weather_input(load: Load, folder: Path) -> None:
    load("08-weather/prepare.py").prepare(folder / "out/weather/input", weeks=4)


def flights_input(load: Load, folder: Path) -> None:
    flights: ModuleType = load("01-flights/prepare.py")
    flights.write_days(flights.in_event_time_order(flights.read_flights()).head(5_000), folder / "out/delay-model/input")


def departures_input(load: Load, folder: Path) -> None:
    load("10-departures/prepare.py").prepare(folder / "out/departures/input", files=12)


def departure_weather_input(load: Load, folder: Path) -> None:
    flights: ModuleType = load("01-flights/prepare.py")
    flights.write_days(flights.in_event_time_order(flights.read_flights()).head(5_000), folder / "out/departure-weather/flights")
    load("08-weather/prepare.py").prepare(folder / "out/departure-weather/weather", weeks=1)


def alert_rules_input(load: Load, folder: Path) -> None:
    load("08-weather/prepare.py").prepare(folder / "out/alert-rules/weather", weeks=4)
    load("12-alert-rules/prepare.py").prepare(folder / "out/alert-rules/rules")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("example", "prepare"),
    [
        pytest.param("06-access-log", None, marks=pytest.mark.exhaustive),
        pytest.param("07-deduplication", None, marks=pytest.mark.exhaustive),
        pytest.param("08-weather", weather_input, marks=pytest.mark.exhaustive),
        pytest.param("09-delay-model", flights_input, marks=pytest.mark.exhaustive),
        pytest.param("10-departures", departures_input, marks=pytest.mark.exhaustive),
        pytest.param("11-departure-weather", departure_weather_input, marks=pytest.mark.exhaustive),
        pytest.param("12-alert-rules", alert_rules_input, marks=pytest.mark.exhaustive),
    ],
)
def test_the_job_on_spark_writes_what_its_oracle_says(
    load: Load, tmp_path: Path, example: str, prepare: Callable[[Load, Path], None] | None
) -> None:
    """The two commands that the README gives, in a folder of their own."""
    manifest = shutil.copytree(EXAMPLES / example, tmp_path / "examples" / example) / "job.yaml"
    manifest.write_text(manifest.read_text().replace("file:///tmp/", f"file://{tmp_path}/"))
    if prepare is not None:
        prepare(load, tmp_path)
    run = [str(Path(sys.executable).parent / "statefulspark"), "run", f"examples/{example}/job.yaml", "--until-idle", "--drain"]
    compare = [sys.executable, f"examples/{example}/oracle.py"]
    for command in (run, compare):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=290, check=False)
        assert done.returncode == 0, done.stderr[-4_000:]
