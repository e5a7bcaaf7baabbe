"""A canonical savepoint's tables are read instead of its entries, and show what the entries would."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime.tests.depth import examples
from state_snapshots import NOW_MS, UID, write_savepoint

from statefulspark import Types, state_tables
from statefulspark.checkpoint.catalog import open_checkpoint
from statefulspark.checkpoint.formats.metadata import TableFile
from statefulspark.errors import CorruptDataError, InvalidInputError
from statefulspark.state.encoding.keys import KeyCodec
from statefulspark.state.encoding.layout import StateInfo, store_key
from statefulspark.state.encoding.values import join_expiry
from statefulspark.state_tables.canonical.conversion import ConvertedSavepoint
from statefulspark.state_tables.canonical.tables import CanonicalTables
from statefulspark.state_tables.read.reading import StateReader
from statefulspark.storage.open import open_store

from .canonical_savepoints import converted
from .snapshots import counts_of_users, info_of
from .test_arrays import TYPED
from .test_canonical import NATIVE

OPTIONS = [
    dict(zip(("include_expired", "with_expiry", "unpickle", "decimals_as_text"), flags, strict=True))
    for flags in product((False, True), repeat=4)
]


def _read(url: str, uid: str, state: str, options: dict[str, bool]) -> str:
    """Columns and rows as text, in which NaN is equal to itself; or why they cannot be read."""
    try:
        found = state_tables.read_arrow(url, uid, state, **options)
    except InvalidInputError as error:
        return error.message
    return repr((found.schema, found.to_pylist()))


@pytest.mark.parametrize("folder", NATIVE, ids=lambda each: each.name)
def test_every_option_shows_what_the_origin_shows(folder: Path, tmp_path: Path) -> None:
    """Of every golden savepoint: evolved, pickled, expired and raw state, windows and timers."""
    shutil.copytree(folder, tmp_path / "savepoint")
    url = (tmp_path / "savepoint").as_uri()
    made = converted(url, tmp_path / "target")
    for table in state_tables.list_states(url):
        for options in OPTIONS:
            assert _read(made.url, table.uid, table.state, options) == _read(url, table.uid, table.state, options), (table, options)


@settings(deadline=None, max_examples=examples(8, 100))
@given(data=st.data(), name=st.sampled_from(["value", "expires_ms", "key_group", "a.b"]))
def test_random_states_are_read_as_their_origin(data: st.DataObject, name: str) -> None:
    """Rows with any name of a field, also one that the library adds, with values that have expired and values that have not."""
    drawn, values = data.draw(TYPED)
    type_ = Types.ROW_NAMED([name], [drawn])
    key_type = Types.LONG()
    info = replace(info_of("v", type_, keys=(key_type,)), ttl_ms=data.draw(st.sampled_from([None, 1000])))
    codec, entries = KeyCodec([key_type]), {}
    for number in range(data.draw(st.integers(0, 6))):
        stored = b"\1" + type_.encode((data.draw(values),))
        late = data.draw(st.integers(-2, 2))
        key = store_key(data.draw(st.integers(0, 127)), 1, codec.encode(number))
        entries[key] = stored if info.ttl_ms is None else join_expiry(NOW_MS + late, stored)
    with tempfile.TemporaryDirectory() as folder:
        url = write_savepoint(Path(folder) / "savepoint", [info], entries.items(), parallelism=3)
        made = converted(url, Path(folder) / "target")
        for options in OPTIONS:
            assert _read(made.url, UID, "v", options) == _read(url, UID, "v", options)


@pytest.mark.parametrize("recurs", [False, True])
def test_large_values_come_in_small_batches(tmp_path: Path, recurs: bool) -> None:
    """A row group of the table is larger than a batch should be, so it is cut; also if its file is small, because one value recurs."""
    key, value = KeyCodec([Types.LONG()]), Types.PRIMITIVE_ARRAY(Types.BYTE())
    info = info_of("v", value, keys=(Types.LONG(),))
    entries = {
        store_key(number % 128, 1, key.encode(number)): b"\1" + value.encode(bytes([0 if recurs else number]) * (1 << 20))
        for number in range(24)
    }
    made = converted(write_savepoint(tmp_path / "savepoint", [info], entries.items(), parallelism=1), tmp_path / "target")
    with state_tables.read_batches(made.url, UID, "v") as batches:
        found = [batch.num_rows for batch in batches]
    assert sum(found) == 24
    assert max(found) <= 4


def _files(made: ConvertedSavepoint) -> tuple[list[Path], list[Path]]:
    """The files of entries, and those of the table of the counts."""
    root = Path(made.url.removeprefix("file://"))
    tables: list[TableFile] = [table for table in made.metadata.tables if table.state == "count"]
    return sorted(root.glob("slot-*/entries.parquet")), [root / table.path for table in tables]


def _damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_entries_are_read_for_single_keys_alone(tmp_path: Path) -> None:
    """With damaged entries, the whole table is still read, and a key is not."""
    url, slots = counts_of_users(tmp_path, 50, parallelism=2)
    made = converted(url, tmp_path / "target")
    entries, _ = _files(made)
    for each in entries:
        _damage(each)
    found = state_tables.read_pandas(made.url, UID, "count")
    assert set(found["user"]) == set(slots)
    with pytest.raises(CorruptDataError, match=r"entries\.parquet"):
        state_tables.read_pandas(made.url, UID, "count", keys=["user-3"])


@pytest.mark.parametrize("harm", [_damage, Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-9])])
def test_a_damaged_table_is_an_error(tmp_path: Path, harm: Any) -> None:
    """Flipped, cut short or deleted, in the second of two slots; rows of single keys come from the entries."""
    url, _ = counts_of_users(tmp_path, 50, parallelism=2)
    made = converted(url, tmp_path / "target")
    _, tables = _files(made)
    harm(sorted(tables)[1])
    with pytest.raises(CorruptDataError, match="key-groups-00064-00127"):
        state_tables.read_pandas(made.url, UID, "count")
    assert state_tables.read_pandas(made.url, UID, "count", keys=["user-3"])["value"].tolist() == [3]


def test_a_table_with_other_columns_is_an_error(tmp_path: Path) -> None:
    """A table of another program, say, with the right checksum: its columns are not taken for others by their place."""
    url, _ = counts_of_users(tmp_path, 5)
    savepoint = open_checkpoint(converted(url, tmp_path / "target").url, open_store)
    schema = StateReader(savepoint, UID, "count").schema
    tables = tuple(table for table in savepoint.metadata.tables if table.state == "count")
    for names in (["key_group", "value", "user"], ["key_group", "user"]):
        other = pa.schema([schema.field(name) for name in names])
        with pytest.raises(CorruptDataError, match="columns"):
            list(CanonicalTables(savepoint, tables, other, other).batches(savepoint.metadata.slots[0]))


def test_a_state_without_a_table_is_read_from_its_entries(tmp_path: Path) -> None:
    """Parquet has no struct without fields, so such a state gets no table; Arrow shows it."""
    type_ = Types.ROW([])
    info: StateInfo = info_of("v", Types.LIST(type_), keys=(Types.LONG(),))
    key = store_key(3, 1, KeyCodec([Types.LONG()]).encode(1))
    url = write_savepoint(tmp_path / "savepoint", [info], [(key, b"\1" + Types.LIST(type_).encode([()]))])
    made = converted(url, tmp_path / "target")
    assert list(made.without_table) == [(UID, "v")]
    assert _read(made.url, UID, "v", {}) == _read(url, UID, "v", {})
