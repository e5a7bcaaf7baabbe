"""``statefulspark bootstrap``: state from Parquet files and JSON lines, in a new savepoint or changed in a copy of one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from state_snapshots import UID
from typer.testing import CliRunner

from statefulspark import MapStateDescriptor, StateTtlConfig, Time, Types, ValueStateDescriptor, state_tables
from statefulspark.checkpoint.catalog import open_checkpoint
from statefulspark.checkpoint.inspect.reader import find_state
from statefulspark.cli.main import build_app
from statefulspark.state_tables import SavepointWriter
from statefulspark.storage.open import open_store

from .canonical_savepoints import contents
from .snapshots import counts_of_users


def command(*args: object, stdin: str | None = None) -> tuple[int, str]:
    """Exit code and everything printed."""
    done = CliRunner().invoke(build_app(), ["bootstrap", *map(str, args)], stdin)
    return done.exit_code, done.output


def made(*args: object, stdin: str | None = None) -> dict[str, Any]:
    """The document of a command that succeeds."""
    code, said = command(*args, "-o", "json", stdin=stdin)
    assert code == 0, said
    document: dict[str, Any] = json.loads(said.splitlines()[-1])
    return document


_TOTALS = {"user": [f"user-{number}" for number in range(50)], "total": list(range(50)), "page": ["a", "b"] * 25}


def _files(folder: Path, columns: dict[str, Any]) -> str:
    """Two files, and what writers leave beside them."""
    folder.mkdir()
    table = pa.table(columns)
    pq.write_table(table.slice(0, 20), folder / "part-0.parquet")
    pq.write_table(table.slice(20), folder / "part-1.parquet")
    (folder / "_SUCCESS").touch()
    return str(folder)


@pytest.mark.parametrize(
    ("options", "descriptor", "columns"),
    [
        (("--value", "total"), ValueStateDescriptor("s", Types.LONG()), {"total": "value"}),
        (
            (),
            ValueStateDescriptor("s", Types.ROW_NAMED(["total", "page"], [Types.LONG(), Types.STRING()])),
            {"total": "total", "page": "page"},
        ),
        (("--map-key", "page"), MapStateDescriptor("s", Types.STRING(), Types.LONG()), {"page": "map_key", "total": "value"}),
    ],
)
def test_files_become_the_savepoint_of_an_arrow_table(
    options: tuple[str, ...], descriptor: Any, columns: dict[str, str], tmp_path: Path
) -> None:
    """The types of the columns are those of the state; a column that no option names is left out where others are named."""
    rows = _files(tmp_path / "rows", _TOTALS)
    document = made(rows, tmp_path / "target", "--uid", "step", "--state", "s", "--key", "user", "--max-parallelism", 32, *options)
    table = pa.table({"user": _TOTALS["user"], **{new: _TOTALS[old] for old, new in columns.items()}})
    oracle = SavepointWriter.new_savepoint(32).with_state("step", descriptor, table, key_columns=["user"]).write(str(tmp_path / "oracle"))
    assert contents(document["path"]) == contents(oracle.url)
    assert (document["rows"], document["entries"], document["changed"], document["kind"]) == (50, 50, "new", descriptor.kind)
    code, said = command(rows, tmp_path / "target", "--uid", "step", "--state", "s", "--key", "user", "--max-parallelism", 32, *options)
    assert code == 0
    assert "entries of all states" in said


def test_a_new_state_with_lists_and_a_time_to_live(tmp_path: Path) -> None:
    """Lists are one column; widths of numbers are those of the columns; rows may say when they expire."""
    at = 1_700_000_000_000
    columns = {"id": pa.array([1, 2], pa.int32()), "l": pa.array([[1], [2, 3]], pa.list_(pa.int16())), "at": [at, at + 1]}
    rows = tmp_path / "rows.parquet"
    pq.write_table(pa.table(columns), rows)
    options = ("--key", "id", "--kind", "list", "--ttl", "7d", "--expires", "at", "--max-parallelism", 8)
    document = made(rows, tmp_path / "target", "--uid", "step", "--state", "l", *options)
    info = find_state(open_checkpoint(document["path"], open_store), "step", "l")
    assert (info.ttl_ms, document["type"]) == (7 * 86_400_000, "LIST(SHORT)")
    found = state_tables.read_arrow(document["path"], "step", "l", with_expiry=True, include_expired=True).to_pylist()
    assert sorted((row["id"], row["value"], row["expires_ms"]) for row in found) == [(1, [1], at), (2, [2, 3], at + 1)]


def test_single_keys_are_patched_from_standard_input(tmp_path: Path) -> None:
    """Key, kind and types are those of the savepoint; everything else of it stays byte for byte."""
    url, _ = counts_of_users(tmp_path, 5)
    before = contents(url)
    rows = '{"user": "user-1", "value": 100}\n{"user": "ada", "value": 7}\n'
    document = made("-", tmp_path / "target", "--uid", UID, "--state", "count", "--from", url, stdin=rows)
    assert (document["changed"], document["rows"], document["entries"]) == ("merged", 2, 11)
    after = contents(document["path"])
    assert len({key for key in {*before, *after} if before.get(key) != after.get(key)}) == 2
    found = state_tables.read_arrow(document["path"], UID, "count", keys=["user-1", "ada"]).to_pylist()
    assert {row["user"]: row["value"] for row in found} == {"user-1": 100, "ada": 7}
    assert contents(url) == before


def test_maps_and_states_that_expire_are_patched(tmp_path: Path) -> None:
    """A row is an entry of the map; others of the key stay. ``expires_ms`` is read where it is there."""
    pages = MapStateDescriptor("pages", Types.STRING(), Types.LONG())
    pages.enable_time_to_live(StateTtlConfig.new_builder(Time.days(1)).build())
    table = pa.table({"id": pa.array([1, 1, 2]), "map_key": ["a", "b", "a"], "value": [1, 2, 3]})
    first = SavepointWriter.new_savepoint(8).with_state("step", pages, table, key_columns=["id"]).write(str(tmp_path / "first"))
    late = 1 << 45
    rows = tmp_path / "rows.jsonl"
    rows.write_text(f'{{"id": 1, "map_key": "b", "value": 20, "expires_ms": {late}}}\n')
    document = made(rows, tmp_path / "target", "--uid", "step", "--state", "pages", "--from", first.url)
    found = state_tables.read_arrow(document["path"], "step", "pages", with_expiry=True).to_pylist()
    assert sorted((row["id"], row["map_key"], row["value"]) for row in found) == [(1, "a", 1), (1, "b", 20), (2, "a", 3)]
    assert [row["map_key"] for row in found if row["expires_ms"] == late] == ["b"]


def test_a_state_is_added_to_a_savepoint(tmp_path: Path) -> None:
    url, _ = counts_of_users(tmp_path, 5)
    rows = _files(tmp_path / "rows", _TOTALS)
    options = ("--uid", UID, "--state", "total", "--value", "total", "--from", url)
    document = made(rows, tmp_path / "target", *options, "--new-state", "--max-parallelism", 64)
    assert (document["changed"], document["entries"]) == ("new", 60)
    assert {each["state"] for each in document["states"]} == {"count", "event-timers", "total"}
    assert state_tables.read_arrow(document["path"], UID, "total", keys=["user-7"]).column("value").to_pylist() == [7]


_SECRET = "987654321"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--key", "user"), "--max-parallelism: is missing"),
        (("--max-parallelism", "8"), "--key: is missing"),
        (("--key", "user", "--max-parallelism", "0"), "0 is out of range"),
        (("--key", "user", "--max-parallelism", "8", "--new-state"), "--new-state: can only be used with --from"),
        (("--key", "usr", "--max-parallelism", "8"), "expected one column 'usr'"),
        (("--key", "user", "--value", "user", "--max-parallelism", "8"), "'user' is named for two things"),
        (("--key", "user", "--key", "value", "--max-parallelism", "8"), "no column has the value"),
        (("--key", "user", "--kind", "list", "--max-parallelism", "8"), "one column with a list"),
        (("--key", "user", "--kind", "map", "--max-parallelism", "8"), "map key"),
        (("--key", "user", "--ttl", "soon", "--max-parallelism", "8"), "--ttl: "),
        (("--from", "{origin}"), "has no state 's'"),
        (("--from", "{origin}", "--state", "event-timers"), "is of the kind 'event-timers'"),
        (("--from", "{origin}", "--state", "count", "--kind", "value"), "--kind: is that of the state"),
        (("--from", "{origin}", "--state", "count", "--map-key", "value"), "is no map"),
        (("--from", "{origin}", "--state", "count", "--key", "value", "--value", "user"), "would be named 'value'"),
        (("--from", "{origin}", "--state", "count", "--new-state"), "it exists"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(args: tuple[str, ...], message: str, tmp_path: Path) -> None:
    origin, _ = counts_of_users(tmp_path, 2)
    rows = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"user": ["a", "b"], "value": [1, 2]}), rows)
    code, said = command(rows, tmp_path / "target", "--uid", UID, "--state", "s", *(each.format(origin=origin) for each in args))
    assert (code, message in said) == (2, True), said
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.parquet", b"PAR1 no, it is not PAR1", "rows.parquet is not sound"),
        ("rows.jsonl", f'{{"user": "{_SECRET}", "value": 1\n{{"user"'.encode(), "rows.jsonl is not sound"),
        ("rows.jsonl", f'{{"user": "a", "value": 1}}\n{{"user": "b", "value": "{_SECRET}"}}\n'.encode(), "rows.jsonl is not sound"),
        (
            "rows.jsonl",
            f'{{"user": "{_SECRET}", "value": 1}}\n{{"user": "{_SECRET}", "value": 2}}\n'.encode(),
            "rows 0 and 1 have the same key",
        ),
        ("rows.jsonl", f'{{"user": "{_SECRET}", "value": 1}}\n{{"value": 2}}\n'.encode(), "row 1, column 'user': key column is null"),
        ("rows.csv", b"user,value\na,1\n", "neither Parquet nor JSON lines"),
        ("rows", None, "has no files"),
    ],
)
def test_files_that_are_not_sound_are_named(name: str, content: bytes | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    options = ("--uid", "step", "--state", "s", "--key", "user", "--max-parallelism", 8)
    code, said = command(tmp_path / name, tmp_path / "target", *options)
    assert (code, message in said) == (2, True), said
    assert _SECRET not in said
    assert not [path for path in (tmp_path / "target").rglob("*") if path.is_file()]


def test_a_later_file_with_other_columns_is_named(tmp_path: Path) -> None:
    folder = Path(_files(tmp_path / "rows", _TOTALS))
    pq.write_table(pa.table({"user": ["x"], "page": ["a"]}), folder / "part-2.parquet")
    options = ("--uid", "step", "--state", "s", "--key", "user", "--value", "total", "--max-parallelism", 8)
    code, said = command(folder, tmp_path / "target", *options)
    assert (code, "part-2.parquet has no column 'total'" in said) == (2, True), said
    assert not [path for path in (tmp_path / "target").rglob("*") if path.is_file()]
