"""KeyedFunctionRunner: what the user's function does wrong is told in the user's terms, without rows, keys or state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from statefulspark import KeyedProcessFunction, RuntimeContext
from statefulspark.errors import InvalidInputError, UserFunctionError

from .test_function_runner import COUNT, LOG, Count, MakeSlot, Timers


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
