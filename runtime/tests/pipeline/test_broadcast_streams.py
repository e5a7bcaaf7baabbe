"""A keyed stream connected with a broadcast stream, as Spark analyzes it, and what cannot be broadcast; no query is started."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from runtime.tests.small_session import NOWHERE, small_session
from structlog.testing import capture_logs

from statefulspark import (
    BroadcastConnectedStream,
    BroadcastStream,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    MapStateDescriptor,
    OutputTag,
    Types,
    ValueStateDescriptor,
)
from statefulspark.checkpoint.formats.pipeline import TICKS
from statefulspark.errors import InvalidInputError
from statefulspark.job.spark.sources import source_ids
from statefulspark.pipeline.job import Job

RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A small session of this module's own."""
    with small_session() as session:
        yield session


@pytest.fixture
def job(spark: SparkSession) -> Job:
    return Job(spark=spark, name="job", args=[], parallelism=3, max_parallelism=8, endpoint=NOWHERE, hashings={})


@pytest.fixture
def clicks(spark: SparkSession, tmp_path: Path) -> DataFrame:
    (tmp_path / "clicks").mkdir()
    return spark.readStream.schema("user string, at timestamp, page string").json(str(tmp_path / "clicks"))


@pytest.fixture
def rules(spark: SparkSession, tmp_path: Path) -> DataFrame:
    (tmp_path / "rules").mkdir()
    return spark.readStream.schema("name string, at timestamp_ntz, `odd.name` struct<a: int>").csv(str(tmp_path / "rules"))


class Follow(KeyedBroadcastProcessFunction):
    """Takes rows of both streams."""

    def process_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> None: ...

    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> None: ...


class One(KeyedProcessFunction):
    """Takes rows of one stream."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None: ...


def test_the_broadcast_stream_feeds_the_step(job: Job, clicks: DataFrame, rules: DataFrame, tmp_path: Path) -> None:
    """Offsets are matched by the step, event times may be of two types, and the results can be tagged."""
    stream = job.broadcast(rules.select("name", "at"), RULES)
    connected = job.key_by(clicks, "user").connect(stream)
    assert isinstance(connected, BroadcastConnectedStream)
    assert connected.broadcast_state_descriptors == (RULES,)
    late = OutputTag("late", "n bigint")
    options: dict[str, Any] = {"event_time": "at", "broadcast_event_time": "at", "broadcast_watermark": "1 minute"}
    with capture_logs() as logs:
        result = connected.process(Follow(), "n bigint", uid="follow", **options)
    assert [each["event"].split(":")[0] for each in logs] == ["uid 'follow' has event time and no watermark"]
    connected.process(Follow(), "n bigint", uid="tagged", side_outputs=[late])
    paths = [(each.label.removeprefix(each.provider).strip(), each.feeds) for each in source_ids(result)]
    assert [(Path(label).name if label.startswith("file:") or "/" in label else label, feeds) for label, feeds in paths[:2]] == [
        ("clicks", "follow"),
        ("rules", "follow"),
    ]
    assert [each.provider for each in source_ids(result)] == ["json", "csv", TICKS]
    assert [str(key) for key in job.keys] == ["(user string)", "(user string)"]
    assert [step.delays_ms for step in job.steps] == [(0, 60_000), (None, None)]
    assert [step.broadcast for step in job.steps] == [(RULES,)] * 2


def test_the_columns_become_a_struct_with_the_source_partition(job: Job, clicks: DataFrame, rules: DataFrame) -> None:
    """Whatever their names and types; each row is repeated for all slots."""
    result = job.key_by(clicks, "user").connect(job.broadcast(rules, RULES)).process(Follow(), "n bigint", uid="follow")
    plan = result._jdf.queryExecution().analyzed().toString()
    assert "__part" in plan
    assert "odd.name" in plan
    assert plan.count("sequence(0, 2") == 2, "the broadcast stream and the ticks go to three slots"


Build = Callable[[Job, DataFrame, DataFrame], Any]


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda job, _, b: job.broadcast(b), "broadcast: no state descriptor. Pass at least one MapStateDescriptor"),
        (
            lambda job, _, b: job.broadcast(b, ValueStateDescriptor("v", Types.LONG())),
            "broadcast: expected MapStateDescriptors, got a ValueStateDescriptor",
        ),
        (lambda job, _, b: job.broadcast(b, RULES, RULES), "broadcast: two states are named 'rules'"),
        (
            lambda job, _, __: job.broadcast(job.spark.range(3), RULES),
            "broadcast: the DataFrame is not a stream. Read it with spark.readStream, or join it with the keyed stream in Spark",
        ),
        (lambda job, _, __: job.broadcast("rules", RULES), "broadcast: expected a streaming DataFrame, got a str"),
        (lambda job, _, b: job.broadcast(b.withColumnRenamed("name", "__part"), RULES), "broadcast: column '__part' has a reserved name"),
        (
            lambda job, a, b: job.broadcast(
                _connected(job, a, b).process(Follow(), "n int", uid="t", side_outputs=[OutputTag("t", "n int")]), RULES
            ),
            "broadcast: the step 't' has side outputs",
        ),
        (
            lambda job, a, b: job.key_by(a, "user").connect(BroadcastStream(_other(job), b, [RULES])),
            "connect: the broadcast stream is one of another job",
        ),
        (
            lambda job, a, b: job.key_by(a, "user").connect(b),
            "connect: expected a keyed stream, got DataFrame. Key it first: job.key_by(df, 'user'), or broadcast it",
        ),
        (lambda job, a, b: _process(job, a, b, func=One()), "func: is One, a KeyedProcessFunction, and the step has a broadcast input"),
        (lambda job, a, b: _process(job, a, b, func=Follow), "func: expected a KeyedBroadcastProcessFunction, got"),
        (
            lambda job, a, _: job.key_by(a, "user").process(Follow(), "n int", uid="u"),
            "func: is Follow, a KeyedBroadcastProcessFunction, and the step has one input",
        ),
        (lambda job, a, b: _process(job, a, b, event_time="no"), "event_time: column 'no' does not exist"),
        (
            lambda job, a, b: _process(job, a, b, broadcast_event_time="name"),
            "broadcast_event_time: column 'name' is string, not a timestamp",
        ),
        (lambda job, a, b: _process(job, a, b, broadcast_watermark="soon"), "broadcast_watermark: 'soon' is"),
        (lambda job, a, b: _process(job, a, b, uid=""), "uid: must have 1 to 200 characters"),
    ],
)
def test_what_does_not_fit_is_refused(job: Job, clicks: DataFrame, rules: DataFrame, build: Build, said: str) -> None:
    """By name and with the remedy, before anything is started."""
    with pytest.raises(InvalidInputError) as refused:
        build(job, clicks, rules)
    assert str(refused.value).startswith(said)


def _connected(job: Job, a: DataFrame, b: DataFrame) -> BroadcastConnectedStream:
    return job.key_by(a, "user").connect(job.broadcast(b, RULES))


def _process(job: Job, a: DataFrame, b: DataFrame, *, func: Any = None, uid: str = "u", **options: Any) -> None:
    _connected(job, a, b).process(func or Follow(), "n bigint", uid=uid, **options)


def _other(job: Job) -> Job:
    return Job(spark=job.spark, name="other", args=[], parallelism=3, max_parallelism=8, endpoint=NOWHERE, hashings={})
