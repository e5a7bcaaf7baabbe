"""examples/14-kafka/rejects.py on records of every kind, by Spark's own functions: payments stay, the others are dead letters with their place."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from runtime.tests.small_session import small_session

from .conftest import EXAMPLES

pytestmark = pytest.mark.slow
RECORDS = [
    (b"alice", b'{"account": "alice", "cents": 500}', 0, 10),
    (b"bob", b"not JSON", 0, 11),
    (b"bob", b'{"account": "bob", "cents": "many"}', 0, 12),
    (None, b'{"cents": 5}', 1, 3),
    (None, None, 1, 4),
    (b"large", b'{"account": "' + b"x" * 5_000_000 + b'", "cents": 1}', 1, 5),
    (None, b'{"account": "carol", "cents": -7, "more": 1}', 1, 6),
]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A small session of this module's own."""
    with small_session() as session:
        yield session


@pytest.fixture
def rejects(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module, which finds the others of its folder as in a job."""
    monkeypatch.syspath_prepend(str(EXAMPLES / "14-kafka"))
    yield import_module("rejects")
    sys.modules.pop("rejects")


@pytest.fixture
def records(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(RECORDS, "key BINARY, value BINARY, partition INT, offset LONG").selectExpr("*", "'payments' AS topic")


def test_what_is_no_payment_is_a_dead_letter_with_its_place(rejects: Any, records: DataFrame) -> None:
    assert sorted(rejects.good(records, strict=False).collect()) == [("alice", 500), ("carol", -7)]
    letters = {row.headers[0]["value"].decode(): row for row in rejects.dead_letters(records, "rejects").collect()}
    assert {row.topic for row in letters.values()} == {"rejects"}
    assert {place: (row.key and bytes(row.key), row.value and bytes(row.value)) for place, row in letters.items()} == {
        "topic payments, partition 0, offset 11: not JSON of a payment": (b"bob", b"not JSON"),
        "topic payments, partition 0, offset 12: not JSON of a payment": (b"bob", RECORDS[2][1]),
        "topic payments, partition 1, offset 3: no account or no cents": (None, b'{"cents": 5}'),
        "topic payments, partition 1, offset 4: no account or no cents": (None, None),
        "topic payments, partition 1, offset 5: 5000027 bytes": (b"large", (RECORDS[5][1] or b"")[:1000]),
    }


def test_a_strict_job_names_the_place_and_no_payload(rejects: Any, records: DataFrame) -> None:
    assert rejects.good(records.where("offset IN (6, 10)"), strict=True).count() == 2
    with pytest.raises(PySparkException, match=r"topic payments, partition 0, offset 12: not JSON of a payment") as raised:
        rejects.good(records.where("offset IN (6, 12)"), strict=True).collect()
    assert "many" not in str(raised.value)


def test_the_page_shows_these_functions(rejects: Any) -> None:
    """Word for word."""
    page = (EXAMPLES.parent / "docs" / "how-to" / "kafka.md").read_text()
    source = Path(rejects.__file__).read_text()
    for name in ("checked", "place", "good", "dead_letters"):
        first = source.index(f"def {name}(")
        assert source[first : source.index("\n\n\n", first)] in page
