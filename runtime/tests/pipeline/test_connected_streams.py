"""Two keyed streams that are connected, as Spark analyzes them, and what cannot be connected; no query is started."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from runtime.tests.small_session import NOWHERE, small_session
from structlog.testing import capture_logs

from statefulspark import CoFlatMapFunction, CoMapFunction, KeyedCoProcessFunction, KeyedProcessFunction, OutputTag
from statefulspark.checkpoint.formats.pipeline import TICKS
from statefulspark.errors import InvalidInputError
from statefulspark.job.spark.sources import source_ids
from statefulspark.pipeline.job import Job

CLICKS = "user string, day date, at timestamp, page string"
PROFILES = "id string, changed timestamp, day date, at timestamp_ntz, `odd.name` struct<a: int>"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A small session of this module's own."""
    with small_session() as session:
        yield session


@pytest.fixture
def job(spark: SparkSession) -> Job:
    return Job(spark=spark, name="job", args=[], parallelism=2, max_parallelism=8, endpoint=NOWHERE, hashings={})


@pytest.fixture
def clicks(spark: SparkSession, tmp_path: Path) -> DataFrame:
    return spark.readStream.schema(CLICKS).json(str(tmp_path / "clicks"))


@pytest.fixture
def profiles(spark: SparkSession, tmp_path: Path) -> DataFrame:
    return spark.readStream.schema(PROFILES).json(str(tmp_path / "profiles"))


@pytest.fixture(autouse=True)
def folders(tmp_path: Path) -> None:
    for name in ("clicks", "profiles"):
        (tmp_path / name).mkdir()


class Both(KeyedCoProcessFunction):
    """Takes rows of both inputs."""

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None: ...

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None: ...


class One(KeyedProcessFunction):
    """Takes rows of one input."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None: ...


class Map(CoMapFunction):
    """Emits the key's name."""

    def map1(self, value: Any) -> Any:
        return value.user

    def map2(self, value: Any) -> Any:
        return value.id


class FlatMap(CoFlatMapFunction):
    """Emits nothing."""

    def flat_map1(self, value: Any) -> None: ...

    def flat_map2(self, value: Any) -> None: ...


def test_every_source_of_either_input_feeds_the_step(job: Job, clicks: DataFrame, profiles: DataFrame) -> None:
    """Offsets are matched by the step: a union within an input, and a keyed step before it, change nothing."""
    connected = job.key_by(clicks, "user", "day").connect(job.key_by(profiles.union(profiles), "id", "day"))
    with capture_logs() as logs:
        result = connected.process(Both(), "n bigint", uid="both", event_time1="at", event_time2="changed", watermark2="1 minute")
    assert [each["event"].split(":")[0] for each in logs] == ["uid 'both' has event time and no watermark1"]
    first = job.key_by(profiles.select("id", "day"), "id").process(One(), "id string", uid="first")
    chained = job.key_by(clicks, "user").connect(job.key_by(first, "id")).map(Map(), "user string", uid="chained")
    found = [(each.provider, each.feeds) for each in source_ids(result)]
    assert found == [("json", "both"), ("json", "both"), ("json", "both"), (TICKS, "both")]
    found = [(each.provider, each.feeds) for each in source_ids(chained)]
    assert found == [("json", "chained"), ("json", "first"), (TICKS, "first"), (TICKS, "chained")]
    assert [str(key) for key in job.keys] == ["(user = id string, day = day date)", "(id string)", "(user = id string)"]
    assert job.steps[0].delays_ms == (0, 60_000)
    assert job.steps[2].delays_ms == (None, None)


def test_the_columns_of_both_inputs_become_structs(job: Job, clicks: DataFrame) -> None:
    """Also when both inputs are one DataFrame, keyed by other columns; and the results can be tagged."""
    tag = OutputTag("late", "n bigint")
    pages = job.key_by(clicks, "page")
    job.key_by(clicks, "user").connect(pages).process(Both(), "n bigint", uid="one", side_outputs=[tag])
    flat = job.key_by(clicks, "user").connect(pages).flat_map(FlatMap(), "user string", uid="flat", event_time1="at")
    plan = flat._jdf.queryExecution().analyzed().toString()
    assert flat.columns == ["user"]
    assert [(each.provider, each.feeds, each.number) for each in source_ids(flat)] == [("json", "flat", 0)] * 2 + [(TICKS, "flat", 1)]
    assert plan.count("AS __1") == plan.count("AS __2") == 3, "two inputs and the ticks"
    assert "1073741824" in plan, "rows of the second input come after those of the first"


Build = Callable[[Job, DataFrame, DataFrame], Any]


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda job, a, b: job.key_by(a, "user").connect(b), "connect: expected a keyed stream, got DataFrame. Key it first"),
        (lambda job, a, b: (keyed := job.key_by(a, "user")).connect(keyed), "connect: the second input is the stream itself"),
        (
            lambda job, a, b: job.key_by(a, "user", "day").connect(job.key_by(b, "id")),
            "connect: the key of the first input is (user, day), and that of the second (id)",
        ),
        (
            lambda job, a, b: job.key_by(a, "user").connect(job.key_by(b, "day")),
            "connect: the key column 'user' of the first input is string, and 'day' of the second is date. Cast one of them",
        ),
        (lambda job, a, b: _process(job, a, b, func=One()), "func: is One, a KeyedProcessFunction, and the step has two inputs"),
        (lambda job, a, b: _process(job, a, b, func=Both), "func: expected a KeyedCoProcessFunction, got"),
        (
            lambda job, a, b: job.key_by(a, "user").process(Both(), "n int", uid="u"),
            "func: is Both, a KeyedCoProcessFunction, and the step has one input",
        ),
        (lambda job, a, b: _process(job, a, b, event_time1="no"), "event_time1: column 'no' does not exist"),
        (lambda job, a, b: _process(job, a, b, event_time2="id"), "event_time2: column 'id' is string, not a timestamp"),
        (
            lambda job, a, b: _process(job, a, b, event_time1="at", event_time2="at"),
            "event_time2: column 'at' is timestamp_ntz, and event_time1 is timestamp. Cast one of them",
        ),
        (lambda job, a, b: _process(job, a, b, watermark2="soon"), "watermark2: 'soon' is"),
        (lambda job, a, b: _process(job, a, b, watermark1=-1), "watermark1: must not be negative"),
        (lambda job, a, b: _process(job, a, b, uid=""), "uid: must have 1 to 200 characters"),
        (
            lambda job, a, b: job.key_by(a, "user").connect(job.key_by(b, "id")).map(lambda row: row, "n int", uid="u"),
            "map: expected a CoMapFunction",
        ),
    ],
)
def test_what_does_not_fit_is_refused(job: Job, clicks: DataFrame, profiles: DataFrame, build: Build, said: str) -> None:
    """By name and with the remedy, before anything is started."""
    with pytest.raises(InvalidInputError) as refused:
        build(job, clicks, profiles)
    assert str(refused.value).startswith(said)
    assert job.steps == []


def _process(job: Job, a: DataFrame, b: DataFrame, *, func: Any = None, uid: str = "u", **options: Any) -> None:
    job.key_by(a, "user").connect(job.key_by(b, "id")).process(func or Both(), "n bigint", uid=uid, **options)
