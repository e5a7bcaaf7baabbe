"""State tables in a Spark session: rows, partitions, wanted keys, and Spark's own hash of keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from runtime.tests.small_session import small_session
from state_snapshots import UID

from statefulspark import state_tables
from statefulspark.keygroups import slot_of
from statefulspark.state_tables import StorageSettings

from .snapshots import GROUPS, counts_of_users, hashed_groups

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A session in which the data source is registered, with credentials that file:// does not need."""
    with small_session() as session:
        session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        state_tables.register(session, storage=StorageSettings(access_key_id="id", secret_access_key="hidden-secret"))
        yield session


@pytest.mark.parametrize("backend", ["filesystem", "rocksdb"])
def test_a_state_as_a_dataframe(spark: SparkSession, tmp_path: Path, backend: str) -> None:
    """Partitions are ranges of key groups, a DataFrame may be filtered again and again, and wanted keys read only the files of their slots."""
    url, slots = counts_of_users(tmp_path, 200, backend=backend)
    df = spark.read.format("statefulspark").option("uid", UID).option("state", "count").load(url)
    assert df.schema.simpleString() == "struct<key_group:int,user:string,value:bigint>"
    rows = df.withColumn("partition", F.spark_partition_id()).collect()
    assert {row.user: (row.value, row.partition) for row in rows} == {user: (number, slots[user]) for number, user in enumerate(slots)}
    assert all(slot_of(row.key_group, 2, GROUPS) == row.partition for row in rows)
    first, second = df.where("user = 'user-1'"), df.where("user = 'user-2'")
    assert (first.count(), df.count(), second.count(), first.union(second).count()) == (1, 200, 1, 2)
    for file in (tmp_path / "savepoint" / "slot-1").iterdir():
        file.write_bytes(b"damaged")
    here = [user for user, slot in slots.items() if slot == 0][:3]
    few = spark.read.format("statefulspark").options(uid=UID, state="count", keys=json.dumps(here)).load(url)
    assert sorted(row.user for row in few.collect()) == sorted(here)
    with pytest.raises(Exception, match="savepoint/slot-1/"):
        df.collect()
    assert "hidden-secret" not in few._jdf.queryExecution().toString()


_KEYS: list[tuple[str, list[Any]]] = [
    ("string", ["", "a", "é" * 40, "x" * 31, "x" * 32, "x" * 33, "\U0001f600"]),
    ("binary", [bytearray(b""), bytearray(b"\0" * 7), bytearray(range(64))]),
    ("bigint", [0, -1, 1 << 62, -(1 << 63)]),
    ("int", [0, -1, 1 << 30]),
    ("smallint", [-7]),
    ("boolean", [True, False]),
    ("date", [date(1, 1, 1), date(2024, 2, 29)]),
    ("timestamp", [datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC), datetime(1960, 1, 1, tzinfo=UTC)]),
    ("timestamp_ntz", [datetime(2024, 2, 29, 1, 2, 3, 4)]),  # noqa: DTZ001
    ("decimal(10,2)", [Decimal("-12345678.90"), Decimal("0.00")]),
    ("decimal(38,4)", [Decimal("-" + "9" * 34 + ".0001"), Decimal("1.0000"), Decimal("-0.0128")]),
]


def _stored(value: Any) -> Any:
    """A value as a key has it."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return bytes(value) if isinstance(value, bytearray) else value


def test_key_groups_are_those_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Every type that a key column may have, alone and after another column. Integers of every width are hashed as bigint."""
    text = [str(number) for number in range(max(len(values) for _, values in _KEYS))]
    for place, (kind, values) in enumerate(_KEYS):
        rows = [(value, text[row]) for row, value in enumerate(values)]
        hashed = "bigint" if kind in {"int", "smallint"} else kind
        groups = f"pmod(xxhash64(cast(k as {hashed})), {GROUPS})", f"pmod(xxhash64(t, cast(k as {hashed})), {GROUPS})"
        found = spark.createDataFrame(rows, f"k {kind}, t string").selectExpr("k", "t", *groups).collect()
        one = hashed_groups(tmp_path / f"one-{place}", [("k", kind)], [_stored(value) for value in values])
        two = hashed_groups(tmp_path / f"two-{place}", [("t", "string"), ("k", kind)], [(name, _stored(value)) for value, name in rows])
        assert [each[2] for each in found] == [one[_stored(value)] for value in values], kind
        assert [each[3] for each in found] == [two[name, _stored(value)] for value, name in rows], kind


def test_texts_of_every_length_have_the_hash_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    """The algorithm treats what is left after 32, 8 and 4 bytes each in its own way."""
    random = Random(5)
    texts = ["".join(random.choices("aé€", k=length)) for length in range(70)]
    found = spark.createDataFrame([(text,) for text in texts], "k string").selectExpr(f"pmod(xxhash64(k), {GROUPS})").collect()
    groups = hashed_groups(tmp_path / "texts", [("k", "string")], texts)
    assert [row[0] for row in found] == [groups[text] for text in texts]
