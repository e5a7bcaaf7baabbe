"""Functions with raw state in the harness: what streams take and refuse, and what a rollback leaves."""

from __future__ import annotations

import doctest
import io
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from statefulspark import (
    CheckpointedFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    StateInitializationContext,
    StateSnapshotContext,
    Types,
    ValueStateDescriptor,
)
from statefulspark.errors import ClosedError, CorruptDataError, IncompatibleFormatError, InvalidInputError, UserFunctionError
from statefulspark.state.api import raw_state
from statefulspark.state.encoding.layout import split_store_key
from statefulspark.state.tables.raw_keyed import CHUNK_BYTES
from statefulspark.testing import HarnessSnapshot, KeyedProcessHarness

SCHEMA = {"k": pa.string(), "n": pa.int64()}


class Raw(KeyedProcessFunction, CheckpointedFunction):
    """Writes what `write` says, and keeps what it finds in `found`."""

    found: ClassVar[list[tuple[dict[int, bytes], list[bytes]]]] = []
    write: ClassVar[Callable[[StateSnapshotContext], None]]

    def initialize_state(self, context: StateInitializationContext) -> None:
        keyed = {part.get_key_group_id(): part.get_stream().read() for part in context.get_raw_keyed_state_inputs()}
        self.found.append((keyed, [part.get_stream().read() for part in context.get_raw_operator_state_inputs()]))

    def snapshot_state(self, context: StateSnapshotContext) -> None:
        type(self).write(context)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        if value.n < 0:
            raise ValueError("negative")
        yield value.k, value.n


@pytest.fixture(autouse=True)
def clean() -> None:
    Raw.found.clear()
    Raw.write = lambda _context: None


def harness() -> KeyedProcessHarness:
    return KeyedProcessHarness(Raw(), SCHEMA, SCHEMA, key="k", max_parallelism=8)


def writing(keyed: dict[int, bytes] | None = None, parts: list[bytes] | None = None, *, changed_only: bool = False) -> None:
    """Let the next snapshots write this."""

    def write(context: StateSnapshotContext) -> None:
        if keyed is not None:
            out = context.get_raw_keyed_operator_state_output(changed_only)
            for group, data in keyed.items():
                out.start_new_key_group(group)
                for first in range(0, len(data), 50_000):
                    out.write(data[first : first + 50_000])
        if parts is not None:
            partitions = context.get_raw_operator_state_output()
            for part in parts:
                partitions.start_new_partition()
                partitions.write(part)
            assert partitions.get_number_of_partitions() == len(parts)

    Raw.write = write


def read(snapshot: HarnessSnapshot) -> tuple[dict[int, bytes], list[bytes]]:
    """What a fresh function finds."""
    Raw.write = lambda _context: None
    other = harness()
    other.restore(snapshot)
    Raw.found.clear()
    with other:
        return Raw.found[0]


def test_streams_of_any_length_come_back() -> None:
    """Around the length of a chunk, and empty ones; partitions too."""
    sizes = (0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES)
    keyed = {group: bytes((group + n) % 251 for n in range(size)) for group, size in enumerate(sizes)}
    with harness() as test:
        writing(keyed, [b"", b"\0\1", b"x" * 100_000])
        test.process_element(("a", 1))
        assert read(test.snapshot()) == (keyed, [b"", b"\0\1", b"x" * 100_000])


def test_an_output_replaces_everything_and_none_leaves_it() -> None:
    """As in Flink, a stream that is not started is gone; only a function that takes no output leaves everything as it is."""
    with harness() as test:
        writing({1: b"one", 2: b"two" * 50_000}, [b"p"])
        test.process_element(("a", 1))
        Raw.write = lambda _context: None
        test.process_element(("a", 2))
        first = test.snapshot()
        writing({2: b"short"}, [], changed_only=True)
        test.process_element(("a", 3))
        second = test.snapshot()
        writing({5: b"five"})
        test.process_element(("a", 4))
        third = test.snapshot()
    assert read(first) == ({1: b"one", 2: b"two" * 50_000}, [b"p"])
    assert read(second) == ({1: b"one", 2: b"short"}, [])
    assert read(third) == ({5: b"five"}, [])
    # Header and one chunk: nothing of the other streams is left in the store.
    assert (
        len([key for key, _ in third.entries if split_store_key(key)[2:] in ((b"", b"\0\0\0\0"), (b"", b"\0\0\0\1"))])
        == len(third.entries)
        == 2
    )


def test_a_failed_batch_and_a_retry_leave_the_committed_streams() -> None:
    """The fresh copy of the function reads what the last good batch wrote."""
    with harness() as test:
        writing({1: b"one"}, [b"p"])
        test.process_element(("a", 1))
        writing({1: b"two"}, [b"q", b"r"])
        with pytest.raises(UserFunctionError):
            test.process_element(("a", -1))
        test.process_element(("a", 1))
        assert Raw.found[-1] == ({1: b"one"}, [b"p"])
        test.retry()
        assert Raw.found[-1] == ({1: b"one"}, [b"p"])
        assert read(test.snapshot()) == ({1: b"two"}, [b"q", b"r"])


def test_only_changed_chunks_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """An append to a long stream writes its last chunk and the header."""
    changes: list[Any] = []
    monkeypatch.setattr("statefulspark.testing.process_harness._forget", changes.extend)
    long = bytes(range(256)) * 4096
    with harness() as test:
        writing({3: long})
        test.process_element(("a", 1))
        changes.clear()
        writing({3: long + b"more"}, changed_only=True)
        test.process_element(("a", 1))
        assert sum(len(value or b"") for _, value in changes) < 50
        changes.clear()
        test.process_element(("a", 1))
        assert changes == []


def test_a_stream_is_a_binary_file() -> None:
    """Both `pickle` and plain reads work on it, and reading stops where the stream does."""

    def write(context: StateSnapshotContext) -> None:
        out = context.get_raw_keyed_operator_state_output()
        assert out.writable()
        out.start_new_key_group(0)
        pickle.dump({"a": [1, 2]}, out, protocol=5)
        pickle.dump(bytearray(100_000), out, protocol=5)

    Raw.write = write
    with harness() as test:
        test.process_element(("a", 1))
        stream = io.BytesIO(read(test.snapshot())[0][0])
    assert pickle.load(stream) == {"a": [1, 2]}
    assert pickle.load(stream) == bytearray(100_000)
    assert stream.read() == b""


def _twice(context: StateSnapshotContext) -> None:
    for _ in range(2):
        context.get_raw_keyed_operator_state_output().start_new_key_group(7)


def _both_ways(context: StateSnapshotContext) -> None:
    context.get_raw_keyed_operator_state_output()
    context.get_raw_keyed_operator_state_output(changed_only=True)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (
            lambda context: context.get_raw_keyed_operator_state_output().start_new_key_group(8),
            "key group 8 .* not in this slot, which has 0 to 7",
        ),
        (lambda context: context.get_raw_keyed_operator_state_output().start_new_key_group(True), "key group True .* not in this slot"),
        (lambda context: context.get_raw_keyed_operator_state_output().write(b"x"), "no key group was started"),
        (lambda context: context.get_raw_operator_state_output().write("text"), "takes bytes, not a str"),
        (_twice, "key group 7 .* started twice"),
        (_both_ways, "took the output with False before"),
        (lambda context: context.get_raw_operator_state_output().write(bytes(65 << 20)), "operator state of slot 0 has 65"),
    ],
)
def test_mistakes_are_named(write: Callable[[StateSnapshotContext], None], message: str) -> None:
    """And the batch fails as a whole."""
    with harness() as test:
        Raw.write = write
        with pytest.raises(InvalidInputError, match=message):
            test.process_element(("a", 1))


def test_a_stream_ends_with_its_call() -> None:
    """Raw state is written in snapshot_state and read in initialize_state."""
    kept: list[Any] = []

    class Late(Raw):
        def initialize_state(self, context: StateInitializationContext) -> None:
            kept.extend(part.get_stream() for part in context.get_raw_keyed_state_inputs())

        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            if kept:
                kept[-1].write(b"late")
            yield value.k, value.n

    Raw.write = lambda context: kept.append(context.get_raw_operator_state_output())
    test = KeyedProcessHarness(Late(), SCHEMA, SCHEMA, key="k", max_parallelism=8)
    with test, pytest.raises(ClosedError, match="the stream is closed: raw state is written during snapshot_state"):
        test.process_element(("a", 1))
    writing({1: b"one"})
    with harness() as other:
        other.process_element(("a", 1))
        snapshot = other.snapshot()
    kept.clear()
    test = KeyedProcessHarness(Late(), SCHEMA, SCHEMA, key="k", max_parallelism=8)
    test.restore(snapshot)
    Raw.write = lambda _context: None
    with test, pytest.raises(ClosedError):
        kept[0].read()


@pytest.mark.parametrize("damage", ["missing", "shorter", "header"])
def test_damaged_streams_are_found(damage: str) -> None:
    """A missing chunk, a wrong length, a damaged header."""
    writing({1: bytes(2 * CHUNK_BYTES)})
    with harness() as test:
        test.process_element(("a", 1))
        snapshot = test.snapshot()
    entries = dict(snapshot.entries)
    header, first, _ = sorted(entries)
    if damage == "missing":
        del entries[first]
    else:
        key = first if damage == "shorter" else header
        entries[key] = entries[key][:-1]
    damaged = HarnessSnapshot(snapshot.states, tuple(sorted(entries.items())), None, 0)
    with pytest.raises(CorruptDataError, match="raw keyed state of uid 'harness', key group 1"):
        read(damaged)


@pytest.mark.parametrize("part", ["header", "chunk", "partition"])
def test_another_version_is_refused_as_such(part: str) -> None:
    """A later release may write it; then checkpoints must not be marked as damaged."""
    writing({1: b"stream"}, [b"partition"])
    with harness() as test:
        test.process_element(("a", 1))
        snapshot = test.snapshot()
    entries = dict(snapshot.entries)
    operator_state = snapshot.operator_state
    if part == "partition":
        operator_state = tuple(replace(entry, items=((b"", b"\x09partition"),)) for entry in operator_state)
    else:
        key = sorted(entries)[part == "chunk"]
        entries[key] = b"\x09" + entries[key][1:]
    with pytest.raises(IncompatibleFormatError, match="unknown version"):
        read(HarnessSnapshot(snapshot.states, tuple(sorted(entries.items())), None, 0, operator_state))


class Moves(Raw):
    """A new release of a function: what its list had is a stream from now on."""

    def initialize_state(self, context: StateInitializationContext) -> None:
        super().initialize_state(context)
        self.list = context.get_operator_state_store().get_list_state(ListStateDescriptor("list", Types.LONG()))

    def snapshot_state(self, context: StateSnapshotContext) -> None:
        if numbers := list(self.list.get()):
            out = context.get_raw_keyed_operator_state_output(changed_only=True)
            out.start_new_key_group(3)
            out.write(bytes(numbers))
            self.list.clear()


def test_what_the_first_snapshot_moves_survives_a_failed_batch() -> None:
    """The snapshot after a redistribution is part of no batch: its operator state stays, so its streams have to stay as well."""

    class Listed(Moves):
        def snapshot_state(self, context: StateSnapshotContext) -> None:
            self.list.update([1, 2])

    with KeyedProcessHarness(Listed(), SCHEMA, SCHEMA, key="k", max_parallelism=8) as test:
        test.process_element(("a", 1))
        snapshot = test.snapshot()
    moving = KeyedProcessHarness(Moves(), SCHEMA, SCHEMA, key="k", max_parallelism=8)
    moving.restore(snapshot)
    with moving:
        for _ in range(2):
            with pytest.raises(UserFunctionError):
                moving.process_element(("a", -1))
        moving.process_element(("a", 1))
        assert Raw.found[-1][0] == {3: b"\1\2"}
        moving.retry()
        assert read(moving.snapshot())[0] == {3: b"\1\2"}


def test_raw_operator_state_counts_towards_the_limit() -> None:
    """Also in a batch that does not touch it."""

    class Both(Raw):
        def initialize_state(self, context: StateInitializationContext) -> None:
            self.list = context.get_operator_state_store().get_list_state(ListStateDescriptor("list", Types.STRING()))

        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            if value.n:
                self.list.add("x" * (40 << 20))
            yield value.k, value.n

    writing(None, [bytes(40 << 20)])
    with KeyedProcessHarness(Both(), SCHEMA, SCHEMA, key="k", max_parallelism=8) as test:
        test.process_element(("a", 0))
        Raw.write = lambda _context: None
        with pytest.raises(InvalidInputError, match="has 80"):
            test.process_element(("a", 1))


@pytest.mark.parametrize("name", ["_raw_keyed", "_raw_operator"])
def test_the_names_are_reserved(name: str) -> None:
    """Neither keyed nor operator state can take them."""

    class Taking(Raw):
        def initialize_state(self, context: StateInitializationContext) -> None:
            if name == "_raw_keyed":
                context.get_keyed_state_store().get_state(ValueStateDescriptor(name, Types.LONG()))
            else:
                context.get_operator_state_store().get_list_state(ListStateDescriptor(name, Types.LONG()))

    with pytest.raises(InvalidInputError, match="the name is reserved"):
        KeyedProcessHarness(Taking(), SCHEMA, SCHEMA, key="k").open()


def test_the_examples_run() -> None:
    """Docstrings of the interface."""
    assert doctest.testmod(raw_state).failed == 0
