"""Savepoints made of Spark DataFrames: those that Arrow tables make, in Spark's own key groups; what does not fit leaves nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from runtime.tests.small_session import small_session
from state_snapshots import UID

from statefulspark import ListStateDescriptor, MapStateDescriptor, Types, ValueStateDescriptor, state_tables
from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.errors import InvalidInputError
from statefulspark.state_tables import SavepointWriter
from statefulspark.state_tables.bootstrap import spark_rows
from statefulspark.state_tables.bootstrap.spark_rows import SparkRows

from .canonical_savepoints import contents
from .snapshots import counts_of_users

pytestmark = pytest.mark.slow
COUNT = ValueStateDescriptor("s", Types.LONG())
GROUPS = 128


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with small_session("local[2]") as session:
        session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        session.conf.set("spark.sql.shuffle.partitions", "2")
        yield session


_KEYS: list[tuple[str, list[Any]]] = [
    ("string", ["", "a", "é" * 40, "x" * 33, "\U0001f600", "null"]),
    ("binary", [bytearray(b""), bytearray(b"\0" * 7), bytearray(range(64))]),
    ("bigint", [0, -1, 1 << 62, -(1 << 63)]),
    ("int", [0, -1, 1 << 30]),
    ("boolean", [True, False]),
    ("date", [date(1, 1, 1), date(2024, 2, 29)]),
    ("timestamp", [datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC), datetime(1960, 1, 1, tzinfo=UTC)]),
    ("timestamp_ntz", [datetime(2024, 2, 29, 1, 2, 3, 4), datetime(1960, 1, 1)]),  # noqa: DTZ001
    ("decimal(10,2)", [Decimal("-12345678.90"), Decimal("0.00")]),
    ("decimal(38,4)", [Decimal("-" + "9" * 34 + ".0001"), Decimal("-0.0128")]),
]


def _arrow(frame: DataFrame) -> pa.Table:
    """Spark's own conversion, on the driver."""
    return frame.toArrow()


@pytest.mark.parametrize(("type_", "keys"), _KEYS, ids=[type_ for type_, _ in _KEYS])
def test_keys_of_every_type_are_where_spark_hashes_them(spark: SparkSession, tmp_path: Path, type_: str, keys: list[Any]) -> None:
    """The oracles: the hash that a job's query plan computes, and the savepoint of the same rows as an Arrow table."""
    frame = spark.createDataFrame([(key, at) for at, key in enumerate(keys)], f"k {type_}, value bigint")
    new = SavepointWriter.new_savepoint(GROUPS)
    done = new.with_state("step", COUNT, frame, key_columns=["k"]).write(str(tmp_path / "spark"))
    widened = "bigint" if type_ == "int" else type_
    groups = frame.selectExpr("value", f"pmod(xxhash64(CAST(k AS {widened})), {GROUPS}) AS key_group")
    found = state_tables.read_arrow(done.url, "step", "s").select(["value", "key_group"])
    assert sorted((row["value"], row["key_group"]) for row in found.to_pylist()) == sorted(map(tuple, groups.collect()))
    table = new.with_state("step", COUNT, _arrow(frame), key_columns=["k"]).write(str(tmp_path / "arrow"))
    assert contents(done.url) == contents(table.url)


def test_frames_and_tables_make_equal_savepoints(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values, rows, maps and lists of two key columns with names that are syntax, in several partitions, new and merged."""
    monkeypatch.setattr(spark_rows, "SparkRows", partial(SparkRows, partition_bytes=6_000))
    rows = [(f"user-{number % 37}", number // 37, number, [number] * (1 + number % 3), str(number)) for number in range(200)]
    every = spark.createDataFrame(rows, "u string, i int, n bigint, l array<bigint>, t string").withColumnsRenamed(
        {"u": "a.b", "i": "c `d"}
    )
    key = ["a.b", "c `d"]
    states: list[tuple[Any, DataFrame]] = [
        (ValueStateDescriptor("v", Types.LONG()), every.select("`a.b`", "`c ``d`", F.col("n").alias("value"))),
        (ListStateDescriptor("l", Types.LONG()), every.select("`c ``d`", "`a.b`", F.col("l").alias("value"))),
        (ValueStateDescriptor("r", Types.ROW_NAMED(["n", "t"], [Types.LONG(), Types.STRING()])), every.drop("l")),
        (
            MapStateDescriptor("m", Types.STRING(), Types.LONG()),
            every.select("`a.b`", "`c ``d`", F.col("t").alias("map_key"), F.col("n").alias("value")).union(
                every.select("`a.b`", "`c ``d`", F.lit("also"), "n")
            ),
        ),
    ]
    written = []
    for convert in (lambda frame: frame, _arrow):
        writer = SavepointWriter.new_savepoint(7)
        for descriptor, frame in states:
            writer = writer.with_state("step", descriptor, convert(frame), key_columns=key)
        done = writer.write(str(tmp_path / "new"))
        assert (verify(done.url).problems, done.entries) == ((), 1000)
        merged = SavepointWriter.from_existing_savepoint(done.url)
        for descriptor, frame in states:
            change = frame.where("n % 5 = 0") if "n" in frame.columns else frame.limit(50)
            merged = merged.with_state("step", descriptor, convert(change), key_columns=key, merge=True)
        written.append((contents(done.url), contents(merged.write(str(tmp_path / "merged")).url)))
    assert written[0][0] == written[1][0]
    assert written[0][1] == written[1][1]
    assert spark._jsc is not None
    assert spark._jsc.sc().getPersistentRDDs().isEmpty()


_SECRET = 987654321


@pytest.mark.parametrize(
    ("sql", "type_", "message"),
    [
        (f"SELECT 'a' AS user, {_SECRET} AS value UNION ALL SELECT 'b', 1", Types.SHORT(), "column 'value': "),
        ("SELECT 'a' AS user, 1L AS value UNION ALL SELECT NULL, 2L", Types.LONG(), "column 'user': key column is null"),
        ("SELECT 'a' AS user, 1L AS value UNION ALL SELECT 'b', NULL", Types.LONG(), "column 'value': the value is null"),
        (f"SELECT 'a' AS user, '{_SECRET}' AS value", Types.LONG(), "column 'value'"),
        (
            f"SELECT {_SECRET} + id % 4 AS user, id AS value FROM range(6)",
            Types.LONG(),
            r"keys with several rows: 2\..*dropDuplicates\(\[.user",
        ),
        ("SELECT 'a' AS user", Types.LONG(), "expected one column 'value'"),
        ("SELECT 'a' AS id, 1 AS value", Types.LONG(), "expected one column 'user'"),
        ("SELECT 'a' AS user, 1L AS value, 2 AS x", Types.LONG(), "'x' is no part of the state"),
        ("SELECT 1.5D AS user, 1L AS value", Types.LONG(), "cannot be a key"),
        ("SELECT 'a' AS user, 1L AS value, 'b' AS USER", Types.LONG(), "'USER' is no part of the state"),
        ("SELECT 'a' AS user, make_interval(1) AS value", Types.LONG(), "which Arrow does not have"),
    ],
)
def test_bad_rows_are_named_and_leave_nothing(spark: SparkSession, tmp_path: Path, sql: str, type_: Any, message: str) -> None:
    """Neither a file, nor rows on the executors, nor a value in the message."""
    writer = SavepointWriter.new_savepoint(8).with_state("step", ValueStateDescriptor("s", type_), spark.sql(sql), key_columns=["user"])
    with pytest.raises(InvalidInputError, match=message) as refused:
        writer.write(str(tmp_path / "target"))
    assert str(_SECRET) not in str(refused.value)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert spark._jsc is not None
    assert spark._jsc.sc().getPersistentRDDs().isEmpty()


def test_a_streaming_dataframe_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.readStream.format("rate").load().selectExpr("CAST(value AS STRING) AS user", "value")
    with pytest.raises(InvalidInputError, match="a streaming DataFrame has no end"):
        SavepointWriter.new_savepoint(8).with_state("step", COUNT, frame, key_columns=["user"]).write(str(tmp_path / "target"))


def test_rows_that_change_while_they_are_read_are_refused(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the disk of an executor is lost, Spark computes the rows again: other rows then would be a savepoint of nothing that ever was."""
    calls = tmp_path / "calls"

    def more_each_time(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        with calls.open("a") as file:
            file.write(".")
        number = len(calls.read_text())
        yield pa.RecordBatch.from_pydict({"user": [f"u{each}" for each in range(number)], "value": list(range(number))})

    frame = spark.range(1, numPartitions=1).mapInArrow(more_each_time, "user string, value bigint")
    fetch = spark_rows._sorted

    def after_a_loss(encoded: DataFrame, partitions: int) -> Iterator[Any]:
        encoded.unpersist(blocking=True)
        return fetch(encoded, partitions)

    monkeypatch.setattr(spark_rows, "_sorted", after_a_loss)
    with pytest.raises(InvalidInputError, match="Spark found 1 rows and then 2"):
        SavepointWriter.new_savepoint(8).with_state("step", COUNT, frame, key_columns=["user"]).write(str(tmp_path / "target"))
    assert not (tmp_path / "target").exists()


def test_keys_of_a_savepoint_are_patched_from_a_frame(spark: SparkSession, tmp_path: Path) -> None:
    """Its timers and other keys stay; a key column of another type is refused, because a job would not find its state."""
    url, _ = counts_of_users(tmp_path, 5)
    count = ValueStateDescriptor("count", Types.LONG())
    merged = partial(SavepointWriter.from_existing_savepoint(url).with_state, UID, count, key_columns=["user"], merge=True)
    done = merged(spark.sql("SELECT 'user-1' AS user, 100L AS value UNION ALL SELECT 'ada', 7L")).write(str(tmp_path / "target"))
    found = state_tables.read_arrow(done.url, UID, "count").select(["user", "value"]).to_pylist()
    assert {row["user"]: row["value"] for row in found} == {"user-0": 0, "user-1": 100, "user-2": 2, "user-3": 3, "user-4": 4, "ada": 7}
    with pytest.raises(InvalidInputError, match="the key of uid"):
        merged(spark.sql("SELECT 1 AS user, 100L AS value")).write(str(tmp_path / "target"))
