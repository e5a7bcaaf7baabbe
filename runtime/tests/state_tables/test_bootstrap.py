"""States made of rows: read back as the rows, found by jobs, merged into savepoints; what does not fit is named by column and row."""

from __future__ import annotations

import tempfile
from datetime import datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime.tests.depth import examples
from state_snapshots import UID, write_savepoint

from statefulspark import (
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    RuntimeContext,
    StateTtlConfig,
    Time,
    Types,
    ValueStateDescriptor,
    state_tables,
)
from statefulspark.checkpoint.catalog import open_checkpoint
from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.errors import InvalidInputError
from statefulspark.state.api.names import RuntimeName
from statefulspark.state.encoding.keys import KeyCodec
from statefulspark.state.encoding.layout import store_key
from statefulspark.state.encoding.segments import NEVER_MS, ListHead, pack_segment, segment_key
from statefulspark.state_tables import SavepointWriter
from statefulspark.storage.open import open_store
from statefulspark.testing import TestingJob

from .canonical_savepoints import contents, restored
from .snapshots import counts_of_users, hashed_groups, info_of

COUNT = ValueStateDescriptor("count", Types.LONG())
_TYPES: list[tuple[Any, pa.DataType, st.SearchStrategy[Any]]] = [
    (Types.LONG(), pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    (Types.SHORT(), pa.int64(), st.integers(-(1 << 15), (1 << 15) - 1)),
    (Types.STRING(), pa.string(), st.text(max_size=9)),
    (Types.DOUBLE(), pa.float64(), st.floats(allow_nan=False)),
    (Types.BOOLEAN(), pa.bool_(), st.booleans()),
    (Types.BIG_DEC(), pa.decimal128(10, 2), st.integers(-999, 999).map(lambda cents: Decimal(cents).scaleb(-2))),
    (Types.SQL_TIMESTAMP(), pa.timestamp("us"), st.datetimes(datetime(1, 1, 1), datetime(9999, 1, 1))),  # noqa: DTZ001
    (Types.LIST(Types.LONG()), pa.list_(pa.int64()), st.lists(st.integers(0, 9), max_size=3)),
    (Types.MAP(Types.STRING(), Types.LONG()), pa.map_(pa.string(), pa.int64()), st.dictionaries(st.text(max_size=2), st.integers(0, 9))),
]


def _rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.drop_columns(["key_group"]).to_pylist()))


@settings(deadline=None, max_examples=examples(5, 60))
@given(
    data=st.data(),
    groups=st.sampled_from([1, 7, 128]),
    typed=st.sampled_from(_TYPES),
    kind=st.sampled_from(["value", "map", "list", "row"]),
)
def test_rows_come_back_as_a_table(data: st.DataObject, groups: int, typed: Any, kind: str) -> None:
    """Of one and two key columns; a store on each backend has the same entries."""
    type_, arrow, values = typed
    key_columns = data.draw(st.sampled_from([("user",), ("user", "id")]))
    keys = data.draw(
        st.lists(st.tuples(st.text(max_size=40), st.integers(-5, 5)), max_size=8, unique_by=lambda key: key[: len(key_columns)])
    )
    columns: dict[str, pa.Array] = {
        "user": pa.array([user for user, _ in keys], pa.string()),
        "id": pa.array([each for _, each in keys], pa.int32()),
    }
    columns = {name: columns[name] for name in key_columns}
    made = [data.draw(values) for _ in keys]
    descriptor: Any = ValueStateDescriptor("s", type_)
    if kind == "list":
        descriptor = ListStateDescriptor("s", type_)
        columns["value"] = pa.array([[each] * 2 for each in made], pa.list_(arrow))
    elif kind == "row":
        descriptor = ValueStateDescriptor("s", Types.ROW_NAMED(["a", "b"], [type_, Types.LONG()]))
        columns |= {"b": pa.array(range(len(keys)), pa.int64()), "a": pa.array(made, arrow)}
    else:
        if kind == "map":
            descriptor = MapStateDescriptor("s", Types.STRING(), type_)
            columns["map_key"] = pa.array([str(number % 2) for number in range(len(keys))], pa.string())
        columns["value"] = pa.array(made, arrow)
    table = pa.table(columns)
    with tempfile.TemporaryDirectory() as name:
        writer = SavepointWriter.new_savepoint(groups).with_state("step", descriptor, table, key_columns=key_columns)
        done = writer.write(f"{name}/target")
        assert (done.entries, done.states) == (table.num_rows, (("step", "s"),))
        assert verify(done.url).problems == ()
        found = state_tables.read_arrow(done.url, "step", "s")
        expected = pa.table(
            {name: table.column(name).cast(found.schema.field(name).type) for name in found.schema.names if name != "key_group"}
        )
        assert _rows(found) == sorted(map(repr, expected.to_pylist()))
        if keys:
            one = [keys[0] if len(key_columns) == 2 else keys[0][0]]
            assert state_tables.read_arrow(done.url, "step", "s", keys=one).num_rows == 1, "its key group is that of Spark's hash"
        for backend in ("rocksdb", "memory"):
            assert restored(done.url, backend, min(2, groups), Path(name)) == contents(done.url)


@settings(deadline=None, max_examples=examples(5, 60))
@given(data=st.data(), backend=st.sampled_from(["filesystem", "rocksdb"]))
def test_rows_replace_what_a_savepoint_has_of_their_keys(data: st.DataObject, backend: str) -> None:
    """Values, map entries, and lists with their segments; the oracle is a dict, and everything else stays byte for byte."""
    users = [f"user-{number}" for number in range(8)]
    infos = [
        info_of("count", Types.LONG()),
        info_of("pages", Types.MAP(Types.STRING(), Types.LONG()), kind="map", state_id=2),
        info_of("list", Types.LIST(Types.LONG()), kind="list", state_id=3),
        info_of("other", Types.LONG(), state_id=4),
    ]
    codec, number = KeyCodec([Types.STRING()]), Types.LONG().encode
    short = b"\1" + Types.LIST(Types.LONG()).encode([1, 2])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        groups = hashed_groups(folder / "empty", [("user", "string")], users)
        entries: dict[bytes, bytes] = {}
        for user in data.draw(st.sets(st.sampled_from(users))):
            encoded = codec.encode(user)
            entries[store_key(groups[user], 1, encoded)] = b"\1" + number(1)
            entries[store_key(groups[user], 2, encoded, b"a")] = b"\1" + number(2)
            entries[store_key(groups[user], 4, encoded)] = b"\1" + number(4)
            head, segments = store_key(groups[user], 3, encoded), data.draw(st.integers(0, 2))
            entries[head] = ListHead(segments, NEVER_MS, short).pack() if segments else short
            entries |= {segment_key(head, index): pack_segment(short) for index in range(segments)}
        url = write_savepoint(folder / "savepoint", infos, entries.items(), backend=backend, columns=[("user", "string")])
        new = sorted(data.draw(st.sets(st.sampled_from(users))), reverse=True)
        expected = dict(entries)
        for user in new:
            encoded = codec.encode(user)
            expected[store_key(groups[user], 1, encoded)] = b"\1" + number(10)
            expected |= {store_key(groups[user], 2, encoded, each): b"\1" + number(20) for each in (b"a", b"b")}
            head = store_key(groups[user], 3, encoded)
            expected = {key: value for key, value in expected.items() if not key.startswith(head)}
            expected[head] = b"\1" + Types.LIST(Types.LONG()).encode([30])
        count = len(new)
        twice = [user for user in new for _ in "ab"]
        writer = SavepointWriter.from_existing_savepoint(url)
        merged = partial(SavepointWriter.with_state, key_columns=["user"], merge=True)
        writer = merged(writer, UID, COUNT, pa.table({"user": pa.array(new, pa.string()), "value": pa.array([10] * count, pa.int64())}))
        pages = {"user": pa.array(twice, pa.string()), "map_key": pa.array(["a", "b"] * count, pa.string())}
        pages["value"] = pa.array([20] * 2 * count, pa.int64())
        writer = merged(writer, UID, MapStateDescriptor("pages", Types.STRING(), Types.LONG()), pa.table(pages))
        lists = {"user": pa.array(new, pa.string()), "value": pa.array([[30]] * count, pa.list_(pa.int64()))}
        writer = merged(writer, UID, ListStateDescriptor("list", Types.LONG()), pa.table(lists))
        done = writer.write(f"{name}/target")
        assert contents(done.url) == expected
        assert verify(done.url).problems == ()


def test_states_are_added_to_old_and_new_steps_and_replaced(tmp_path: Path) -> None:
    """Together with a rename and another maximum parallelism; ids of removed states are not used again."""
    url, _ = counts_of_users(tmp_path, 5)
    writer = SavepointWriter.from_existing_savepoint(url).change_operator_identifier(UID, "carts").with_max_parallelism(64)
    writer = writer.remove_state(UID, "count")
    rows = pd.DataFrame({"user": ["user-1", "ada"], "value": ["x", "y"]})
    writer = writer.with_state("carts", ValueStateDescriptor("count", Types.STRING()), pa.Table.from_pandas(rows), key_columns=["user"])
    ids = pa.table({"id": pa.array([7, 8], pa.int16()), "value": pa.array([1, 2])})
    sums = ReducingStateDescriptor("sum", lambda a, b: a + b, Types.LONG())
    done = writer.with_state("new", sums, ids, key_columns=["id"]).write(str(tmp_path / "target"))
    assert done.states == (("carts", "count"), ("carts", "event-timers"), ("new", "sum"))
    assert _rows(state_tables.read_arrow(done.url, "carts", "count")) == sorted(map(repr, rows.to_dict("records")))
    assert state_tables.read_arrow(done.url, "new", "sum", keys=[8]).column("value").to_pylist() == [2]
    metadata = open_checkpoint(done.url, open_store).metadata
    assert {state["name"]: state["state_id"] for state in metadata.states} == {"event-timers": 2, "count": 3, "sum": 4}
    assert all(slot.operator_batches["new"] == metadata.batch for slot in metadata.slots)


def test_values_expire_when_the_row_or_the_time_to_live_says(tmp_path: Path) -> None:
    """By default as if written at the processing time of the savepoint's last batch."""
    url, _ = counts_of_users(tmp_path, 1)
    now_ms = open_checkpoint(url, open_store).metadata.processed_ms
    value, listed = ValueStateDescriptor("v", Types.LONG()), ListStateDescriptor("l", Types.LONG())
    for descriptor in (value, listed):
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.seconds(9)).build())
    users = pa.array(["ada", "bob"])
    said = pa.table({"user": users, "value": pa.array([1, 2]), "expires_ms": pa.array([now_ms + 5, now_ms - 5])})
    lists = pa.table({"user": users, "value": pa.array([[1, 2], [3]])})
    writer = SavepointWriter.from_existing_savepoint(url).with_state(UID, value, said, key_columns=["user"])
    done = writer.with_state(UID, listed, lists, key_columns=["user"]).write(str(tmp_path / "target"))
    read = partial(state_tables.read_pandas, done.url, UID, with_expiry=True)
    assert read("v").drop(columns="key_group").to_numpy().tolist() == [["ada", 1, now_ms + 5]]
    assert len(read("v", include_expired=True)) == 2
    assert set(read("l")["expires_ms"]) == {now_ms + 9_000}


_SECRET = 987654321
_USERS = ["a", "b", "c"]


@pytest.mark.parametrize(
    ("columns", "descriptor", "message"),
    [
        ({"user": _USERS, "value": [1, 2, _SECRET]}, ValueStateDescriptor("s", Types.SHORT()), "row 2, column 'value'"),
        ({"user": _USERS, "value": [1, None, 2]}, COUNT, "row 1, column 'value': the value is null"),
        ({"user": ["a", None, "c"], "value": [1, 2, 3]}, COUNT, "row 1, column 'user': key column is null"),
        ({"user": _USERS, "value": [str(_SECRET)] * 3}, COUNT, "row 0, column 'value'"),
        ({"user": _USERS, "value": [[1], [2], []]}, ListStateDescriptor("s", Types.LONG()), "row 2, column 'value': expected a list"),
        ({"user": _USERS, "value": [[1], [None], [2]]}, ListStateDescriptor("s", Types.LONG()), "row 1, column 'value'"),
        ({"user": _USERS, "a": [1, 2, _SECRET]}, ValueStateDescriptor("s", Types.ROW_NAMED(["a"], [Types.SHORT()])), "row 2, column 'a'"),
        ({"user": ["a", "b", "a"], "value": [1, 2, 3]}, COUNT, "rows 0 and 2 have the same key"),
        ({"user": _USERS}, COUNT, "expected one column 'value'"),
        ({"user": _USERS, "value": [1, 2, 3], "x": [1, 2, 3]}, COUNT, "'x' is no part of the state"),
        ({"user": [1.5, 2.5, 3.5], "value": [1, 2, 3]}, COUNT, "cannot be a key"),
        ({"id": _USERS, "value": [1, 2, 3]}, COUNT, "expected one column 'user'"),
        ({"user": _USERS, "value": [1, 2, 3]}, ValueStateDescriptor(RuntimeName("event-timers"), Types.LONG()), "reserved"),
    ],
)
def test_bad_rows_are_named_by_column_and_row_and_never_shown(
    columns: dict[str, Any], descriptor: Any, message: str, tmp_path: Path
) -> None:
    writer = SavepointWriter.new_savepoint(8).with_state("step", descriptor, pa.table(columns), key_columns=["user"])
    with pytest.raises(InvalidInputError, match=message) as refused:
        writer.write(str(tmp_path / "target"))
    assert str(_SECRET) not in str(refused.value)
    assert refused.value.__cause__ is None
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_what_contradicts_the_savepoint_is_refused(tmp_path: Path) -> None:
    """A state that exists or does not, another type, another key, and a savepoint that does not say how keys are hashed."""
    url, _ = counts_of_users(tmp_path, 3)
    rows = pa.table({"user": ["a"], "value": [1]})
    renamed = pa.table({"name": ["a"], "value": [1]})
    numbers = pa.table({"user": [1], "value": [1]})
    silent = write_savepoint(tmp_path / "silent", [info_of("count", Types.LONG())], [])
    for path, table, descriptor, key, merge, message in (
        (url, rows, COUNT, "user", False, "it exists"),
        (url, rows, ValueStateDescriptor("new", Types.LONG()), "user", True, "no such state to merge"),
        (url, rows, ValueStateDescriptor("count", Types.INT()), "user", True, "another declaration"),
        (url, renamed, COUNT, "name", True, "the key of uid"),
        (url, numbers, COUNT, "user", True, "the key of uid"),
        (silent, rows, COUNT, "user", True, "the key of uid"),
    ):
        writer = SavepointWriter.from_existing_savepoint(path).with_state(UID, descriptor, table, key_columns=[key], merge=merge)
        with pytest.raises(InvalidInputError, match=message):
            writer.write(str(tmp_path / "target"))
    with pytest.raises(InvalidInputError, match="Arrow cannot read dict"):
        SavepointWriter.new_savepoint(8).with_state("s", COUNT, {}, key_columns=["user"]).write(str(tmp_path / "target"))  # type: ignore[arg-type]  # what is refused
    for number, name in ((0, "x"), (32769, "x"), (8, "../x")):
        with pytest.raises(InvalidInputError):
            SavepointWriter.new_savepoint(number, name=name)
    assert not (tmp_path / "target").exists()


def test_a_reader_is_read_once(tmp_path: Path) -> None:
    """Written again it would have no rows, and state would be lost without a word. A table can be written as often as one likes."""
    table = pa.table({"user": ["a"], "value": [1]})
    for rows, again in ((table, True), (table.to_reader(), False)):
        writer = SavepointWriter.new_savepoint(8).with_state("step", COUNT, rows, key_columns=["user"])
        assert writer.write(str(tmp_path / "target")).entries == 1
        if again:
            assert writer.write(str(tmp_path / "target")).entries == 1
        else:
            with pytest.raises(InvalidInputError, match="was read by another write"):
                writer.write(str(tmp_path / "target"))


class Visits(KeyedProcessFunction):
    """Counts and lists visits."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(COUNT)
        self.numbers = runtime_context.get_list_state(ListStateDescriptor("numbers", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        self.numbers.add(value.number)
        yield value.user, self.count.value(), str([*self.numbers.get()])


@pytest.mark.parametrize("backend", ["rocksdb", "memory"])
def test_a_job_goes_on_from_rows_as_if_it_had_processed_them(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of thousands of elements is one value in the savepoint, and in segments once the job has added to it."""
    schema = {"user": pa.string(), "number": pa.int64()}
    output = {"user": pa.string(), "count": pa.int64(), "text": pa.string()}
    job = partial(TestingJob, Visits(), schema, output, key="user", backend=backend)
    rows = [(f"user-{number % 7}", number) for number in range(2800)]
    with job(parallelism=2) as whole:
        whole.run(rows)
        expected = sorted(map(repr, whole.run(rows[:20])))
    users = sorted({user for user, _ in rows})
    lists = [[number for user, number in rows if user == each] for each in users]
    counts = pa.table({"user": users, "value": [len(each) for each in lists]})
    writer = SavepointWriter.new_savepoint(128).with_state("testing", COUNT, counts, key_columns=["user"])
    numbers = ListStateDescriptor("numbers", Types.LONG())
    done = writer.with_state("testing", numbers, pa.table({"user": users, "value": lists}), key_columns=["user"]).write(
        str(tmp_path / "new")
    )
    with job(parallelism=3, folder=tmp_path / "job", restore_from=done.url) as after:
        found = after.run(rows[:20])
    assert sorted(map(repr, found)) == expected
