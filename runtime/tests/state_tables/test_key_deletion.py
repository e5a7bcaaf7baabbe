"""A savepoint without some keys has nothing of them, and everything else byte for byte."""

from __future__ import annotations

import json
import tempfile
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
from typer.testing import CliRunner

from statefulspark import (
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    RuntimeContext,
    Types,
    ValueStateDescriptor,
    state_tables,
)
from statefulspark.checkpoint.catalog import open_checkpoint
from statefulspark.checkpoint.inspect.reader import state_infos
from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.checkpoint.restore.operator_state import read_operator_file
from statefulspark.cli.main import build_app
from statefulspark.errors import CorruptDataError, InvalidInputError
from statefulspark.state.encoding.keys import KeyCodec
from statefulspark.state.encoding.layout import StateInfo, store_key, timer_store_key
from statefulspark.state.operator.entries import is_operator_state
from statefulspark.state.timers import TIMER_KINDS
from statefulspark.storage.open import open_store
from statefulspark.testing import SAVEPOINT, TestingJob

from .canonical_savepoints import contents, converted, restored, table_of
from .snapshots import counts_of_users, info_of

GOLDEN = Path(__file__).parent.parent / "checkpoint" / "golden"
SAVEPOINTS = sorted(each for each in GOLDEN.iterdir() if each.is_dir())
_BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
# One key is the beginning of another, and looks like the length or the user key of another.
_KEYS = st.sampled_from([b"", b"k", b"kk", b"\0", b"\0\0\0\1k", b"k" * 300])


def _files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@settings(deadline=None, max_examples=examples(6, 60))
@given(data=st.data(), backend=st.sampled_from(["filesystem", "rocksdb"]), to=st.sampled_from(["memory", "rocksdb"]))
def test_random_keys_are_deleted_and_no_others(data: st.DataObject, backend: str, to: str) -> None:
    """Values, maps and timers of a uid, in any key group; another uid has the same keys and keeps them."""
    infos = [
        info_of("v", Types.LONG(), keys=(_BYTES,)),
        info_of("m", Types.MAP(_BYTES, Types.LONG()), kind="map", state_id=2, keys=(_BYTES,)),
        StateInfo(state_id=3, uid=UID, name="event-timers", kind="event-timers", key_type=[_BYTES.to_json()], type={}),
        StateInfo(state_id=4, uid="other", name="v", kind="value", key_type=[_BYTES.to_json()], type=Types.LONG().to_json()),
    ]
    codec, model = KeyCodec([_BYTES]), {}
    value = b"\1" + Types.LONG().encode(7)
    for group, key in data.draw(st.lists(st.tuples(st.sampled_from([0, 5, 64, 127]), _KEYS), max_size=12)):
        encoded = codec.encode(key)
        model[store_key(group, 1, encoded)] = ("v", key, value)
        for user_key in data.draw(st.lists(_KEYS, max_size=3)):
            model[store_key(group, 2, encoded, _BYTES.encode(user_key))] = ("m", key, value)
        for due in data.draw(st.lists(st.sampled_from([-(1 << 63), 0, 5, (1 << 63) - 1]), max_size=3)):
            model[timer_store_key(group, 3, due, encoded)] = ("event-timers", key, b"")
        model[store_key(group, 4, encoded)] = ("other", key, value)
    wanted = data.draw(st.lists(_KEYS, min_size=1, max_size=3))
    gone = {stored for stored, (name, key, _) in model.items() if key in wanted and name != "other"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        url = write_savepoint(folder / "origin", infos, [(key, each[2]) for key, each in model.items()], backend=backend)
        before = _files(folder / "origin")
        done = state_tables.delete_keys(url, str(folder / "target"), UID, wanted)
        assert _files(folder / "origin") == before
        assert verify(done.url).problems == ()
        left = {key: each[2] for key, each in model.items() if key not in gone}
        assert contents(done.url) == left
        assert restored(done.url, to, 3, folder) == left
        assert done.deleted == {each: sum(model[key][0] == each for key in gone) for each in ("event-timers", "m", "v")}
        assert list(done.not_found) == [key for key in wanted if key not in {model[each][1] for each in gone}]
        for state, column in (("v", "value"), ("m", "value"), ("event-timers", "timestamp_ms")):
            table = table_of(done.url, UID, state)
            assert len(table.column(column)) == sum(each[0] == state for key, each in model.items() if key not in gone)
            assert not set(table.column("key").to_pylist()) & set(wanted)


@pytest.mark.parametrize("folder", SAVEPOINTS, ids=lambda each: each.name)
def test_savepoints_of_every_format_lose_a_key(folder: Path, tmp_path: Path) -> None:
    """Evolved schemas, long lists, windows, timers on the heap, operator and raw state; a canonical origin too."""
    url = folder.as_uri()
    origin = open_checkpoint(url, open_store)
    keyed = [each for each in state_infos(origin) if not is_operator_state(each) and each.kind != "raw-keyed"]
    for uid in sorted({each.uid for each in keyed}):
        infos = {each.state_id: each for each in keyed if each.uid == uid}
        every = contents(url)
        # An oracle of its own: a store key of the layout in docs/formats.md is taken apart by hand.
        keys = {}
        for stored in every:
            if (info := infos.get(int.from_bytes(stored[2:4], "big"))) is not None:
                size = int.from_bytes(stored[4:8], "big")
                keys[stored] = stored[12:] if info.kind in TIMER_KINDS else stored[8 : 8 + size]
        if not keys:
            continue
        data = sorted(keys.values())[len(keys) // 2]
        key = KeyCodec.from_json(next(iter(infos.values())).key_type).decode(data)
        done = state_tables.delete_keys(url, str(tmp_path), uid, [key])
        assert verify(done.url).problems == ()
        assert contents(done.url) == {stored: value for stored, value in every.items() if keys.get(stored) != data}
        assert sum(done.deleted.values()) > 0
        assert done.not_found == ()
        made = open_checkpoint(done.url, open_store)
        assert [read_operator_file(made, each) for each in made.metadata.operator_state] == [
            read_operator_file(origin, each) for each in origin.metadata.operator_state
        ]
        for info in infos.values():
            left = state_tables.read_arrow(done.url, uid, info.name, keys=[key], include_expired=True, decimals_as_text=True)
            assert left.num_rows == 0


class Visits(KeyedProcessFunction):
    """Counts visits, lists them, and reports at a timer."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.numbers = runtime_context.get_list_state(ListStateDescriptor("numbers", Types.LONG()))
        self.pages = runtime_context.get_map_state(MapStateDescriptor("pages", Types.LONG(), Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        self.numbers.add(value.number)
        self.pages.put(value.number % 3, value.number)
        ctx.timer_service().register_event_time_timer(value.number + 15)
        yield value.user, self.count.value(), str([*self.numbers.get(), *sorted(self.pages.items())])

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), -timestamp, ""


@pytest.mark.parametrize(("first", "then"), [("rocksdb", "memory"), ("filesystem", "rocksdb")])
def test_a_job_goes_on_as_if_it_had_never_seen_the_key(first: str, then: str, tmp_path: Path) -> None:
    """Its timers do not fire, and its next row is its first. The oracle is a job that did not get the key's earlier rows."""
    columns = {"user": pa.string(), "number": pa.int64(), "at": pa.timestamp("us", "UTC")}
    output = {"user": pa.string(), "count": pa.int64(), "text": pa.string()}
    job = partial(TestingJob, Visits(), columns, output, key="user", event_time="at")
    rows = [(f"user-{number % 7}", number, pd.Timestamp(number, unit="ms", tz="UTC")) for number in range(60)]
    with job(parallelism=2, backend=first, folder=tmp_path / "first") as before:
        before.run([*rows[:30], SAVEPOINT])
        origin = before.savepoints[0]
    with job(parallelism=2, backend=first, folder=tmp_path / "oracle") as oracle:
        oracle.run([*(row for row in rows[:30] if row[0] != "user-3"), SAVEPOINT])
        unseen = oracle.savepoints[0]
    with job(parallelism=2, backend=first, folder=tmp_path / "expected", restore_from=unseen) as again:
        expected = again.run(rows[30:])
    done = state_tables.delete_keys(origin, str(tmp_path / "target"), next(iter(_uids(origin))), ["user-3"])
    assert done.deleted["count"] == done.deleted["numbers"] == 1
    with job(parallelism=3, backend=then, folder=tmp_path / "then", restore_from=done.url) as after:
        found = after.run(rows[30:])
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


def _uids(url: str) -> set[str]:
    return {table.uid for table in state_tables.list_states(url)}


def test_what_is_wrong_is_said_before_anything_is_written(tmp_path: Path) -> None:
    url, _ = counts_of_users(tmp_path, 5)
    target = tmp_path / "target"
    for uid, keys, message in (
        ("ordres", ["user-1"], f"Use one of: {UID}"),
        (UID, [], "Name the keys"),
        (UID, "user-1", "Put the key in a list"),
        (UID, [7], "keys"),
        (UID, [None], "keys"),
        (UID, [("user-1", "x")], "keys"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            state_tables.delete_keys(url, str(target), uid, keys)
    assert not target.exists() or not _files(target)


def test_a_damaged_origin_leaves_nothing(tmp_path: Path) -> None:
    url, _ = counts_of_users(tmp_path, 50, backend="rocksdb")
    largest = max((each for each in _files(tmp_path / "savepoint") if each.name != "_metadata"), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-1])
    with pytest.raises(CorruptDataError):
        state_tables.delete_keys(url, str(tmp_path / "target"), UID, ["user-1"])
    assert not _files(tmp_path / "target")


def test_the_command(tmp_path: Path) -> None:
    """Keys come as options, from a file or from standard input; what was not found is said."""
    counts_of_users(tmp_path, 20)
    (tmp_path / "keys.txt").write_text("user-4\n\nnobody\n")
    arguments = [str(tmp_path / "savepoint"), str(tmp_path / "target"), "--uid", UID]
    done = CliRunner().invoke(
        build_app(), ["delete-keys", *arguments, "--key", "user-3", "--keys-file", str(tmp_path / "keys.txt"), "-o", "json"]
    )
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["deleted"] == {"count": 2, "event-timers": 2}
    assert document["not_found"] == ["nobody"]
    assert "user-3" in table_of(converted((tmp_path / "savepoint").as_uri(), tmp_path / "all").url, UID, "count").column("user").to_pylist()
    users = table_of(document["path"], UID, "count").column("user").to_pylist()
    assert sorted(users) == sorted(f"user-{number}" for number in range(20) if number not in (3, 4))
    typed = CliRunner().invoke(
        build_app(), ["delete-keys", document["path"], str(tmp_path / "target"), "--uid", UID, "--keys-file", "-"], "user-5\n"
    )
    assert (typed.exit_code, "not found" in typed.output) == (0, False)
    for extra, message in (([], "Name the keys"), (["--keys-file", str(tmp_path / "none")], "cannot read")):
        refused = CliRunner().invoke(build_app(), ["delete-keys", *arguments, *extra])
        assert (refused.exit_code, message in refused.output) == (2, True)
