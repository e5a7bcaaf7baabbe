"""Canonical savepoints have every entry of their origin, restore on every state backend, and are read without this library."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime.tests.depth import examples
from state_snapshots import NOW_MS, UID, write_savepoint
from typer.testing import CliRunner

from statefulspark import KeyedProcessFunction, MapStateDescriptor, RuntimeContext, Types, ValueStateDescriptor, state_tables
from statefulspark.checkpoint.catalog import open_checkpoint
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.checkpoint.restore.operator_state import read_operator_file
from statefulspark.cli.main import build_app
from statefulspark.errors import InvalidInputError
from statefulspark.state.encoding.keys import KeyCodec
from statefulspark.state.encoding.layout import StateInfo, store_key, timer_store_key
from statefulspark.state.encoding.values import join_expiry
from statefulspark.storage.open import open_store
from statefulspark.testing import SAVEPOINT, TestingJob

from .canonical_savepoints import contents, converted, restored, table_of
from .snapshots import counts_of_users, info_of
from .test_arrays import TYPED

GOLDEN = Path(__file__).parent.parent / "checkpoint" / "golden"
BACKENDS = ("memory", "filesystem", "rocksdb")
NATIVE = sorted(each for each in GOLDEN.iterdir() if each.is_dir() and not each.name.startswith("savepoint-canonical"))


@pytest.mark.parametrize(
    ("native", "canonical"),
    [("savepoint-rocksdb-heap-timers", "savepoint-canonical-v9"), ("savepoint-raw-state-v4", "savepoint-canonical-raw-state-v9")],
)
def test_version_9_stays_readable(native: str, canonical: str, tmp_path: Path) -> None:
    """Savepoints that the first release with this format wrote, byte for byte. Never regenerate them."""
    old, new = (GOLDEN / native).as_uri(), (GOLDEN / canonical).as_uri()
    assert verify(new).problems == ()
    assert restored(new, "rocksdb", 3, tmp_path) == contents(old)
    assert _operator_state(new) == _operator_state(old)
    for table in state_tables.list_states(old):
        assert table_of(new, table.uid, table.state).equals(state_tables.read_arrow(old, table.uid, table.state))


@pytest.mark.parametrize("folder", NATIVE, ids=lambda each: each.name)
def test_every_kind_of_state_comes_back(folder: Path, tmp_path: Path) -> None:
    """Evolved schemas, long lists, timers on the heap, operator, broadcast and raw state: entries byte for byte, and as tables."""
    shutil.copytree(folder, tmp_path / "savepoint")
    before = {path: path.read_bytes() for path in sorted((tmp_path / "savepoint").rglob("*")) if path.is_file()}
    url = (tmp_path / "savepoint").as_uri()
    made = converted(url, tmp_path / "target")
    assert {path: path.read_bytes() for path in sorted((tmp_path / "savepoint").rglob("*")) if path.is_file()} == before
    assert (verify(made.url).problems, made.without_table) == ((), {})
    entries = contents(url)
    assert contents(made.url) == entries
    assert made.entries == len(entries)
    for backend, parallelism in (("memory", 1), ("filesystem", 2), ("rocksdb", 3)):
        assert restored(made.url, backend, parallelism, tmp_path) == entries
    assert _operator_state(made.url) == _operator_state(url)
    for table in state_tables.list_states(url):
        expected = state_tables.read_arrow(url, table.uid, table.state, decimals_as_text=True)
        found = table_of(made.url, table.uid, table.state)
        assert found.drop_columns([name for name in found.column_names if name == "expires_ms"]).to_pylist() == expected.to_pylist()
        again = state_tables.read_arrow(made.url, table.uid, table.state, decimals_as_text=True)
        assert again.equals(expected), "a canonical savepoint is read as its origin"
    old, new = (open_checkpoint(each, open_store).metadata for each in (url, made.url))
    parts = {"slots", "tables", "operator_state", "spark_location", "spark_state", "kind"}
    assert new.model_dump(exclude=parts) == old.model_dump(exclude=parts)


def _operator_state(url: str) -> list[Any]:
    checkpoint = open_checkpoint(url, open_store)
    return [read_operator_file(checkpoint, file) for file in checkpoint.metadata.operator_state]


_KEYS = st.one_of(st.just(b""), st.binary(max_size=6), st.integers(1, 9000).map(lambda size: b"k" * size))


@settings(deadline=None, max_examples=examples(5, 60))
@given(data=st.data(), backend=st.sampled_from(["filesystem", "rocksdb"]), to=st.sampled_from(BACKENDS), parallelism=st.integers(1, 5))
def test_random_states_of_all_types_come_back(data: st.DataObject, backend: str, to: str, parallelism: int) -> None:
    """Values of random types with NaN and None, with and without expiry, empty and long keys, timers at both ends of time."""
    type_, values = data.draw(TYPED)
    expires = data.draw(st.booleans())
    key_type = Types.PRIMITIVE_ARRAY(Types.BYTE())
    infos = [
        replace(info_of("v", type_, keys=(key_type,)), ttl_ms=1000 if expires else None),
        replace(info_of("m", Types.MAP(Types.LONG(), type_), kind="map", state_id=2, keys=(key_type,)), ttl_ms=1000 if expires else None),
        StateInfo(state_id=3, uid=UID, name="event-timers", kind="event-timers", key_type=[key_type.to_json()], type={}),
    ]
    codec, entries = KeyCodec([key_type]), {}
    for group, key in data.draw(st.lists(st.tuples(st.integers(0, 127), _KEYS), max_size=8)):
        stored = b"\1" + type_.encode(data.draw(values))
        late = data.draw(st.integers(-2, 2))
        stored = join_expiry(NOW_MS + late, stored) if expires else stored
        encoded = codec.encode(key)
        entries[store_key(group, 1, encoded)] = stored
        entries[store_key(group, 2, encoded, Types.LONG().encode(late))] = (
            data.draw(st.sampled_from([stored, b"\3"])) if not expires else stored
        )
        entries[timer_store_key(group, 3, data.draw(st.sampled_from([-(1 << 63), 0, (1 << 63) - 1])), encoded)] = b""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        url = write_savepoint(folder / "savepoint", infos, entries.items(), backend=backend, parallelism=parallelism)
        made = converted(url, folder / "target")
        assert contents(made.url) == entries
        assert restored(made.url, to, 6 - parallelism, folder) == entries
        for info in infos:
            if (UID, info.name) not in made.without_table:
                expected = state_tables.read_arrow(url, UID, info.name, decimals_as_text=True, with_expiry=info.ttl_ms is not None)
                assert repr(table_of(made.url, UID, info.name).to_pylist()) == repr(expected.to_pylist())
        assert {state for _, state in made.without_table} <= ({"v", "m"} if "{}" in repr(infos) or "fields" in repr(infos) else set())


def test_other_programs_read_the_tables(tmp_path: Path) -> None:
    """Pandas reads the folder of a state by its name. A file has one range of key groups, and its name tells which."""
    url, slots = counts_of_users(tmp_path, 50, parallelism=2)
    made = converted(url, tmp_path / "target")
    folder = Path(made.url.removeprefix("file://")) / "tables" / f"uid={UID}" / "state=count"
    frame = pd.read_parquet(folder)
    assert dict(zip(frame["user"], frame["value"], strict=True)) == {f"user-{number}": number for number in range(50)}
    assert frame.dtypes["value"] == "int64"
    names = sorted(path.name for path in folder.iterdir())
    assert [name.rpartition("-")[0] for name in names] == ["key-groups-00000-00063", "key-groups-00064-00127"]
    second = pd.read_parquet(folder / names[1])
    assert set(second["user"]) == {user for user, slot in slots.items() if slot == 1}
    assert second["key_group"].between(64, 127).all()
    timers = pd.read_parquet(folder.parent / "state=event-timers")
    assert sorted(timers["timestamp_ms"]) == [number - 5 for number in range(50)]


def test_a_value_that_no_column_holds_costs_the_table_alone(tmp_path: Path) -> None:
    """A map with the key None, in the second of two slots: the table of the first is not left behind, and all entries come back."""
    kind = Types.MAP(Types.LONG(), Types.LONG())
    good, bad = kind.encode({1: 2}), kind.encode({None: 2})
    key = KeyCodec([Types.STRING()]).encode("ada")
    entries = {store_key(3, 1, key): b"\1" + good, store_key(100, 1, key): b"\1" + bad}
    url = write_savepoint(tmp_path / "savepoint", [info_of("v", kind)], entries.items())
    made = converted(url, tmp_path / "target")
    assert list(made.without_table) == [(UID, "v")]
    assert "None" in made.without_table[UID, "v"]
    assert made.metadata.tables == ()
    assert not list(Path(made.url.removeprefix("file://")).rglob("key-groups*"))
    assert verify(made.url).sound
    assert restored(made.url, "memory", 1, tmp_path) == entries


def test_long_names_and_those_of_other_scripts(tmp_path: Path) -> None:
    """Names of folders are short and no two are equal; nothing in a name leads out of the savepoint."""
    names = ["../../etc", "a" * 300, "a" * 299 + "b", "é" * 100, "_hidden", ".", "a/b", "x=y"]
    infos = [info_of(name, Types.LONG(), state_id=number) for number, name in enumerate(names)]
    key = KeyCodec([Types.STRING()]).encode("ada")
    entries = {store_key(3, number, key): b"\1" + Types.LONG().encode(number) for number in range(len(names))}
    made = converted(write_savepoint(tmp_path / "savepoint", infos, entries.items()), tmp_path / "target")
    assert [table_of(made.url, UID, name).column("value").to_pylist() for name in names] == [[number] for number in range(len(names))]
    assert len({table.path.rpartition("/")[0] for table in made.metadata.tables}) == len(names)
    assert verify(made.url).sound
    assert all(paths.kind_of(info.key) == "savepoint file" for info in open_store((tmp_path / "target").as_uri()).list(""))


class Counts(KeyedProcessFunction):
    """Counts the rows of a key, and remembers them until a timer."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.rows = runtime_context.get_map_state(MapStateDescriptor("rows", Types.LONG(), Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        self.rows.put(count, {"row": value.number})
        if (now_ms := ctx.timestamp()) is not None:
            ctx.timer_service().register_event_time_timer(now_ms + 10)
        yield value.user, count, str(sorted(self.rows.items()))

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), -timestamp, ""


@pytest.mark.parametrize(("first", "then"), [("memory", "rocksdb"), ("rocksdb", "memory"), ("rocksdb", "filesystem")])
def test_a_job_goes_on_with_another_state_backend(first: str, then: str, tmp_path: Path) -> None:
    """Coordinator, slots and storage as in production: state and timers of a canonical savepoint, then checkpoints of its own and a crash."""
    columns = {"user": pa.string(), "number": pa.int64(), "at": pa.timestamp("us", "UTC")}
    output = {"user": pa.string(), "count": pa.int64(), "rows": pa.string()}
    job = partial(TestingJob, Counts(), columns, output, key="user", event_time="at")
    rows = [(f"user-{number % 7}", number, pd.Timestamp(number, unit="ms", tz="UTC")) for number in range(40)]
    with job(parallelism=3, backend=first) as whole:
        expected = whole.run(rows)
    with job(parallelism=2, backend=first, folder=tmp_path / "first") as before:
        found = before.run([*rows[:20], SAVEPOINT])
        url = converted(before.savepoints[0], tmp_path / "target").url
    with job(parallelism=3, backend=then, folder=tmp_path / "then", restore_from=url) as after:
        found += after.run(rows[20:])
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


@pytest.fixture
def command() -> Callable[..., tuple[int, str]]:
    """Runs the command line."""

    def run(*args: str) -> tuple[int, str]:
        done = CliRunner().invoke(build_app(), list(args))
        return done.exit_code, done.output

    return run


def test_the_command(tmp_path: Path, command: Callable[..., tuple[int, str]]) -> None:
    """It prints where the savepoint is; listing and verifying know it, and converting it again is refused."""
    _, slots = counts_of_users(tmp_path, 10)
    code, said = command("convert", str(tmp_path / "savepoint"), str(tmp_path / "target"), "-o", "json")
    document = json.loads(said.splitlines()[-1])
    assert (code, document["entries"], document["without_table"]) == (0, 2 * len(slots), [])
    assert 0 < document["tables_bytes"] < document["size_bytes"]
    code, said = command("checkpoints", str(tmp_path / "target"), "-o", "json")
    assert (code, "canonical" in said) == (0, True)
    assert command("verify", document["path"])[0] == 0
    assert command("state", document["path"], "--uid", UID, "--state", "count", "--key", "user-3")[0] == 0
    code, said = command("convert", document["path"], str(tmp_path / "target"))
    assert (code, "canonical already" in said) == (2, True)
    assert command("snapshot", "dispose", document["path"])[0] == 0
    assert not [path for path in (tmp_path / "target").rglob("*") if path.is_file()]
    with pytest.raises(InvalidInputError):
        converted((tmp_path / "nothing").as_uri(), tmp_path / "target")
