"""Sessions of many keys that are handled in one loop, against those that are handled key by key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark import (
    AggregateFunction,
    EventTimeSessionWindows,
    EventTimeTrigger,
    ProcessWindowFunction,
    RuntimeContext,
    TimeWindow,
    Trigger,
    Types,
    ValueState,
    ValueStateDescriptor,
)
from statefulspark.errors import InvalidInputError, UserFunctionError
from statefulspark.process.windows.late_rows import LateRow
from statefulspark.process.windows.session_rows import SessionRows
from statefulspark.process.windows.window_contents import AggregatedContents
from statefulspark.process.windows.window_operator import WindowOperator
from statefulspark.process.windows.window_results import WindowResults
from statefulspark.process.windows.windowing import Windowing
from statefulspark.state.backend import BatchBudget
from statefulspark.state.types.base import TypeInformation

GAP = 5
GROUPS = 16
"""Key groups of a slot of the tests."""
OUTPUT = pa.schema([("user", pa.string()), ("start", pa.int64()), ("end", pa.int64()), ("value", pa.int64()), ("seen", pa.int64())])
Row = tuple[int, int, str, int | None, int]
"""Key hash, source, user, at, amount."""
MakeSlot = Callable[..., Any]


class Ordered(AggregateFunction[Any, int, int]):
    """A number that depends on the order of the rows."""

    def create_accumulator(self) -> int:
        return 1

    def add(self, value: Any, accumulator: int) -> int:
        return (accumulator * 31 + int(value.amount)) % 1_000_003

    def get_result(self, accumulator: int) -> int:
        return -accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return (acc_a * 7 + acc_b) % 1_000_003


class KeyByKey(Ordered):
    """The same. It opens something, which may be state, so that its key is current."""

    def open(self, runtime_context: RuntimeContext) -> None:
        pass


class OneByOne(EventTimeTrigger):
    """Does the same, but a trigger of one's own gets each row."""


class Seen(ProcessWindowFunction):
    """Adds the bounds, and how many sessions of the key there were before."""

    def process(self, key: Any, context: ProcessWindowFunction.Context, elements: list[Any]) -> Iterable[Any]:
        window = context.window()
        assert isinstance(window, TimeWindow)
        count = context.global_state().get_state(ValueStateDescriptor("count", Types.LONG()))
        count.update((count.value() or 0) + 1)
        yield key, window.start, window.end, elements[0], count.value()


def operator(
    function: AggregateFunction[Any, Any, Any],
    *,
    trigger: Trigger | None = None,
    lateness_ms: int = 0,
    type_: TypeInformation | None = None,
) -> WindowOperator:
    windowing = Windowing(EventTimeSessionWindows(GAP), given_trigger=trigger, allowed_lateness_ms=lateness_ms)
    return WindowOperator(windowing, AggregatedContents(function, type_ or Types.LONG()), WindowResults(Seen()), LateRow((0, 1, 2)))


def hashed(user: str) -> int:
    """Few hashes, so that keys share some, and each key group has one at least."""
    return int(user) % 40


def batches_of(random: Random, *, keys: int, disorder: int) -> list[tuple[list[Row], int]]:
    """Rows and watermarks. The first batch has a row of each key group, before all others."""
    found: list[tuple[list[Row], int]] = [([(group, 0, str(group), 0, 0) for group in range(GROUPS)], -100)]
    now = 10
    for _ in range(random.randrange(1, 6)):
        rows: list[Row] = []
        for _ in range(random.choice([0, 5, 60, 400])):
            now += random.random() < 0.1
            user = str(random.randrange(keys))
            at = None if random.random() < 0.001 else now - random.randrange(disorder + 1)
            rows.append((hashed(user), 0, user, at, random.randrange(100)))
        found.append((rows, now - random.randrange(1, 20)))
        now += random.choice([0, 0, 3, 9])
    found.append(([], 10_000))
    return found


BUDGETS = st.sampled_from(
    [BatchBudget(cache_bytes=1 << 20, dirty_bytes=1 << 20), BatchBudget(cache_bytes=0, dirty_bytes=1 << 20), BatchBudget(0, 20_000)]
)


@given(
    seed=st.integers(0, 1 << 32),
    keys=st.sampled_from([3, 50, 300]),
    disorder=st.sampled_from([0, 2, 12, 30]),
    lateness_ms=st.sampled_from([0, 20]),
    budget=BUDGETS,
    is_retried=st.booleans(),
)
def test_keys_that_are_handled_together_are_as_keys_handled_one_after_the_other(
    slot_class: type, seed: int, keys: int, disorder: int, lateness_ms: int, budget: BatchBudget, is_retried: bool
) -> None:
    """Output in its order and what is stored after each batch, with small caches, spills and batches that are run again; and the output of the window operator itself."""
    batches = [
        ([row for row in rows if row[3] is not None], watermark)
        for rows, watermark in batches_of(Random(seed), keys=keys, disorder=disorder)
    ]
    found = []
    for function, trigger in ((Ordered(), None), (KeyByKey(), None), (Ordered(), OneByOne())):
        with TemporaryDirectory() as folder:
            options = {"budget": budget if trigger is None else BatchBudget(1 << 20, 1 << 20)}
            slot = slot_class(operator(function, trigger=trigger, lateness_ms=lateness_ms), OUTPUT, Path(folder), **options)
            output, stored, changes = [], [], []
            entries: dict[bytes, bytes] = {}
            for number, (rows, watermark) in enumerate(batches):
                if is_retried and number % 2:
                    slot.run(rows[: len(rows) // 2], watermark=watermark, batch=number)
                output.append(slot.run(rows, watermark=watermark, batch=number))
                if budget.dirty_bytes == 1 << 20:
                    # A spill may come sooner or later, and what came and went in one batch is deleted after it.
                    changes.append(sorted(slot.changes, key=lambda change: change[0]))
                entries = {key: value for key, value in {**entries, **dict(slot.changes)}.items() if value is not None}
                stored.append(entries)
            slot.backend.apply_pending()
            assert dict(slot.store.scan(b"", b"\xff\xff")) == entries
            found.append((output, stored, changes))
    together, one_by_one, by_operator = found
    assert together == one_by_one
    assert [sorted(rows) for rows in together[0]] == [sorted(rows) for rows in by_operator[0]]


def test_nearly_all_keys_are_handled_together(make_slot: MakeSlot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a batch that was rolled back, and of the two sessions that a key may have when a timer fires."""
    alone: list[str] = []

    def noted(name: str) -> Callable[..., Any]:
        called = getattr(SessionRows, name)

        def call(*given: Any) -> Any:
            alone.append(name)
            return called(*given)

        return call

    for name in ("add", "fire"):
        monkeypatch.setattr(SessionRows, name, noted(name))
    slot = make_slot(operator(Ordered()), OUTPUT)
    slot.run([(group, 0, str(group), 0, 0) for group in range(GROUPS)])
    alone.clear()
    rows = [(number, 0, str(number), at, 1) for number in range(300) for at in (10, 12, 20)]
    slot.run(rows, watermark=8)
    slot.run(rows, watermark=8, batch=1)
    output = slot.run([(7, 0, "7", 22, 1)], watermark=18)
    assert len(output) == 300
    assert alone == []


def test_keys_of_one_hash_that_alternate_keep_their_own_sessions(make_slot: MakeSlot) -> None:
    """Their rows are sorted by time, so that a key comes several times in a chunk."""
    slot = make_slot(operator(Ordered()), OUTPUT)
    slot.run([(group, 0, str(group), 0, 0) for group in range(GROUPS)])
    slot.run([(77, 0, "ab"[number % 2], 10 + number, number) for number in range(6)], watermark=8)
    output = slot.run([], watermark=100)
    values = {user: (start, end, value) for user, start, end, value, _ in output}
    assert values["a"] == (10, 10 + 4 + GAP, -((((1 * 31 + 0) * 31 + 2) * 31 + 4) % 1_000_003))
    assert values["b"] == (11, 11 + 4 + GAP, -((((1 * 31 + 1) * 31 + 3) * 31 + 5) % 1_000_003))


class Picky(Ordered):
    """Raises for an amount."""

    def add(self, value: Any, accumulator: int) -> int:
        if value.amount == 13:
            raise ValueError("unlucky")
        return accumulator + int(value.amount)


def test_an_error_names_the_key_group_of_its_row(make_slot: MakeSlot) -> None:
    """And the batch can be run again with what the function takes."""
    slot = make_slot(operator(Picky()), OUTPUT)
    slot.run([(group, 0, str(group), 0, 1) for group in range(GROUPS)])
    rows = [(number, 0, str(number), 10, number % 13) for number in range(100)]
    with pytest.raises(UserFunctionError, match="unlucky") as caught:
        slot.run([*rows, (37, 0, "37", 11, 13)], watermark=8)
    assert caught.value.key_group == 37 % GROUPS
    slot.run(rows, watermark=8)
    assert len([row for row in slot.run([], watermark=100) if row[1] == 10]) == 100


class Large(Ordered):
    """Returns the amount as it is."""

    def add(self, value: Any, accumulator: int) -> Any:
        return None if value.amount == 0 else value.amount

    def get_result(self, accumulator: int | None) -> int:
        return -1 if accumulator is None else accumulator


def test_numbers_that_do_not_fit_are_refused_and_none_is_kept(make_slot: MakeSlot) -> None:
    """A struct takes neither, so that such sessions are stored key by key."""
    slot = make_slot(operator(Large(), type_=Types.INT()), OUTPUT)
    slot.run([(group, 0, str(group), 0, 1) for group in range(GROUPS)])
    with pytest.raises(InvalidInputError, match="INT"):
        slot.run([(number, 0, str(number), 10, 1 << (number - 60)) for number in range(60, 100)], watermark=8)
    slot.run([(number, 0, str(number), 10, number % 3) for number in range(30)], watermark=8)
    slot.run([(number, 0, str(number), 12, (number + 1) % 3) for number in range(30)], watermark=9)
    output = slot.run([], watermark=100)
    assert {(user, end): value for user, _, end, value, _ in output} == {
        (str(number), 12 + GAP): (number + 1) % 3 or -1 for number in range(30)
    }


def test_a_key_that_begins_many_sessions_in_a_batch_keeps_them_apart(make_slot: MakeSlot) -> None:
    """More than the joint form takes, and some that it takes but a struct does not."""
    slot = make_slot(operator(Ordered()), OUTPUT)
    slot.run([(group, 0, str(group), 0, 0) for group in range(GROUPS)])
    counts = {number: number % 12 + 1 for number in range(40)}
    slot.run([(number, 0, str(number), 10 * (each + 1), each) for number, count in counts.items() for each in range(count)], watermark=8)
    output = slot.run([], watermark=1000)
    assert sorted(row[:4] for row in output) == sorted(
        (str(number), 10 * (each + 1), 10 * (each + 1) + GAP, -(31 + each)) for number, count in counts.items() for each in range(count)
    )
    slot.backend.apply_pending()
    assert not [key for key, _ in slot.store.scan(b"", b"\xff\xff") if int.from_bytes(key[2:4], "big") == 0]


@pytest.mark.parametrize("at", [(1 << 63) - 1 - GAP, (1 << 63) - GAP])
def test_the_last_session_that_time_has_room_for(make_slot: MakeSlot, at: int) -> None:
    """One that ends after 64 bits of milliseconds is refused."""
    slot = make_slot(operator(Ordered()), OUTPUT)
    slot.run([(group, 0, str(group), 0, 0) for group in range(GROUPS)])
    rows = [(number, 0, str(number), time, 1) for number in range(30) for time in (10, at)]
    if at + GAP > (1 << 63) - 1:
        with pytest.raises(InvalidInputError, match="64 bits"):
            slot.run(rows, watermark=8)
        return
    slot.run(rows, watermark=8)
    assert {row[1] for row in slot.run([], watermark=(1 << 63) - 1)} == {10, at}


class Counting(Ordered):
    """Counts the rows of its key in state of its own."""

    count: ValueState[int]

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("rows", Types.LONG()))

    def add(self, value: Any, accumulator: int) -> int:
        self.count.update((self.count.value() or 0) + 1)
        return self.count.value() or 0


def test_a_function_with_state_of_its_own_finds_that_of_its_key(make_slot: MakeSlot) -> None:
    """Such keys are made current one after the other."""
    slot = make_slot(operator(Counting()), OUTPUT)
    slot.run([(group, 0, str(group), 0, 0) for group in range(GROUPS)])
    slot.run([(number, 0, str(number), 10 + each, 1) for number in range(50) for each in range(number % 4 + 1)], watermark=8)
    found = {row[0]: -row[3] for row in slot.run([], watermark=100)}
    assert found == {str(number): number % 4 + 1 + (number < GROUPS) for number in range(50)}


def test_rows_without_a_time_are_refused(make_slot: MakeSlot) -> None:
    """As where they are handled key by key."""
    for function in (Ordered(), KeyByKey()):
        slot = make_slot(operator(function), OUTPUT)
        slot.run([(group, 0, str(group), 0, 0) for group in range(GROUPS)])
        with pytest.raises(InvalidInputError, match="event time"):
            slot.run([(number, 0, str(number), None if number == 20 else 10, 1) for number in range(30)], watermark=8)
