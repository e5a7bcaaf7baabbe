"""The tables of real savepoints have what the job's functions kept, on every backend and after rescaling."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from state_snapshots import NOW_MS, UID, write_savepoint

from statefulspark import (
    KeyedProcessFunction,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    Row,
    RuntimeContext,
    StateTtlConfig,
    Time,
    Types,
    ValueStateDescriptor,
    state_tables,
)
from statefulspark.checkpoint.inspect.decoding import StateEntry
from statefulspark.checkpoint.inspect.reader import read_state
from statefulspark.errors import CorruptDataError, IncompatibleFormatError, InvalidInputError
from statefulspark.process.windows.windows import CountWindow, CountWindowSerializer, TimeWindow, TimeWindowSerializer
from statefulspark.state.encoding.layout import StateInfo, store_key
from statefulspark.state.encoding.values import join_expiry
from statefulspark.state.types.composites import ListTypeInfo
from statefulspark.testing import RESCALE, SAVEPOINT, TestingJob

from .snapshots import counts_of_users, info_of

GOLDEN = Path(__file__).parent.parent / "checkpoint" / "golden"
_KEY = Types.STRING().encode("ada")


class Cart(KeyedProcessFunction):
    """Keeps something in a state of every kind."""

    def open(self, runtime_context: RuntimeContext) -> None:
        row = Types.ROW_NAMED(["user", "total"], [Types.STRING(), Types.DOUBLE()])
        self.last = runtime_context.get_state(ValueStateDescriptor("last", row))
        self.items: MapState[int, list[str | None]] = runtime_context.get_map_state(
            MapStateDescriptor("items", Types.LONG(), Types.LIST(Types.STRING()))
        )
        self.days = runtime_context.get_list_state(ListStateDescriptor("days", Types.SQL_DATE()))
        fading = ValueStateDescriptor("fading", Types.STRING())
        fading.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
        self.fading = runtime_context.get_state(fading)
        self.object = runtime_context.get_state(ValueStateDescriptor("object", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.last.update(Row(user=value.user, total=value.amount))
        self.items.put(value.item, [None, value.user] if value.item else None)
        self.days.add(date(2024, 1, 1 + value.item))
        self.fading.update(value.user)
        self.object.update({"item": value.item})
        ctx.timer_service().register_processing_time_timer(1 << 50)
        yield value.user


def rows_of(url: str, state: str, uid: str = "testing", **options: Any) -> list[dict[str, Any]]:
    """Rows of a table without key groups, in order."""
    found = state_tables.read_arrow(url, uid, state, **options).to_pylist()
    for row in found:
        row.pop("key_group", None)
    return sorted(found, key=repr)


_INPUT = st.lists(st.tuples(st.sampled_from(["", "ada", "bob", "é"]), st.integers(0, 4), st.sampled_from([0.0, -1.5, 3.25])), max_size=12)


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
@settings(deadline=None, max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(items=_INPUT, parallelism=st.integers(1, 4))
def test_tables_are_what_the_function_kept(backend: str, items: list[tuple[str, int, float]], parallelism: int) -> None:
    """Against a model in plain dicts; the job is rescaled between the rows and before the savepoint."""
    half = len(items) // 2
    columns = {"user": pa.string(), "item": pa.int64(), "amount": pa.float64()}
    with TestingJob(Cart(), columns, {"user": pa.string()}, key="user", backend=backend) as job:
        job.run([*items[:half], RESCALE(parallelism), *items[half:], SAVEPOINT])
        url = job.savepoints[0]
        last = {user: amount for user, _, amount in items}
        assert rows_of(url, "last") == sorted(({"key": k, "user": k, "total": v} for k, v in last.items()), key=repr)
        kept = {(user, item): [None, user] if item else None for user, item, _ in items}
        assert rows_of(url, "items") == sorted(
            ({"key": user, "map_key": item, "value": value} for (user, item), value in kept.items()), key=repr
        )
        days: dict[str, list[date]] = {}
        for user, item, _ in items:
            days.setdefault(user, []).append(date(2024, 1, 1 + item))
        assert rows_of(url, "days") == sorted(({"key": user, "value": each} for user, each in days.items()), key=repr)
        assert [row["value"] for row in rows_of(url, "fading")] == sorted(last, key=lambda user: repr({"key": user, "value": user}))
        assert {row["timestamp_ms"] for row in rows_of(url, "processing-timers")} <= {1 << 50}
        assert len(rows_of(url, "processing-timers")) == len(last)
        one = sorted(last)[:1]
        assert [row["key"] for row in rows_of(url, "items", keys=one)] == [user for user, _ in sorted(kept) if [user] == one]
        assert rows_of(url, "days", keys=["nobody"]) == []


@pytest.mark.parametrize("folder", sorted(each for each in GOLDEN.iterdir() if each.is_dir()), ids=lambda each: each.name)
def test_savepoints_of_earlier_releases(folder: Path) -> None:
    """Evolved and long lists, operator, broadcast and raw state: each table has the entries that decoding one by one gives."""
    for table in state_tables.list_states(str(folder)):
        entries = list(read_state(str(folder), table.uid, table.state))
        found = state_tables.read_arrow(str(folder), table.uid, table.state, include_expired=True)
        assert found.schema == table.schema
        if table.kind == "raw-keyed":
            assert sum(map(len, found.column("data").to_pylist())) == sum(entry.value for entry in entries)
        elif table.kind == "raw-operator":
            assert [len(each) for each in found.column("data").to_pylist()] == [entry.value for entry in entries]
        else:
            assert found.num_rows == len(entries)
            for row, entry in zip(found.to_pylist(), entries, strict=True):
                _check_row(row, entry, table)


def _check_row(row: dict[str, Any], entry: StateEntry, table: state_tables.StateTable) -> None:
    assert row.get("key_group") == entry.key_group
    assert row.get("slot") == entry.slot
    if entry.key is not None:
        key = entry.key if isinstance(entry.key, tuple) else (entry.key,)
        assert tuple(row.values())[1 : 1 + len(key)] == key
    if table.kind.endswith("timers"):
        assert row["timestamp_ms"] == entry.timestamp_ms
    elif isinstance(entry.value, Row) and _names(row)[-len(list(entry.value)) :] == list(entry.value.as_dict()):
        assert tuple(row.values())[-len(list(entry.value)) :] == tuple(_plain(each) for each in entry.value)
    elif "value" in row and not table.type.startswith("PICKLED"):
        assert row["value"] == _plain(entry.value)
    if "map_key" in row and "window_start_ms" not in row:  # the key of a window's state begins with the window
        assert row["map_key"] == entry.user_key


def _names(row: dict[str, Any]) -> list[str]:
    """Of its columns, as the state's type has them: one that the key has too gets a prefix."""
    return [name.removeprefix("state_") for name in row]


def _plain(value: Any) -> Any:
    if isinstance(value, Row):
        return {name: _plain(each) for name, each in value.as_dict().items()}
    if isinstance(value, tuple):
        return {f"f{place}": _plain(each) for place, each in enumerate(value)}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _written(folder: Path, info: StateInfo, entries: list[tuple[bytes, bytes]], **how: Any) -> str:
    """A savepoint with the entries of user keys below the key ``ada`` in key group 3."""
    return write_savepoint(folder / "savepoint", [info], [(store_key(3, 1, _KEY, key), value) for key, value in entries], **how)


def test_expired_values_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    """By the processing time of the last batch, also element by element, also None in maps."""
    info = replace(info_of("m", Types.MAP(Types.LONG(), Types.STRING()), kind="map"), ttl_ms=1000)
    key, plain = Types.LONG().encode, b"\1x"
    entries = [
        (key(1), join_expiry(NOW_MS, plain)),
        (key(2), join_expiry(NOW_MS + 1, plain)),
        (key(3), join_expiry(NOW_MS - 1, b"\3")),
        (key(4), join_expiry(NOW_MS + 2, b"\3")),
    ]
    url = _written(tmp_path, info, entries)
    assert [(row["map_key"], row["value"]) for row in rows_of(url, "m", UID)] == [(2, "x"), (4, None)]
    every = rows_of(url, "m", UID, include_expired=True, with_expiry=True)
    assert [row["expires_ms"] - NOW_MS for row in every] == [0, 1, -1, 2]
    element = [(NOW_MS + late).to_bytes(8, "big") + Types.LONG().encode(late) for late in (-3, 0, 2, 1)]
    info = replace(info_of("l", Types.LIST(Types.LONG()), kind="list"), ttl_ms=1000)
    url = _written(tmp_path / "list", info, [(b"", b"\5" + ListTypeInfo.join(element))])
    assert rows_of(url, "l", UID, with_expiry=True) == [{"key": "ada", "value": [2, 1], "expires_ms": NOW_MS + 2}]
    assert rows_of(url, "l", UID, include_expired=True) == [{"key": "ada", "value": [-3, 0, 2, 1]}]
    gone = _written(tmp_path / "gone", info, [(b"", b"\5" + ListTypeInfo.join(element[:2]))])
    assert rows_of(gone, "l", UID) == []


def test_keys_have_the_names_and_types_of_the_stream(tmp_path: Path) -> None:
    """A row's field of the same name gives way, also in other case."""
    types = (Types.SQL_TIMESTAMP(), Types.BIG_DEC(), Types.LONG())
    row = Types.ROW_NAMED(["AT", "key_group", "n"], [Types.LONG()] * 3)
    info = info_of("v", row, keys=types)
    columns = [("at", "timestamp"), ("amount = sum", "decimal(10,2)"), ("id", "int")]
    (table,) = state_tables.list_states(write_savepoint(tmp_path / "savepoint", [info], [], columns=columns))
    assert table.schema.names == ["key_group", "at", "amount", "id", "state_AT", "state_key_group", "n"]
    assert table.schema.types[1:4] == [pa.timestamp("us", "UTC"), pa.decimal128(10, 2), pa.int64()]
    (table,) = state_tables.list_states(write_savepoint(tmp_path / "untold", [info], []))
    assert table.schema.names[1:4] == ["key_1", "key_2", "key_3"]
    assert table.type == "ROW(LONG, LONG, LONG)"


def test_windows_have_their_start_and_end(tmp_path: Path) -> None:
    """Contents, rows of a window by number, and states of triggers; a state of another name is a map with bytes as its keys."""
    of_bytes = Types.MAP(Types.PRIMITIVE_ARRAY(Types.BYTE()), Types.LONG())
    window, value = TimeWindowSerializer().serialize(TimeWindow(-60_000, 60_000)), b"\1" + Types.LONG().encode(5)
    ends = {"window_start_ms": -60_000, "window_end_ms": 60_000}

    def rows(name: str, *keys: bytes) -> list[dict[str, Any]]:
        folder = tmp_path / name.replace("/", "-")
        return rows_of(_written(folder, info_of(name, of_bytes, kind="map"), [(key, value) for key in keys]), name, UID)

    assert rows("_window(TimeWindow, aggregated)", window) == [{"key": "ada", **ends, "value": 5}]
    assert rows("_window(MergingTimeWindow, list)", window + b"\0" * 7 + b"\3") == [{"key": "ada", **ends, "element": 3, "value": 5}]
    state = rows("_window.window(TimeWindow, evicted, seen, not)", window + b"k", window)
    assert {row["map_key"] for row in state} == {b"k", None}
    count = CountWindowSerializer().serialize(CountWindow(9))
    assert rows("_window_next(CountWindow 10/3, list)", count) == [{"key": "ada", "window_id": 9, "value": 5}]
    assert rows("_window(GlobalWindow, reduced)", b"") == [{"key": "ada", "value": 5}]
    assert rows("mine", b"k") == [{"key": "ada", "map_key": b"k", "value": 5}]
    with pytest.raises(CorruptDataError, match=r"_window\(TimeWindow, reduced\)"):
        rows("_window(TimeWindow, reduced)", window[:9])


class _Trap:
    """Remembers that it was unpickled."""

    sprung = 0

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _spring, ()


def _spring() -> str:
    _Trap.sprung += 1
    return "sprung"


def test_hostile_objects_are_not_unpickled_unless_asked_for(tmp_path: Path) -> None:
    """Also deep within a row, in keys of maps, and in a state that has evolved."""
    data = pickle.dumps(_Trap(), 5)
    row = Types.ROW_NAMED(["n", "o"], [Types.LONG(), Types.PICKLED_BYTE_ARRAY()])
    payload = b"\0\0\0\x08" + Types.LONG().encode(7) + len(data).to_bytes(4, "big") + data
    url = _written(tmp_path, info_of("m", Types.MAP(Types.PICKLED_BYTE_ARRAY(), row), kind="map"), [(data, b"\1" + payload)])
    assert rows_of(url, "m", UID) == [{"key": "ada", "map_key": data, "n": 7, "o": data}]
    assert _Trap.sprung == 0
    assert rows_of(url, "m", UID, unpickle=True) == [{"key": "ada", "map_key": "'sprung'", "n": 7, "o": "'sprung'"}]
    assert _Trap.sprung == 2


def test_wrong_names_and_keys_say_what_there_is(tmp_path: Path) -> None:
    url, _ = counts_of_users(tmp_path, 3)
    for uid, state, options, message in (
        ("order", "count", {}, "Use one of: orders"),
        (UID, "counts", {}, "Use one of: count, event-timers"),
        (UID, "count", {"keys": [1]}, "keys: expected str"),
        (UID, "count", {"keys": "user-1"}, r"keys: .*list"),
        (UID, "count", {"keys": [None]}, "keys: key column is null"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            state_tables.read_arrow(url, uid, state, **options)
    with pytest.raises(InvalidInputError, match="neither a checkpoint"):
        state_tables.list_states(str(tmp_path / "nothing"))


def test_operator_state_has_no_keys() -> None:
    folder = str(GOLDEN / "savepoint-operator-state-v4")
    table = next(each for each in state_tables.list_states(folder) if each.kind == "operator-list")
    with pytest.raises(InvalidInputError, match="has no keys"):
        state_tables.read_arrow(folder, table.uid, table.state, keys=[1])


@pytest.mark.parametrize("backend", ["filesystem", "rocksdb"])
def test_only_the_slots_of_wanted_keys_are_read(tmp_path: Path, backend: str) -> None:
    """The files of other slots may be damaged; a damaged file that is needed is named."""
    url, slots = counts_of_users(tmp_path, 60, backend=backend)
    table = state_tables.read_arrow(url, UID, "count")
    assert sorted(table.column("user").to_pylist()) == sorted(slots)
    for file in (tmp_path / "savepoint" / "slot-1").iterdir():
        file.write_bytes(b"damaged")
    wanted = [user for user, slot in slots.items() if slot == 0]
    assert len(wanted) > 10
    for state in ("count", "event-timers"):
        found = state_tables.read_arrow(url, UID, state, keys=iter(wanted))
        assert sorted(found.column("user").to_pylist()) == sorted(wanted)
    with pytest.raises(CorruptDataError, match="savepoint/slot-1/"):
        state_tables.read_arrow(url, UID, "count", keys=["user-1", *(user for user in slots if slots[user] == 1)])
    with pytest.raises(CorruptDataError, match="savepoint/slot-1/"):
        state_tables.read_arrow(url, UID, "count")


def test_unknown_versions_are_unknown_and_damaged_values_damaged(tmp_path: Path) -> None:
    info = info_of("v", Types.LONG())
    for value, error, message in (
        (b"\x09" + b"\0" * 8, IncompatibleFormatError, "unknown version"),
        (b"\1" + b"\0" * 7, CorruptDataError, "state 'v' of uid 'orders': damaged"),
        (b"\2" + b"\0" * 7, CorruptDataError, "damaged"),
        (b"\3\0", CorruptDataError, "damaged"),
        (b"", CorruptDataError, "damaged"),
    ):
        url = write_savepoint(tmp_path / f"savepoint-{value.hex()}", [info], [(store_key(3, 1, _KEY), value)])
        with pytest.raises(error, match=message):
            state_tables.read_arrow(url, UID, "v")


def test_files_are_gone_when_a_reader_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that is not exhausted leaves no copy of a slot behind."""
    url, _ = counts_of_users(tmp_path, 300)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    batches = state_tables.read_batches(url, UID, "count")
    assert batches.schema.names == ["key_group", "user", "value"]
    batches.read_next_batch()
    assert list(scratch.iterdir())
    batches.close()
    del batches
    assert list(scratch.iterdir()) == []


def test_pandas_keeps_types_and_nulls(tmp_path: Path) -> None:
    """An integer beside a null stays an integer."""
    info = info_of("m", Types.MAP(Types.LONG(), Types.LONG()), kind="map")
    encode = Types.LONG().encode
    url = _written(tmp_path, info, [(encode(1), b"\1" + encode((1 << 62) + 1)), (encode(2), b"\3")])
    frame = state_tables.read_pandas(url, UID, "m")
    assert frame["value"].tolist() == [(1 << 62) + 1, pd.NA]


@pytest.mark.parametrize("backend", ["filesystem", "rocksdb"])
def test_a_million_entries_in_bounded_memory(tmp_path: Path, backend: str) -> None:
    """Arrow never holds more than a few batches; `test_entries_file.py` bounds what is below."""
    encode, count = Types.LONG().encode, 1_000_000 if backend == "filesystem" else 100_000
    info = info_of("v", Types.LONG(), keys=(Types.LONG(),))
    entries = ((store_key(number * 128 // count, 1, encode(number)), b"\1" + encode(number)) for number in range(count))
    url = write_savepoint(tmp_path / "savepoint", [info], entries, backend=backend)
    before, peak, total, rows = pa.total_allocated_bytes(), 0, 0, 0
    for batch in state_tables.read_batches(url, UID, "v"):
        peak = max(peak, pa.total_allocated_bytes() - before)
        total += pc.sum(batch.column("value")).as_py()
        rows += batch.num_rows
    assert (rows, total) == (count, count * (count - 1) // 2)
    assert peak < 8 << 20
