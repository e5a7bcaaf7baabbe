"""Functions with operator state in the harness: the order of calls, what is restored, and what a rollback leaves."""

from __future__ import annotations

import doctest
from collections.abc import Iterator
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from statefulspark import (
    CheckpointedFunction,
    FlatMapFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedProcessFunction,
    ListCheckpointed,
    ListStateDescriptor,
    MapFunction,
    RuntimeContext,
    Types,
    ValueStateDescriptor,
)
from statefulspark.errors import InvalidInputError, NotRestorableError, UserFunctionError
from statefulspark.state.api import operator_state
from statefulspark.testing import KeyedProcessHarness

SCHEMA = {"k": pa.string(), "n": pa.int64()}


class Recorded(KeyedProcessFunction, CheckpointedFunction):
    """Keeps rows in an attribute and writes them to its list."""

    calls: ClassVar[list[tuple[Any, ...]]] = []

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("rows", Types.LONG()))
        self.keyed = context.get_keyed_state_store().get_state(ValueStateDescriptor("keyed", Types.LONG()))
        self.rows = list(self.state.get())
        self.calls.append(("initialize", context.is_restored(), context.get_restored_checkpoint_id(), list(self.rows)))

    def open(self, runtime_context: RuntimeContext) -> None:
        self.calls.append(("open",))

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.calls.append(("snapshot", context.get_checkpoint_id(), context.get_checkpoint_timestamp()))
        self.state.update(self.rows)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        self.rows.append(value.n)
        self.keyed.update(value.n)
        if value.n < 0:
            raise ValueError("negative")
        yield value.k, len(self.rows)


class Kept(KeyedProcessFunction, ListCheckpointed[int]):
    """As `Recorded`, by the simpler interface."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.restored: list[int] | None = None

    def snapshot_state(self, checkpoint_id: int, timestamp: int) -> list[int]:
        return self.rows

    def restore_state(self, state: list[int]) -> None:
        self.restored = list(state)
        self.rows = state

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        self.rows.append(value.n)
        if value.n < 0:
            raise ValueError("negative")
        yield value.k, sum(self.rows)


def harness(function: Any) -> KeyedProcessHarness:
    return KeyedProcessHarness(function, SCHEMA, SCHEMA, key="k")


@pytest.fixture(autouse=True)
def calls() -> list[tuple[Any, ...]]:
    Recorded.calls.clear()
    return Recorded.calls


def test_the_example_in_the_documentation_runs() -> None:
    """What the docstring shows is true."""
    assert doctest.testmod(operator_state).attempted > 0
    assert doctest.testmod(operator_state).failed == 0


def test_state_is_initialized_before_open_and_written_after_each_batch(calls: list[tuple[Any, ...]]) -> None:
    """Nothing is restored at the first start; ids and times are those of the batch."""
    with harness(Recorded()) as test:
        test.set_processing_time(50)
        test.process_element(("a", 1))
    assert calls == [("initialize", False, None, []), ("open",), ("snapshot", -1, 0), ("snapshot", 0, 50), ("snapshot", 1, 50)]


def test_a_failed_batch_leaves_nothing_in_the_list(calls: list[tuple[Any, ...]]) -> None:
    """A fresh copy gets the list as it was after the last batch that succeeded."""
    with harness(Recorded()) as test:
        test.process_element(("a", 1))
        with pytest.raises(UserFunctionError):
            test.process_elements([("a", 2), ("b", -1)])
        test.process_element(("a", 3))
        assert test.get_output() == [("a", 1), ("a", 2)]
        assert calls[-3:] == [("initialize", True, 0, [1]), ("open",), ("snapshot", 1, 0)]


def test_a_retry_gets_the_list_of_the_batch_before() -> None:
    """What the first attempt put there is undone."""
    with harness(Recorded()) as test:
        test.process_element(("a", 1))
        test.process_element(("a", 2))
        test.retry()
        test.process_element(("a", 3))
        assert test.get_output() == [("a", 1), ("a", 2), ("a", 3)]


def test_a_snapshot_carries_operator_state_to_another_harness(calls: list[tuple[Any, ...]]) -> None:
    """The restored function knows that something is restored."""
    with harness(Recorded()) as test:
        test.process_element(("a", 1))
        snapshot = test.snapshot()
        test.process_element(("a", 2))
    calls.clear()
    restored = harness(Recorded())
    restored.restore(snapshot)
    with restored:
        restored.process_element(("a", 5))
        assert restored.get_output() == [("a", 2)]
    assert calls[0] == ("initialize", True, -1, [1])


def test_a_list_checkpointed_function_gets_its_list_back_if_something_is_restored() -> None:
    """By a rollback, a retry and a snapshot."""
    with harness(Kept()) as test:
        test.process_element(("a", 1))
        with pytest.raises(UserFunctionError):
            test.process_element(("a", -1))
        test.process_element(("a", 10))
        test.retry()
        assert test.get_output() == [("a", 1), ("a", 11)]
        snapshot = test.snapshot()
    restored = harness(Kept())
    restored.restore(snapshot)
    with restored:
        restored.process_element(("a", 100))
        assert restored.get_output() == [("a", 111)]


def test_nothing_is_restored_at_the_first_start() -> None:
    """`restore_state` is not called."""
    function = Kept()
    with harness(function):
        assert function.restored is None


class Mapped(MapFunction, CheckpointedFunction):
    """Counts rows of all keys."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("count", Types.LONG()))
        self.count = sum(self.state.get())

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.state.update([self.count])

    def map(self, value: Any) -> Any:
        self.count += 1
        return value.k, self.count


class FlatMapped(FlatMapFunction, ListCheckpointed[int]):
    """The same."""

    count = 0

    def snapshot_state(self, checkpoint_id: int, timestamp: int) -> list[int]:
        return [self.count]

    def restore_state(self, state: list[int]) -> None:
        self.count = sum(state)

    def flat_map(self, value: Any) -> Any:
        self.count += 1
        return [(value.k, self.count)]


@pytest.mark.parametrize("function", [Mapped(), FlatMapped()])
def test_adapters_pass_both_methods_on(function: Any) -> None:
    """For functions of `map` and `flat_map` too."""
    with harness(function) as test:
        test.process_element(("a", 1))
        test.process_element(("b", 1))
        test.retry()
        assert test.get_output() == [("a", 1), ("b", 2)]


def test_keyed_state_cannot_be_used_in_snapshot_state() -> None:
    """There is no current key, also right after a row."""

    class Careless(Recorded):
        def snapshot_state(self, context: FunctionSnapshotContext) -> None:
            if context.get_checkpoint_id() >= 0:
                self.keyed.update(1)

    with harness(Careless()) as test, pytest.raises(InvalidInputError, match="key"):
        test.process_element(("a", 1))


def test_an_error_in_either_method_is_the_users() -> None:
    """It names the step and keeps the user's traceback; the batch is undone."""

    class Broken(Recorded):
        def snapshot_state(self, context: FunctionSnapshotContext) -> None:
            super().snapshot_state(context)
            if self.rows == [1, 2]:
                raise OSError("the disk is full")

    with harness(Broken()) as test:
        test.process_element(("a", 1))
        with pytest.raises(UserFunctionError, match="the disk is full"):
            test.process_element(("a", 2))
        test.process_element(("a", 3))
        assert test.get_output() == [("a", 1), ("a", 2)]

    class Unable(Recorded):
        def initialize_state(self, context: FunctionInitializationContext) -> None:
            raise OSError("no such host")

    with pytest.raises(UserFunctionError, match="no such host"):
        harness(Unable()).open()


def test_what_list_checkpointed_returns_is_checked() -> None:
    """The message names the step and what was returned."""

    class Wrong(Kept):
        def snapshot_state(self, checkpoint_id: int, timestamp: int) -> Any:
            return {"a": 1}

    with pytest.raises(InvalidInputError, match=r"snapshot_state: the step 'harness' returned a dict. Return a list of elements"):
        harness(Wrong()).open()


def test_a_function_implements_one_interface() -> None:
    """The message names the class."""

    class Flush(Kept, CheckpointedFunction):  # type: ignore[misc]  # what the test is about
        def initialize_state(self, context: FunctionInitializationContext) -> None:
            pass

    with pytest.raises(InvalidInputError, match=r"func: Flush implements CheckpointedFunction and ListCheckpointed. Implement one of them"):
        harness(Flush())


def test_a_name_is_shared_with_keyed_states() -> None:
    """Two states of one name would share a state id."""

    class Doubled(Recorded):
        def open(self, runtime_context: RuntimeContext) -> None:
            runtime_context.get_list_state(ListStateDescriptor("rows", Types.LONG()))

    with pytest.raises(NotRestorableError, match="stored as operator-list, but the job declares list"):
        harness(Doubled()).open()


def test_a_renamed_operator_state_is_refused() -> None:
    """As for keyed state."""
    with harness(Recorded()) as test:
        test.process_element(("a", 1))
        snapshot = test.snapshot()

    class Renamed(KeyedProcessFunction, CheckpointedFunction):
        def initialize_state(self, context: FunctionInitializationContext) -> None:
            self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("lines", Types.LONG()))

        def snapshot_state(self, context: FunctionSnapshotContext) -> None:
            pass

        def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
            yield value

    restored = harness(Renamed())
    restored.restore(snapshot)
    with pytest.raises(NotRestorableError, match="Declare it as"):
        restored.open()
