"""What is in a checkpoint can be read without the job, and damage is found without restoring."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from runtime.tests.checkpoint.miniature import Miniature
from typer.testing import CliRunner, Result

from statefulspark.checkpoint.catalog import list_checkpoints, open_checkpoint
from statefulspark.checkpoint.inspect.decoding import EntryDecoder, StateEntry, parse_key, type_text
from statefulspark.checkpoint.inspect.reader import read_state, state_sizes
from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.cli import main
from statefulspark.errors import CorruptDataError, InvalidInputError
from statefulspark.state.api.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from statefulspark.state.backend import BatchBudget
from statefulspark.state.encoding.layout import Schema, StateInfo
from statefulspark.state.row import Row
from statefulspark.state.store.heap_store import HeapStore
from statefulspark.state.timers import EVENT_TIMERS
from statefulspark.state.types.composites import ListTypeInfo
from statefulspark.state.types.types import TypeInformation, Types
from statefulspark.storage.open import open_store
from statefulspark.testing.keyed_state import KeyedSlot, key_group

runner = CliRunner()


@pytest.fixture
def mini(tmp_path: Path) -> Miniature:
    """A job with two checkpoints of one slot that holds a value, a list, a map, a pickled value and a timer for two aircraft."""
    (tmp_path / "local").mkdir()
    job = open_store((tmp_path / "checkpoints" / "flights").as_uri())
    mini = Miniature(job, tmp_path / "local", HeapStore, max_parallelism=128, backend="memory")
    mini.start(1)
    mini.checkpoint(-1)
    slot = KeyedSlot(mini.slots[0].store, tmp_path / "spill", BatchBudget(cache_bytes=1 << 20, dirty_bytes=1 << 20))
    legs = slot.backend.value_state(ValueStateDescriptor("legs", Types.LONG()))
    delays = slot.backend.list_state(ListStateDescriptor("delays", Types.DOUBLE()))
    airports = slot.backend.map_state(MapStateDescriptor("airports", Types.STRING(), Types.INT()))
    last = slot.backend.value_state(ValueStateDescriptor("last", Types.PICKLED_BYTE_ARRAY()))
    slot.begin()
    for number, tail in enumerate(("N101", "P202"), start=1):
        slot.key(tail)
        legs.update(number)
        delays.add_all([1.5, float(number)])
        airports.put("JFK", number)
        airports.put("LGA", None)
        last.update({"origin": tail})
        slot.backend.timers.register(EVENT_TIMERS, 1_357_000_000_000 + number)
    slot.backend.finish_batch(lambda changes: None)
    slot.backend.apply_pending()
    mini.states = tuple(info.to_json() for info in slot.registry.states())
    mini.checkpoint(0)
    return mini


def _url(mini: Miniature, folder: str = "chk-2") -> str:
    return f"{mini.job.url}/{folder}"


def test_every_state_is_listed_with_its_entries(mini: Miniature) -> None:
    """Values count by key, maps by entry, timers by timer."""
    counts = {(size.info.name, size.info.kind): size.entries for size in state_sizes(_url(mini))}
    assert counts == {
        ("airports", "map"): 4,
        ("delays", "list"): 2,
        ("event-timers", "event-timers"): 2,
        ("last", "value"): 2,
        ("legs", "value"): 2,
        ("processing-timers", "processing-timers"): 0,
    }
    assert all(size.size_bytes > 8 * size.entries for size in state_sizes(_url(mini)) if size.entries)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("legs", [("N101", None, 1, None), ("P202", None, 2, None)]),
        ("delays", [("N101", None, [1.5, 1.0], None), ("P202", None, [1.5, 2.0], None)]),
        ("airports", [("N101", "JFK", 1, None), ("N101", "LGA", None, None), ("P202", "JFK", 2, None), ("P202", "LGA", None, None)]),
        ("event-timers", [("N101", None, None, 1_357_000_000_001), ("P202", None, None, 1_357_000_000_002)]),
    ],
)
def test_entries_are_decoded_and_found_by_key(mini: Miniature, state: str, expected: list[tuple[Any, ...]]) -> None:
    """All entries come back as the function wrote them; a key finds its own and nothing else."""

    def facts(**options: Any) -> list[tuple[Any, ...]]:
        entries = read_state(mini.job.url, "step", state, **options)
        return [(entry.key, entry.user_key, entry.value, entry.timestamp_ms) for entry in entries]

    assert facts() == expected
    assert facts(key="P202") == [fact for fact in expected if fact[0] == "P202"]
    assert facts(key="N") == []


def test_pickled_values_are_bytes_unless_asked_for(mini: Miniature) -> None:
    """Looking at a checkpoint must not run code from it."""
    assert all(isinstance(entry.value, bytes) for entry in read_state(_url(mini), "step", "last"))
    assert [entry.value for entry in read_state(_url(mini), "step", "last", unpickle=True)] == [{"origin": "N101"}, {"origin": "P202"}]


def test_pickled_parts_of_other_types_are_hidden_too() -> None:
    """However deep in a list, a row or a map."""
    description = Types.LIST(Types.TUPLE([Types.LONG(), Types.PICKLED_BYTE_ARRAY()])).to_json()
    info = StateInfo(1, "u", "s", "value", [Types.STRING().to_json()], description)
    key = bytes.fromhex("0001000100000001") + b"k"
    entry = EntryDecoder(info).decode(key, b"\x01whatever")
    assert entry is not None
    assert entry.value == b"\x01whatever"


def test_values_that_expire_tell_when() -> None:
    """Values, None in maps, and lists element by element; the bytes are those that docs/formats.md describes."""
    key = bytes.fromhex("0001000100000001") + b"k"
    expiry = (5_000).to_bytes(8, "big")
    long, text = Types.LONG(), [Types.STRING().to_json()]

    def decoded(kind: str, type_: dict[str, Any], stored: bytes) -> tuple[Any, int | None]:
        entry = EntryDecoder(StateInfo(1, "u", "s", kind, text, type_, ttl_ms=1)).decode(key, stored)
        assert entry is not None
        return entry.value, entry.expires_ms

    assert decoded("value", long.to_json(), b"\x02" + expiry + long.encode(7)) == (7, 5_000)
    assert decoded("map", Types.MAP(Types.STRING(), long).to_json(), b"\x04" + expiry) == (None, 5_000)
    elements = ListTypeInfo.join([(4_000).to_bytes(8, "big") + long.encode(1), expiry + long.encode(2)])
    assert decoded("list", Types.LIST(long).to_json(), b"\x05" + elements) == ([1, 2], 5_000)
    for damaged in (b"\x02\x00", b"\x05\x00\x00\x00\x02", b""):
        with pytest.raises(CorruptDataError):
            decoded("list", Types.LIST(long).to_json(), damaged)


def test_wrong_names_say_what_there_is(mini: Miniature) -> None:
    """The remedy lists uids, or the uid's states."""
    with pytest.raises(InvalidInputError, match="Use one of: step"):
        read_state(_url(mini), "stop", "legs")
    with pytest.raises(InvalidInputError, match="airports, delays, event-timers, last, legs"):
        read_state(_url(mini), "step", "leg")
    with pytest.raises(InvalidInputError, match="neither a checkpoint"):
        read_state(f"{mini.job.url}/chk-9", "step", "legs")


def test_keys_as_a_person_types_them() -> None:
    """One column as it is, several as a JSON list, each as `state` shows it: also what JSON has no type for."""

    def parsed(text: str, *types: Any) -> Any:
        return parse_key(StateInfo(1, "u", "s", "value", [type_.to_json() for type_ in types], Types.LONG().to_json()), text)

    assert parsed("007", Types.STRING()) == "007"
    assert parsed("7", Types.LONG()) == 7
    assert parsed('["AA", 1]', Types.STRING(), Types.INT()) == ("AA", 1)
    of_bytes = Types.PRIMITIVE_ARRAY(Types.BYTE())
    assert parsed("2024-02-29", Types.SQL_DATE()) == date(2024, 2, 29)
    assert parsed("2024-02-29 01:02:03.5", Types.SQL_TIMESTAMP()) == datetime(2024, 2, 29, 1, 2, 3, 500_000)  # noqa: DTZ001  # no zone
    assert str(parsed("1.50", Types.BIG_DEC())) == "1.50"
    assert parsed("AP8=", of_bytes) == b"\x00\xff"
    several = parsed(
        '["hot", "1969-12-31", 1.50, "AP8=", true]', Types.STRING(), Types.SQL_DATE(), Types.BIG_DEC(), of_bytes, Types.BOOLEAN()
    )
    assert several == ("hot", date(1969, 12, 31), Decimal("1.50"), b"\x00\xff", True)
    assert str(several[2]) == "1.50"
    for text, types in (
        ("x", (Types.LONG(),)),
        ('"7"', (Types.LONG(),)),
        ('["AA"]', (Types.STRING(), Types.INT())),
        ('{"AA": 1}', (Types.STRING(), Types.INT())),
        ('["AA", null]', (Types.STRING(), Types.INT())),
        ("2024-02-30", (Types.SQL_DATE(),)),
        ("one", (Types.BIG_DEC(),)),
        ("*", (of_bytes,)),
    ):
        with pytest.raises(InvalidInputError, match="is not a key of type"):
            parsed(text, *types)


def test_types_read_as_declared() -> None:
    """Nested types in their order."""
    assert type_text(Types.MAP(Types.STRING(), Types.LIST(Types.LONG())).to_json()) == "MAP(STRING, LIST(LONG))"
    assert type_text({}) == ""


@pytest.mark.parametrize("place", ["", "/flights", "/flights/chk-2", "/flights/chk-2/", "/flights/chk-2/_metadata"])
def test_checkpoints_are_found_from_every_place(mini: Miniature, tmp_path: Path, place: str) -> None:
    """A directory of jobs, a job's folder, a checkpoint, its metadata; as URL or path."""
    for directory in ((tmp_path / "checkpoints").as_uri(), str(tmp_path / "checkpoints")):
        found = list_checkpoints(directory + place, open_store)
        assert [(summary.checkpoint_id, summary.status, summary.batch) for summary in found][-1] == (2, "complete", 0)
        assert len(found) == (1 if "chk" in place else 2)


def test_savepoints_unfinished_and_damaged_ones_are_listed_as_such(mini: Miniature, tmp_path: Path) -> None:
    """Sizes tell what a checkpoint needs and what it uploaded."""
    target = open_store((tmp_path / "savepoints").as_uri())
    url = mini.savepoint(target, "savepoint-flights-1", 0)
    assert [(summary.kind, summary.url) for summary in list_checkpoints(target.url, open_store)] == [("savepoint", url)]
    mini.checkpoint(0, publish_it=False)
    mini.job.put("chk-2/_metadata", mini.job.get("chk-2/_metadata")[:-9])
    private = next(info.key for info in mini.job.list("chk-1/slot"))
    mini.job.delete([private])
    found = list_checkpoints(mini.job.url, open_store)
    assert [summary.status for summary in found] == ["damaged", "damaged", "unfinished"]
    assert found[0].problem is not None
    assert private in found[0].problem
    assert found[0].size_bytes >= found[0].incremental_bytes > 0
    with pytest.raises(InvalidInputError, match="no complete checkpoint"):
        open_checkpoint(mini.job.url, open_store)
    with pytest.raises(InvalidInputError, match="holds no checkpoints"):
        list_checkpoints((tmp_path / "nothing").as_uri(), open_store)


def _flip(mini: Miniature, key: str) -> None:
    data = bytearray(mini.job.get(key))
    data[len(data) // 2] ^= 1
    mini.job.put(key, bytes(data))


def test_verify_names_every_damaged_file_and_the_checkpoint_before(mini: Miniature) -> None:
    """A flipped bit in a store file and one in the bundle are both told; the older checkpoint is offered."""
    assert verify(_url(mini)).sound
    assert verify(_url(mini)).entries == 12
    entries = next(info.key for info in mini.job.list("chk-2/slot"))
    _flip(mini, entries)
    _flip(mini, "chk-2/spark-location")
    report = verify(_url(mini))
    assert [problem.split(":")[1].rpartition("/")[2] for problem in report.problems] == ["entries", "spark-location"]
    assert report.alternative == _url(mini, "chk-1")


def test_verify_of_damaged_metadata_offers_the_checkpoint_before(mini: Miniature) -> None:
    """Nothing else can be looked at."""
    _flip(mini, "chk-2/_metadata")
    report = verify(_url(mini))
    assert (report.sound, report.alternative, report.files) == (False, _url(mini, "chk-1"), 0)


def test_verify_finds_entries_of_other_key_groups_and_unknown_states(mini: Miniature) -> None:
    """Files can be whole and still hold what does not belong there."""
    mini.slots[0].store.write([(b"\x00\x05\x00\x63" + b"\x00" * 4, b"\x01"), (b"\x7f\xff\x00\x01" + b"\x00" * 4, b"\x01")])
    mini.checkpoint(0)
    (problem,) = verify(mini.job.url).problems
    assert "2 entries are outside key groups 0-127 or belong to no known state" in problem


def _command(*arguments: str) -> Result:
    return runner.invoke(main.app, list(arguments), env={"COLUMNS": "200"})


def test_command_checkpoints(mini: Miniature) -> None:
    """JSON for programs, a table for people."""
    result = _command("checkpoints", mini.job.url, "-o", "json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)["checkpoints"]
    assert [(each["checkpoint_id"], each["status"], each["kind"], each["batch"]) for each in document] == [
        (1, "complete", "checkpoint", -1),
        (2, "complete", "checkpoint", 0),
    ]
    assert document[0]["age_s"] > 0
    mini.job.delete([next(info.key for info in mini.job.list("chk-1/slot"))])
    table = _command("checkpoints", mini.job.url)
    assert "chk-2" in table.stdout
    assert "is missing" in table.stdout


def test_long_paths_of_checkpoints_leave_room_for_all_else(mini: Miniature) -> None:
    """At 80 columns: in the table a number stands for each path, which follows whole. Kind and status are never cut."""
    name = "savepoint-flights-of-the-north-0f9a1b2c3d4e"
    mini.savepoint(open_store((Path(mini.folder) / "savepoints").as_uri()), name, 1_000_000)
    folder = (Path(mini.folder) / "savepoints").as_uri()
    lines = runner.invoke(main.app, ["checkpoints", folder], env={"COLUMNS": "80"}).stdout.splitlines()
    (row,) = [line for line in lines if "savepoint " in line]
    assert [cell.strip() for cell in row.strip("│").split("│")[:5]] == ["1", "savepoint", "complete", "1000000", "1"]
    assert f"1: {name}" in lines
    assert max(len(line) for line in lines[1:]) <= 80
    short = runner.invoke(main.app, ["checkpoints", mini.job.url], env={"COLUMNS": "80"}).stdout
    assert "│ chk-1 │ checkpoint │ complete │" in short


def test_command_verify(mini: Miniature) -> None:
    """Exit code 0 when sound; 1, the file's name and what to use instead when damaged; 2 when there is no checkpoint."""
    assert _command("verify", _url(mini)).exit_code == 0
    assert _command("verify", f"{mini.job.url}/chk-7").exit_code == 2
    _flip(mini, next(info.key for info in mini.job.list("chk-2/slot")))
    result = _command("verify", _url(mini), "-o", "json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert (document["sound"], document["alternative"]) == (False, _url(mini, "chk-1"))
    assert "/entries" in document["problems"][0]
    assert _url(mini, "chk-1") in result.stderr


def test_command_state(mini: Miniature) -> None:
    """States, then entries of one, then one key."""
    states = json.loads(_command("state", mini.job.url, "-o", "json").stdout)["states"]
    assert {state["name"]: state["entries"] for state in states}["airports"] == 4
    assert "MAP(STRING, INT)" in _command("state", mini.job.url).stdout
    of_state = ("state", mini.job.url, "--uid", "step", "--state")
    entries = json.loads(_command(*of_state, "legs", "--key", "P202", "-o", "json").stdout)
    assert entries["entries"] == [
        {"key_group": key_group("P202"), "key": "P202", "user_key": None, "value": 2, "timestamp_ms": None, "expires_ms": None}
    ]
    limited = _command(*of_state, "airports", "--limit", "3", "-o", "json")
    assert (len(json.loads(limited.stdout)["entries"]), json.loads(limited.stdout)["more"]) == (3, True)
    assert "raise --limit" in limited.stderr
    assert "2013-01-01 00:26:40" in _command(*of_state, "event-timers").stdout


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("--state", "legs"), "--state"),
        (("--key", "x"), "--key"),
        (("--uid", "no", "--state", "legs"), "uid"),
        (("--uid", "no"), "--uid"),
    ],
)
def test_command_state_refuses_incomplete_questions(mini: Miniature, arguments: tuple[str, ...], field: str) -> None:
    """Exit code 2, and the option that is missing or wrong."""
    result = _command("state", mini.job.url, *arguments)
    assert result.exit_code == 2
    assert field in result.stderr


def test_a_file_damaged_after_listing_is_refused_when_read(mini: Miniature) -> None:
    """Reading state verifies files like a restore does."""
    _flip(mini, next(info.key for info in mini.job.list("chk-2/slot")))
    entries = read_state(_url(mini), "step", "legs")
    with pytest.raises(CorruptDataError, match="entries"):
        next(entries)


def test_values_of_an_evolved_state() -> None:
    """Shown as the current schema has them, without what had expired before it, and never unpickled, not even a default or a removed field."""
    key = bytes.fromhex("0001000100000001") + b"k"
    pickled = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.PICKLED_BYTE_ARRAY()], defaults={"b": {"x": 1}})
    plain = Types.ROW_NAMED(["a"], [Types.INT()])

    def info(*types: TypeInformation, ttl_ms: int | None = None) -> StateInfo:
        schemas = tuple(Schema(type_.to_json(), ttl_ms if not at else None, 9 * at) for at, type_ in enumerate(types))
        return StateInfo(1, "u", "s", "value", [Types.STRING().to_json()], types[-1].to_json(), schemas=schemas)

    assert EntryDecoder(info(Types.INT(), Types.LONG())).decode(key, b"\x01" + Types.INT().encode(5)) == StateEntry(
        key_group=1, key="k", value=5
    )
    assert EntryDecoder(info(Types.INT(), Types.LONG(), ttl_ms=5)).decode(key, b"\x02" + bytes(7) + b"\x09" + Types.INT().encode(5)) is None
    stored = b"\x01" + plain.encode(Row(1))
    for types in ((plain, pickled), (plain, pickled, plain)):
        entry = EntryDecoder(info(*types)).decode(key, stored)
        assert entry is not None
        assert entry.value == stored
    entry = EntryDecoder(info(plain, pickled), unpickle=True).decode(key, stored)
    assert entry is not None
    assert entry.value == Row(a=1, b={"x": 1})
