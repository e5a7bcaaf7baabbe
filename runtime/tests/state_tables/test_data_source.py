"""The data source without a Spark session: what Spark's own worker code makes of it. `test_spark.py` has the session."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.worker.plan_data_source_read import records_to_arrow_batches
from state_snapshots import UID, write_savepoint

from statefulspark.errors import InvalidInputError
from statefulspark.state.encoding.layout import store_key
from statefulspark.state.types.types import TypeInformation, Types
from statefulspark.state_tables.read.data_source import StateDataSource, TableReader
from statefulspark.storage.storage_settings import StorageSettings

from .snapshots import counts_of_users, info_of


def _source(url: str, **options: str) -> StateDataSource:
    return StateDataSource({"path": url, "uid": UID, "state": "count"} | options)


def _reader(source: StateDataSource) -> TableReader:
    reader = source.reader(source.schema())
    assert isinstance(reader, TableReader)
    return reader


def _rows(source: StateDataSource, reader: TableReader, partition: InputPartition) -> list[dict[str, Any]]:
    """What an executor sends to Spark, which checks the schema."""
    batches = records_to_arrow_batches(reader.read(partition), 1000, source.schema(), source)
    return [row for batch in batches for row in batch.to_pylist()]


def test_a_partition_per_slot_and_keys_leave_fewer(tmp_path: Path) -> None:
    """Each has the key groups of its slot; only slots with wanted keys have one."""
    url, slots = counts_of_users(tmp_path, 40, parallelism=4)
    source = _source(url)
    reader = _reader(source)
    partitions = reader.partitions()
    assert [part.value.slot for part in partitions] == [0, 1, 2, 3]
    assert [(part.value.key_groups[0], part.value.key_groups[-1]) for part in partitions] == [(0, 31), (32, 63), (64, 95), (96, 127)]
    for part in partitions:
        assert {row["user"] for row in _rows(source, reader, part)} == {user for user, slot in slots.items() if slot == part.value.slot}
    source = _source(url, keys='["user-1", "user-2"]')
    reader = cloudpickle.loads(cloudpickle.dumps(_reader(source)))
    found = {part.value.slot: [row["user"] for row in _rows(source, reader, part)] for part in reader.partitions()}
    assert set(found) == {slots["user-1"], slots["user-2"]}
    assert sorted(user for users in found.values() for user in users) == ["user-1", "user-2"]
    assert _reader(_source(url, keys="[]")).partitions() == []
    assert list(reader.read(InputPartition(None))) == []


def test_filters_are_not_taken_from_spark() -> None:
    """Spark 4.3 would keep what one query's filter left for all queries of the DataFrame."""
    assert TableReader.pushFilters is DataSourceReader.pushFilters


@pytest.mark.parametrize(
    "type_",
    [
        Types.BYTE(),
        Types.BIG_INT(),
        Types.BIG_DEC(),
        Types.FLOAT(),
        Types.CHAR(),
        Types.SQL_DATE(),
        Types.SQL_TIME(),
        Types.SQL_TIMESTAMP(),
        Types.INSTANT(),
        Types.PICKLED_BYTE_ARRAY(),
        Types.PRIMITIVE_ARRAY(Types.BYTE()),
        Types.LIST(Types.LIST(Types.SQL_TIME())),
        Types.MAP(Types.STRING(), Types.TUPLE([Types.SQL_TIME(), Types.MAP(Types.LONG(), Types.STRING())])),
        Types.ROW_NAMED(["a", "b"], [Types.LIST(Types.SQL_TIMESTAMP()), Types.ROW([Types.BOOLEAN()])]),
    ],
    ids=repr,
)
def test_spark_accepts_every_type(tmp_path: Path, type_: TypeInformation) -> None:
    """Spark compares the schema of batches with that of the DataFrame, units and names of nested fields included."""
    info = info_of("count", Types.MAP(Types.STRING(), type_), kind="map")
    key = Types.STRING().encode("ada")
    url = write_savepoint(tmp_path / "savepoint", [info], [(store_key(1, 1, key, b"k"), b"\3")], parallelism=1)
    source = _source(url)
    reader = _reader(source)
    (row,) = _rows(source, reader, reader.partitions()[0])
    assert row["map_key"] == "k"
    assert row[list(row)[-1]] is None


def test_the_newest_checkpoint_is_chosen_once(tmp_path: Path) -> None:
    """Executors read the checkpoint that the driver planned with."""
    url, _ = counts_of_users(tmp_path, 3)
    reader = _reader(_source(f"{url}/_metadata"))
    assert cloudpickle.loads(cloudpickle.dumps(reader))._url == url


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"uid": ""}, "option 'uid': is missing"),
        ({"state": ""}, "option 'state': is missing"),
        ({"acess_key": "x"}, r"there is no such option.*register\(spark, storage"),
        ({"secretAccessKey": "hidden"}, "option 'secretaccesskey'"),
        ({"unpickle": "yes"}, "Write true or false"),
        ({"state": "counts"}, "Use one of: count"),
        ({"keys": "user-1"}, r"keys: not a JSON list.*\["),
        ({"keys": "{}"}, "keys: not a JSON list"),
        ({"keys": "[1]"}, "keys: not a JSON list of keys of type STRING"),
    ],
)
def test_wrong_options_are_named(tmp_path: Path, options: dict[str, str], message: str) -> None:
    url, _ = counts_of_users(tmp_path, 1)
    with pytest.raises(InvalidInputError, match=message) as refused:
        _reader(_source(url, **options)).partitions()
    assert "hidden" not in str(refused.value)


def test_options_are_found_in_any_case_and_storage_fills_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark keeps the small letters of names only; options replace what the class of the source says."""
    url, _ = counts_of_users(tmp_path, 1)
    assert _source(url, WITHEXPIRY="True").schema().names[-1] == "expires_ms"
    seen: list[StorageSettings] = []

    def opened(url: str, settings: StorageSettings) -> None:
        seen.append(settings)
        raise LookupError(url)

    monkeypatch.setattr("statefulspark.state_tables.read.data_source.open_store", opened)
    monkeypatch.setattr(StateDataSource, "storage", StorageSettings(access_key_id="id", secret_access_key="hidden", region="eu"))
    with pytest.raises(LookupError):
        _source("s3://bucket/x", endpoint="http://minio:9000", pathstyle="false").schema()
    assert (seen[0].endpoint, seen[0].region, seen[0].path_style, seen[0].secret_access_key) == ("http://minio:9000", "eu", False, "hidden")
    assert "hidden" not in repr(seen[0])
    assert b"hidden" not in pickle.dumps(dict(_source(url).options))
