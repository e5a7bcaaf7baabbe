"""A savepoint with other names has every entry of the old one, and a job with these names goes on from it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from state_snapshots import UID
from typer.testing import CliRunner

from statefulspark import KeyedProcessFunction, ListStateDescriptor, RuntimeContext, Types, ValueStateDescriptor, state_tables
from statefulspark.checkpoint.catalog import open_checkpoint
from statefulspark.checkpoint.inspect.reader import state_infos
from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.checkpoint.restore.operator_state import read_operator_file
from statefulspark.cli.main import build_app
from statefulspark.errors import CorruptDataError, InvalidInputError, NotRestorableError
from statefulspark.state.api.names import RuntimeName
from statefulspark.state.operator.entries import OperatorEntry
from statefulspark.state_tables import SavepointWriter
from statefulspark.storage.open import open_store
from statefulspark.testing import SAVEPOINT, TestingJob

from .canonical_savepoints import contents, restored, table_of
from .snapshots import counts_of_users

GOLDEN = Path(__file__).parent.parent / "checkpoint" / "golden"
SAVEPOINTS = sorted(each for each in GOLDEN.iterdir() if each.is_dir())


def _operator_state(url: str) -> list[tuple[OperatorEntry, ...]]:
    checkpoint = open_checkpoint(url, open_store)
    return [read_operator_file(checkpoint, file) for file in checkpoint.metadata.operator_state]


def _files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("folder", SAVEPOINTS, ids=lambda each: each.name)
def test_all_names_of_savepoints_of_every_format_change(folder: Path, tmp_path: Path) -> None:
    """Windows, evolved, operator, broadcast and raw state: entries byte for byte, found and restored under the new names."""
    url = folder.as_uri()
    infos = state_infos(open_checkpoint(url, open_store))
    uids = {uid: f"new {uid}" for uid in {info.uid for info in infos}}
    names = {(each.uid, each.name): f"{each.name}2" for each in infos if not each.name.startswith("_") and "timers" not in each.kind}
    writer = SavepointWriter.from_existing_savepoint(url)
    for old, new in uids.items():
        writer = writer.change_operator_identifier(old, new)
    for (uid, name), new in names.items():
        writer = writer.rename_state(uid, name, new)
    done = writer.write(str(tmp_path / "target"))
    assert verify(done.url).problems == ()
    every = contents(url)
    assert contents(done.url) == every
    assert restored(done.url, "rocksdb", 3, tmp_path) == every
    assert restored(done.url, "memory", 1, tmp_path) == every
    assert _operator_state(done.url) == _operator_state(url)
    assert set(done.states) == {(uids[each.uid], names.get((each.uid, each.name), each.name)) for each in infos}
    for info in infos:
        old_table = state_tables.read_arrow(url, info.uid, info.name, decimals_as_text=True)
        state = (uids[info.uid], names.get((info.uid, info.name), info.name))
        assert state_tables.read_arrow(done.url, *state, decimals_as_text=True).equals(old_table)
        found = table_of(done.url, *state)
        assert found.drop_columns([name for name in found.column_names if name == "expires_ms"]).to_pylist() == old_table.to_pylist()


@pytest.mark.parametrize("folder", SAVEPOINTS, ids=lambda each: each.name)
def test_each_state_of_every_format_can_be_removed(folder: Path, tmp_path: Path) -> None:
    """Nothing of it is left, neither entries nor elements nor a table, and everything else is."""
    url = folder.as_uri()
    every, operator = contents(url), _operator_state(url)
    infos = state_infos(open_checkpoint(url, open_store))
    windowed = {each.uid for each in infos if each.name.startswith("_") and "raw" not in each.kind}
    for info in infos:
        writer, gone = SavepointWriter.from_existing_savepoint(url), {info.state_id}
        if info.uid in windowed and (info.name.startswith("_") or "timers" in info.kind):
            with pytest.raises(InvalidInputError, match="belong together"):
                writer.remove_state(info.uid, info.name).write(str(tmp_path))
            done = writer.remove_operator(info.uid).write(str(tmp_path))
            gone = {each.state_id for each in infos if each.uid == info.uid}
        else:
            done = writer.remove_state(info.uid, info.name).write(str(tmp_path))
        assert verify(done.url).problems == ()
        assert contents(done.url) == {key: value for key, value in every.items() if int.from_bytes(key[2:4], "big") not in gone}
        assert _operator_state(done.url) == [tuple(each for each in file if each.state_id not in gone) for file in operator]
        assert (info.uid, info.name) not in done.states
        assert not [
            table for table in open_checkpoint(done.url, open_store).metadata.tables if (table.uid, table.state) == (info.uid, info.name)
        ]


class Visits(KeyedProcessFunction):
    """Counts visits, lists them, and reports at a timer."""

    count_name, numbers_name = "count", "numbers"

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor(self.count_name, Types.LONG()))
        self.numbers = runtime_context.get_list_state(ListStateDescriptor(self.numbers_name, Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        self.numbers.add(value.number)
        ctx.timer_service().register_event_time_timer(value.number + 15)
        yield value.user, self.count.value(), str(list(self.numbers.get()))

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), -timestamp, ""


class RenamedVisits(Visits):
    """The same with other names of its states, one of which is the other's old name."""

    count_name, numbers_name = "numbers", "list"


class CountedVisits(Visits):
    """Has no list any more."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        yield value.user, self.count.value(), ""


COLUMNS = {"user": pa.string(), "number": pa.int64(), "at": pa.timestamp("us", "UTC")}
OUTPUT = {"user": pa.string(), "count": pa.int64(), "text": pa.string()}
ROWS = [(f"user-{number % 7}", number, pd.Timestamp(number, unit="ms", tz="UTC")) for number in range(60)]


@pytest.mark.parametrize(("first", "then"), [("rocksdb", "memory"), ("memory", "rocksdb")])
def test_a_job_with_another_uid_and_other_states_goes_on(first: str, then: str, tmp_path: Path) -> None:
    """The oracle is a job that never stopped."""
    job = partial(TestingJob, Visits(), COLUMNS, OUTPUT, key="user", event_time="at")
    with job(parallelism=2, backend=first) as whole:
        expected = whole.run(ROWS)
    with job(parallelism=2, backend=first, folder=tmp_path / "first") as before:
        found = before.run([*ROWS[:30], SAVEPOINT])
        origin = before.savepoints[0]
    writer = SavepointWriter.from_existing_savepoint(origin).change_operator_identifier("testing", "visits")
    done = writer.rename_state("testing", "count", "numbers").rename_state("testing", "numbers", "list").write(str(tmp_path / "target"))
    renamed = partial(TestingJob, RenamedVisits(), COLUMNS, OUTPUT, uid="visits", key="user", event_time="at")
    with renamed(parallelism=3, backend=then, folder=tmp_path / "then", restore_from=done.url) as after:
        found += after.run([*ROWS[30:], SAVEPOINT])
        names = {(each.uid, each.state) for each in state_tables.list_states(after.savepoints[0])}
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
    assert {each for each in names if "timers" not in each[1]} == {("visits", "numbers"), ("visits", "list")}
    assert {uid for uid, _ in names} == {"visits"}


@pytest.mark.parametrize("backend", ["rocksdb", "memory"])
def test_a_job_without_a_state_and_timers_goes_on_without_them(backend: str, tmp_path: Path) -> None:
    """The removed state is not missing, so the job starts without ``allowNonRestoredState``; the removed timers do not fire."""
    with TestingJob(Visits(), COLUMNS, OUTPUT, key="user", event_time="at", backend=backend, folder=tmp_path / "first") as before:
        before.run([*ROWS[:30], SAVEPOINT])
        origin = before.savepoints[0]
    writer = SavepointWriter.from_existing_savepoint(origin)
    done = writer.remove_state("testing", "numbers").remove_state("testing", "event-timers").write(str(tmp_path / "target"))
    again = partial(TestingJob, CountedVisits(), COLUMNS, OUTPUT, key="user", event_time="at", backend=backend, parallelism=3)
    with again(folder=tmp_path / "then", restore_from=done.url) as after:
        found = after.run([*ROWS[30:], SAVEPOINT])
        assert {each.state for each in state_tables.list_states(after.savepoints[0])} - {"event-timers", "processing-timers"} == {"count"}
        assert after.event_time_timers() == []
    expected = [(user, sum(each[0] == user for each in ROWS[: number + 1]), "") for user, number, _ in ROWS[30:]]
    assert sorted(map(tuple, found)) == sorted(expected)


class EarlierVisits(Visits):
    """As a release could run it that let functions declare a state of any name."""

    count_name = RuntimeName("_window.count")


class SameVisits(Visits):
    """The same code on this release."""

    count_name = "_window.count"


@pytest.mark.parametrize("backend", ["rocksdb", "memory"])
def test_state_with_a_name_that_is_reserved_now_is_refused_until_it_is_renamed(backend: str, tmp_path: Path) -> None:
    """Both errors say how; nothing starts empty meanwhile, and the renamed state goes on. The oracle is a job that never stopped."""
    job = partial(TestingJob, input_schema=COLUMNS, output_schema=OUTPUT, key="user", event_time="at", backend=backend)
    with job(Visits()) as whole:
        expected = whole.run(ROWS)
    with job(EarlierVisits(), folder=tmp_path / "first") as before:
        found = before.run([*ROWS[:30], SAVEPOINT])
        origin = before.savepoints[0]
    with (
        pytest.raises(InvalidInputError, match=r"'_window.count': the name is reserved .* statefulspark rewrite .* --rename-state"),
        job(SameVisits(), folder=tmp_path / "same", restore_from=origin) as same,
    ):
        same.run(ROWS[30:])
    with (
        pytest.raises(NotRestorableError, match=r"'count' .* it is new .* Rename '_window.count' in the snapshot .*statefulspark rewrite"),
        job(Visits(), folder=tmp_path / "other", restore_from=origin) as other,
    ):
        other.run(ROWS[30:])
    arguments = ["rewrite", origin, str(tmp_path / "target"), "--rename-state", "testing:_window.count=count", "-o", "json"]
    said = CliRunner().invoke(build_app(), arguments).output
    with job(Visits(), folder=tmp_path / "then", restore_from=json.loads(said.splitlines()[-1])["path"], parallelism=3) as after:
        found += after.run(ROWS[30:])
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


def test_a_failed_rewriting_leaves_nothing(tmp_path: Path) -> None:
    url, _ = counts_of_users(tmp_path, 50, backend="rocksdb")
    before = _files(tmp_path / "savepoint")
    writer = SavepointWriter.from_existing_savepoint(url)
    for wrong in (writer, writer.rename_state(UID, "count", "event-timers"), writer.remove_operator("ordres")):
        with pytest.raises(InvalidInputError):
            wrong.write(str(tmp_path / "target"))
    with pytest.raises(InvalidInputError, match="two new names"):
        writer.change_operator_identifier(UID, "a").change_operator_identifier(UID, "b")
    largest = max((each for each in before if each.name != "_metadata"), key=lambda path: path.stat().st_size)
    largest.write_bytes(before[largest][:-1])
    with pytest.raises(CorruptDataError):
        writer.change_operator_identifier(UID, "carts").write(str(tmp_path / "target"))
    assert not _files(tmp_path / "target")


def test_the_command(tmp_path: Path) -> None:
    """Names with separators are written as JSON; a damaged or repeated one is refused before anything is written."""
    counts_of_users(tmp_path, 20)

    def command(*args: str, path: str = str(tmp_path / "savepoint")) -> tuple[int, str]:
        done = CliRunner().invoke(build_app(), ["rewrite", path, str(tmp_path / "target"), *args])
        return done.exit_code, done.output

    for args, message in (
        ((), "no changes"),
        (("--rename-uid", UID), "2 things"),
        (("--rename-uid", f"{UID}=a=b"), "2 things"),
        (("--rename-state", f"{UID}:count"), "3 things"),
        (("--rename-state", f'["{UID}", "count"]'), "3 things"),
        (("--rename-uid", f"{UID}=a", "--rename-uid", f"{UID}=b"), "two new names"),
        (("--remove-state", f"{UID}:cuont"), "count"),
    ):
        code, said = command(*args)
        assert (code, message in said) == (2, True), said
    assert not (tmp_path / "target").exists()
    code, said = command(
        "--rename-uid", f'["{UID}", "a:b=c"]', "--rename-state", f"{UID}:count=n", "--remove-state", f"{UID}:event-timers", "-o", "json"
    )
    document = json.loads(said.splitlines()[-1])
    assert (code, document["states"], document["entries"]) == (0, [{"uid": "a:b=c", "state": "n"}], 20)
    again = ("--rename-uid", '["a:b=c", "orders"]', "--rename-state", '["a:b=c", "n", "count"]')
    code, said = command(*again, path=document["path"])
    assert (code, "count" in said) == (0, True)
    code, said = command("--remove-uid", "a:b=c", "-o", "json", path=document["path"])
    assert (code, json.loads(said.splitlines()[-1])["states"]) == (0, [])
