"""KeyedFunctionRunner: what the user's function does wrong is told in the user's terms, without rows, keys or state."""

from __future__ import annotations

import sys
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from structlog.testing import capture_logs

from statefulspark import KeyedProcessFunction, RuntimeContext
from statefulspark.errors import InvalidInputError, UserFunctionError
from statefulspark.process.runner import timer_firing
from statefulspark.testing import KeyedProcessHarness, TestingJob

from .test_function_runner import COUNT, LOG, Count, MakeSlot, Timers

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Failing(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[str, int]]:
        if value.amount:
            ctx.timer_service().register_event_time_timer(value.at)
        else:
            self._deep(value)
        yield from ()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[tuple[str, int]]:
        raise LookupError("no such airport")

    def _deep(self, value: Any) -> float:
        return float(value.at / value.amount)


def test_a_users_exception_carries_uid_key_group_and_its_own_traceback(make_slot: MakeSlot) -> None:
    """The traceback is the user's: their file and functions, none of ours, and no row, key or state."""
    slot = make_slot(Failing(), COUNT)
    with pytest.raises(UserFunctionError) as caught:
        slot.run([(5, 0, "SECRET", 1234567, 0)])
    error = caught.value
    assert (error.uid, error.key_group) == ("turnaround", 5)
    assert "ZeroDivisionError" in str(error)
    assert "_deep" in error.user_traceback
    assert "test_function_errors.py" in error.user_traceback
    assert "statefulspark/process" not in error.user_traceback
    assert "SECRET" not in str(error)
    assert "1234567" not in str(error)
    assert isinstance(error.__cause__, ZeroDivisionError)


def test_an_exception_in_a_timer_names_the_key_group_too(make_slot: MakeSlot) -> None:
    """on_timer is the user's function as well."""
    slot = make_slot(Failing(), COUNT)
    slot.run([(-3, 0, "a", 1, 1)])
    with pytest.raises(UserFunctionError, match="no such airport") as caught:
        slot.run([], watermark=5)
    assert caught.value.key_group == 13


def test_an_exception_in_open_and_a_wrong_signature_are_the_users_too(make_slot: MakeSlot) -> None:
    """Neither looks like a defect of the runtime."""

    class Closed(Count):
        def open(self, runtime_context: RuntimeContext) -> None:
            raise OSError("no model file")

    class Wrong(KeyedProcessFunction):
        def process_element(self, value: Any) -> None: ...  # type: ignore[override]  # the mistake under test

    with pytest.raises(UserFunctionError, match="no model file"):
        make_slot(Closed(), COUNT)
    with pytest.raises(UserFunctionError, match="positional argument"):
        make_slot(Wrong(), COUNT).run([(1, 0, "a", 1, 1)])


def test_an_event_time_timer_without_event_time_is_refused_with_the_remedy(make_slot: MakeSlot) -> None:
    """Otherwise the timer would wait for ever."""
    with pytest.raises(InvalidInputError, match="event_time=<column>"):
        make_slot(Timers(), LOG, event_time=None).run([(1, 0, "a", 1, 1)])


@pytest.mark.parametrize("timestamp", [1.5, "10", True, 1 << 63, None])
def test_a_timer_needs_whole_milliseconds(make_slot: MakeSlot, timestamp: Any) -> None:
    """A float or text would be kept in another order than numbers."""

    class Odd(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
            ctx.timer_service().register_processing_time_timer(timestamp)

    with pytest.raises(InvalidInputError, match="timestamp"):
        make_slot(Odd(), LOG).run([(1, 0, "a", 1, 1)])


class Later(KeyedProcessFunction):
    """Sets a timer by the row's event time, as one does in PyFlink."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 1000)  # type: ignore[operator]  # the mistake


class Careless(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        _ = value.amount + None


@pytest.mark.parametrize(
    ("function", "event_time", "said"),
    [
        (
            Later(),
            None,
            r"^the function raised TypeError \(ctx\.timestamp\(\) is None in a step without event_time: pass event_time=<column>",
        ),
        (
            Later(),
            "at",
            r"^the function raised TypeError \(ctx\.timestamp\(\) is None for a row whose event time is null: .* column 'at'\)",
        ),
    ],
)
def test_calculating_without_a_timestamp_says_why_there_is_none(
    make_slot: MakeSlot, function: KeyedProcessFunction, event_time: str | None, said: str
) -> None:
    """The TypeError alone names neither the step's event_time nor the row's."""
    slot = make_slot(function, COUNT, event_time=event_time)
    with pytest.raises(UserFunctionError, match=said):
        slot.run([(1, 0, "a", None, 0)])


class Misspelt(KeyedProcessFunction):
    def __init__(self, name: str) -> None:
        self.name = name

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        getattr(value, self.name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("amuont", r"'amuont' is not a column of the row: did you mean amount\?"),
        ("zzz", r"'zzz' is not a column of the row; the columns are .*amount"),
    ],
)
def test_a_misspelt_column_is_named_with_the_right_one(make_slot: MakeSlot, name: str, said: str) -> None:
    """Python's AttributeError names a class of ours and no column."""
    with pytest.raises(UserFunctionError, match=rf"^the function raised AttributeError \({said}") as found:
        make_slot(Misspelt(name), COUNT).run([(1, 0, "secret-key", 5, 0)])
    assert "secret-key" not in str(found.value)


def test_another_error_has_no_hint_about_timestamps(make_slot: MakeSlot) -> None:
    """A row with a timestamp is not the reason of a TypeError."""
    with pytest.raises(UserFunctionError, match=r"^the function raised TypeError in uid"):
        make_slot(Careless(), COUNT).run([(1, 0, "a", 5, 0)])


class Behaves(KeyedProcessFunction):
    """Does what a test gives with each row."""

    def __init__(self, behavior: Callable[[], Any]) -> None:
        self.behavior = behavior

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        ctx.timer_service().register_event_time_timer(10)
        return self.behavior() if value.n else None

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        return self.behavior()


async def coroutine() -> None:
    """What somebody writes who comes from asyncio."""


async def rows_in_time() -> Any:
    """The same with rows."""
    yield ("a",)


def behaves(behavior: Callable[[], Any]) -> KeyedProcessHarness:
    return KeyedProcessHarness(Behaves(behavior), "key STRING, n BIGINT, at TIMESTAMP", "out STRING", key="key", event_time="at")


@pytest.mark.parametrize(
    ("behavior", "message"),
    [
        (lambda: 5, "returned an int. Yield output rows, or return a list of them"),
        (lambda: True, "returned a bool. Yield output rows"),
        (object, "returned an object. Yield output rows"),
        (lambda: "text", "returned a str. Yield output rows"),
        (coroutine, "returned a coroutine. Define it with def, not with async def"),
        (rows_in_time, "returned an async_generator. Define it with def, not with async def"),
    ],
)
def test_what_has_no_rows_is_refused_by_the_methods_name(behavior: Callable[[], Any], message: str) -> None:
    """Of rows and of timers; a coroutine that nobody awaits is no warning besides."""
    with behaves(behavior) as harness:
        with pytest.raises(InvalidInputError, match=f"process_element of the step 'harness' {message}"):
            harness.process_element(("a", 1), 1)
        harness.process_element(("a", 0), 1)
        with pytest.raises(InvalidInputError, match=f"on_timer of the step 'harness' {message}"):
            harness.process_watermark(10)


@pytest.mark.parametrize("status", [0, 3, "message"])
def test_a_function_that_exits_fails_its_batch(status: Any) -> None:
    """``sys.exit`` in a library is an error of the function; the slot goes on."""
    with behaves(lambda: sys.exit(status)) as harness:
        with pytest.raises(UserFunctionError, match="the function raised SystemExit in uid 'harness'"):
            harness.process_element(("a", 1), 1)
        harness.process_element(("a", 0), 1)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, CancelledError])
def test_a_function_that_exits_is_told_by_its_slot(error: type[BaseException]) -> None:
    """With the key group that any error names; and it is no slot that does not answer, which would be tried again and again."""

    def told(raised: type[BaseException]) -> UserFunctionError:
        def fail() -> None:
            raise raised

        with (
            TestingJob(Behaves(fail), "key STRING, n BIGINT, at TIMESTAMP", "out STRING", key="key", event_time="at") as job,
            pytest.raises(UserFunctionError, match=f"the function raised {raised.__name__} in uid 'testing', key group") as caught,
        ):
            job.run([("a", 1, NOW)])
        assert "/statefulspark/" not in caught.value.user_traceback
        assert "in fail" in caught.value.user_traceback
        return caught.value

    assert told(error).key_group == told(ValueError).key_group


@pytest.mark.parametrize("text", ["x" * 100_000, "x\n" * 5_000, "\n" * 5_000])
def test_a_long_message_is_cut(text: str) -> None:
    """A validation library may quote a whole document."""

    def fail() -> None:
        raise ValueError(text)

    with behaves(fail) as harness, pytest.raises(UserFunctionError) as caught:
        harness.process_element(("a", 1), 1)
    lines = caught.value.user_traceback.split("\n")
    assert len(lines) < 70
    assert max(map(len, lines)) < 1_100
    assert "in fail" in caught.value.user_traceback
    assert "ValueError" in caught.value.user_traceback


def test_timers_that_are_always_due_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch never ends, so nothing else would tell why."""
    monkeypatch.setattr(timer_firing, "_MANY", 100)
    fired = []

    class Again(Behaves):
        def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> None:
            fired.append(timestamp)
            if len(fired) < 250:
                ctx.timer_service().register_event_time_timer(timestamp)

    schema = "key STRING, n BIGINT, at TIMESTAMP"
    with KeyedProcessHarness(Again(list), schema, "out STRING", key="key", event_time="at") as harness:
        harness.process_element(("a", 0), 1)
        with capture_logs() as logs:
            harness.process_watermark(10)
    assert fired == [10] * 250
    assert [(log["uid"], log["fired"]) for log in logs if "never ends" in log["event"]] == [("harness", 100), ("harness", 200)]
