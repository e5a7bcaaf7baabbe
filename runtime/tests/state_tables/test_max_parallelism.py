"""A savepoint with another maximum parallelism has every entry in the key group of its key's hash, and jobs go on from it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from itertools import product
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

from statefulspark import KeyedProcessFunction, ListStateDescriptor, MapStateDescriptor, RuntimeContext, Types, state_tables
from statefulspark.checkpoint.catalog import open_checkpoint
from statefulspark.checkpoint.formats.metadata import encode_metadata
from statefulspark.checkpoint.formats.pipeline import WIDENED, KeyColumn, Pipeline, StepKey
from statefulspark.checkpoint.inspect.key_hashes import xxh64
from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.cli.main import build_app
from statefulspark.errors import InvalidInputError
from statefulspark.state.encoding.keys import KeyCodec
from statefulspark.state.encoding.layout import StateInfo, store_key, timer_store_key
from statefulspark.state.encoding.segments import NEVER_MS, ListHead, pack_segment, segment_key
from statefulspark.state.types.types import TypeInformation
from statefulspark.state_tables import SavepointWriter
from statefulspark.state_tables.write.sorted_entries import SortedEntries
from statefulspark.storage.open import open_store
from statefulspark.testing import SAVEPOINT, TestingJob
from statefulspark.testing.key_hash import KeyHash

from .canonical_savepoints import contents, restored, table_of
from .snapshots import hashed_groups, info_of

GOLDEN = Path(__file__).parent.parent / "checkpoint" / "golden"
_BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
_KEYS: list[tuple[list[tuple[str, str]], tuple[TypeInformation, ...], st.SearchStrategy[Any]]] = [
    ([("user", "string")], (Types.STRING(),), st.text(max_size=40)),
    ([("id", "bigint")], (Types.LONG(),), st.integers(-(1 << 63), (1 << 63) - 1)),
    ([("data", "binary")], (_BYTES,), st.binary(max_size=70)),
    ([("day", "date")], (Types.SQL_DATE(),), st.dates(date(1900, 1, 1), date(2100, 1, 1))),
    ([("at", "timestamp")], (Types.SQL_TIMESTAMP(),), st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1))),  # noqa: DTZ001
    ([("price", "decimal(10,2)")], (Types.BIG_DEC(),), st.integers(-999, 999).map(lambda cents: Decimal(cents).scaleb(-2))),
    ([("user", "string"), ("id", "bigint")], (Types.STRING(), Types.LONG()), st.tuples(st.text(max_size=5), st.integers(0, 9))),
]


def _entries(group: int, key: bytes, states: list[StateInfo], data: Any) -> Iterator[tuple[bytes, bytes]]:
    """Entries of one key: a value, entries of a map and of windows, a list in segments, and timers."""
    number = Types.LONG().encode
    value, mapped, window, listed, timers = states
    yield store_key(group, value.state_id, key), b"\1" + number(1)
    for each in data.draw(st.lists(st.integers(0, 300), max_size=3)):
        yield store_key(group, mapped.state_id, key, number(each)), b"\1" + number(each)
        yield timer_store_key(group, timers.state_id, each - 100, key), b""
        start = (each + (1 << 63)).to_bytes(8, "big")
        yield store_key(group, window.state_id, key, start + start), b"\1" + number(each)
    head = store_key(group, listed.state_id, key)
    part = b"\1" + listed_type().encode([1, 2])
    for index in range(segments := data.draw(st.integers(0, 2))):
        yield segment_key(head, index), pack_segment(part)
    yield head, ListHead(segments, NEVER_MS, part).pack() if segments else part


def listed_type() -> TypeInformation:
    return Types.LIST(Types.LONG())


@settings(deadline=None, max_examples=examples(5, 30))
@given(
    data=st.data(),
    kind=st.sampled_from(_KEYS),
    sizes=st.sampled_from([(128, 129), (128, 1), (7, 32768), (32768, 3), (128, 64)]),
    backend=st.sampled_from(["filesystem", "rocksdb"]),
    parallelism=st.integers(1, 4),
)
def test_random_keys_with_all_kinds_of_state_move(
    data: st.DataObject, kind: Any, sizes: tuple[int, int], backend: str, parallelism: int
) -> None:
    """The expected entries are made with the new key groups from the start."""
    columns, types, keys_of = kind
    before, after = sizes
    window = "_window(TimeWindow 1000, reduced)"
    states = [
        info_of("v", Types.LONG(), keys=types),
        info_of("m", Types.MAP(Types.LONG(), Types.LONG()), kind="map", state_id=2, keys=types),
        info_of(window, Types.MAP(_BYTES, Types.LONG()), kind="map", state_id=3, keys=types),
        info_of("l", listed_type(), kind="list", state_id=4, keys=types),
        StateInfo(5, UID, "event-timers", "event-timers", [each.to_json() for each in types], {}),
    ]
    codec = KeyCodec(types)
    keys = data.draw(st.lists(keys_of, max_size=6, unique_by=codec.encode))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        groups = hashed_groups(folder / "empty", columns, keys, before)
        wanted = hashed_groups(folder / "empty2", columns, keys, after)
        entries, expected = {}, {}
        for key in keys:
            for stored, value in _entries(groups[key], codec.encode(key), states, data):
                entries[stored] = value
                expected[wanted[key].to_bytes(2, "big") + stored[2:]] = value
        url = write_savepoint(
            folder / "savepoint",
            states,
            entries.items(),
            backend=backend,
            parallelism=parallelism,
            max_parallelism=before,
            columns=columns,
        )
        done = SavepointWriter.from_existing_savepoint(url).with_max_parallelism(after).write(str(folder / "target"))
        assert verify(done.url).problems == ()
        assert contents(done.url) == expected
        assert done.entries == len(expected)
        metadata = open_checkpoint(done.url, open_store).metadata
        assert (metadata.max_parallelism, metadata.parallelism) == (after, min(after, parallelism))
        assert restored(done.url, "rocksdb", 1, folder) == expected
        assert restored(done.url, "memory", min(3, after), folder) == expected
        for info in states:
            table = table_of(done.url, UID, info.name)
            shown = state_tables.read_arrow(done.url, UID, info.name, keys=keys, decimals_as_text=True) if keys else table
            assert table.num_rows == shown.num_rows == state_tables.read_arrow(url, UID, info.name, decimals_as_text=True).num_rows


@settings(deadline=None, max_examples=30)
@given(keys=st.lists(st.binary(max_size=4), max_size=400), buffer_bytes=st.sampled_from([1, 400, 2000, 1 << 20]))
def test_entries_are_sorted_in_runs_of_any_number(keys: list[bytes], buffer_bytes: int) -> None:
    """Also with hundreds of runs, which are merged in several passes and leave few files."""
    with tempfile.TemporaryDirectory() as name:
        entries = SortedEntries(Path(name), buffer_bytes=buffer_bytes)
        for number, key in enumerate(keys):
            entries.add(key, str(number).encode())
        assert sorted(entries) == sorted((key, str(number).encode()) for number, key in enumerate(keys))
        assert [key for key, _ in entries] == sorted(keys)
        assert len(list(Path(name).iterdir())) <= 15 * 3


class Visits(KeyedProcessFunction):
    """Lists and maps numbers, and reports them at a timer."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.numbers = runtime_context.get_list_state(ListStateDescriptor("numbers", Types.STRING()))
        self.pages = runtime_context.get_map_state(MapStateDescriptor("pages", Types.LONG(), Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.numbers.add(str(value.number) * 100)
        self.pages.put(value.number % 3, value.number)
        ctx.timer_service().register_event_time_timer(value.number + 15)
        yield value.user, value.number, str(sorted(self.pages.items()))

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), -timestamp, str([*self.numbers.get()])


COLUMNS = {"user": pa.string(), "number": pa.int64(), "at": pa.timestamp("us", "UTC")}
OUTPUT = {"user": pa.string(), "count": pa.int64(), "text": pa.string()}
ROWS = [(f"user-{number % 7}", number, pd.Timestamp(number, unit="ms", tz="UTC")) for number in range(120)]


def _describe_key(url: str) -> None:
    """Let the savepoint of a `TestingJob` say how its keys are hashed, as that of a job with Spark does."""
    checkpoint = open_checkpoint(url, open_store)
    step = StepKey(uid="testing", hashing=WIDENED, columns=(KeyColumn(name="user", type="string"),))
    metadata = checkpoint.metadata.model_copy(update={"pipeline": Pipeline(steps=(step,))})
    (Path(url.removeprefix("file://")) / "_metadata").write_bytes(encode_metadata(metadata))


@pytest.mark.parametrize(("first", "then", "groups"), [("rocksdb", "memory", 1000), ("memory", "rocksdb", 5), ("rocksdb", "rocksdb", 2)])
def test_a_job_goes_on_with_another_maximum(first: str, then: str, groups: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle is a job that never stopped. Both hash keys as Spark does."""
    monkeypatch.setattr(KeyHash, "of_key", lambda _, key: (xxh64(key.encode(), 42) + (1 << 63)) % (1 << 64) - (1 << 63))
    job = partial(TestingJob, Visits(), COLUMNS, OUTPUT, key="user", event_time="at")
    with job(parallelism=2, backend=first) as whole:
        expected = whole.run(ROWS[:70]) + whole.run(ROWS[70:])
    with job(parallelism=3, backend=first, folder=tmp_path / "first") as before:
        found = before.run([*ROWS[:70], SAVEPOINT])
        origin = before.savepoints[0]
    _describe_key(origin)
    done = SavepointWriter.from_existing_savepoint(origin).with_max_parallelism(groups).write(str(tmp_path / "target"))
    with job(max_parallelism=groups, parallelism=2, backend=then, folder=tmp_path / "then", restore_from=done.url) as after:
        found += after.run(ROWS[70:])
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


def test_what_cannot_move_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    """Keys whose hash is not known or is another one, raw keyed state, operator state of more slots, and impossible numbers."""
    target = tmp_path / "target"
    with TestingJob(Visits(), COLUMNS, OUTPUT, key="user", event_time="at", folder=tmp_path / "job") as job:
        job.run([*ROWS[:20], SAVEPOINT])
        unknown = job.savepoints[0]
    raw = (GOLDEN / "savepoint-raw-state-v4").as_uri()
    operator = (GOLDEN / "savepoint-operator-state-v4").as_uri()
    for url, groups, message in (
        (unknown, 64, "of uid 'testing' do not follow from its keys"),
        (raw, 64, "raw keyed state"),
        (operator, 1, "slots have operator state"),
        (unknown, 0, "out of range"),
        (unknown, 32769, "out of range"),
        (unknown, 128, "no changes"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            SavepointWriter.from_existing_savepoint(url).with_max_parallelism(groups).write(str(target))
    _describe_key(unknown)
    with pytest.raises(InvalidInputError, match="of uid 'testing' do not follow from its keys"):
        SavepointWriter.from_existing_savepoint(unknown).with_max_parallelism(64).write(str(target))
    assert not [path for path in target.rglob("*") if path.is_file()]


def test_the_command(tmp_path: Path) -> None:
    """Together with other changes: the uid whose keys have no known hash is removed."""
    keys = ["ada", "bob"]
    groups = hashed_groups(tmp_path / "empty", [("user", "string")], keys, 128)
    infos = [info_of("v", Types.LONG()), StateInfo(2, "old", "v", "value", [Types.STRING().to_json()], Types.LONG().to_json())]
    codec = KeyCodec([Types.STRING()])
    entries = {store_key(groups[key], number, codec.encode(key)): b"\1" + Types.LONG().encode(7) for key, number in product(keys, (1, 2))}
    write_savepoint(tmp_path / "savepoint", infos, entries.items(), columns=[("user", "string")])

    def command(*args: str) -> tuple[int, str]:
        done = CliRunner().invoke(build_app(), ["rewrite", str(tmp_path / "savepoint"), str(tmp_path / "target"), *args])
        return done.exit_code, done.output

    code, said = command("--max-parallelism", "256")
    assert (code, "'old'" in said) == (2, True)
    code, said = command("--max-parallelism", "256", "--remove-uid", "old", "--rename-uid", f"{UID}=carts")
    assert (code, "carts" in said) == (0, True)
