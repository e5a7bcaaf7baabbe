"""A step with event time and without a watermark says so once; a time after which inputs are idle has to be one."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from statefulspark.errors import InvalidInputError
from statefulspark.pipeline import step_arguments
from statefulspark.pipeline.step_arguments import idle_ms, value_columns, warn_without_watermark


@pytest.fixture(autouse=True)
def nothing_said() -> None:
    step_arguments._log_without_watermark.cache_clear()


def test_it_is_said_once_per_step_and_input() -> None:
    """A pipeline is built for a trial, then for the job, and again for each rescale."""
    with capture_logs() as logs:
        for _ in range(3):
            warn_without_watermark("visits", 0)
            warn_without_watermark("both", 0, "watermark1")
            warn_without_watermark("both", 0, "watermark2")
    assert [(each["log_level"], each["event"].split(":")[0]) for each in logs] == [
        ("warning", "uid 'visits' has event time and no watermark"),
        ("warning", "uid 'both' has event time and no watermark1"),
        ("warning", "uid 'both' has event time and no watermark2"),
    ]
    assert "watermark='5 minutes'" in logs[0]["event"]


@pytest.mark.parametrize("watermark", ["0 seconds", "5 minutes", 1])
def test_a_watermark_that_was_chosen_is_nothing_to_say(watermark: str | int) -> None:
    """A delay of 0 too, if it is written as text."""
    with capture_logs() as logs:
        warn_without_watermark("visits", watermark)
    assert logs == []


def test_the_time_after_which_an_input_is_idle() -> None:
    assert idle_ms("1 minute", has_event_time=True) == idle_ms(60_000, has_event_time=True) == 60_000
    assert idle_ms(None, has_event_time=True) is idle_ms(None, has_event_time=False) is None
    with pytest.raises(InvalidInputError, match="idle_after: needs event time"):
        idle_ms("1 minute", has_event_time=False)


def test_the_columns_of_watermark_by() -> None:
    assert (value_columns(None), value_columns("partition"), value_columns(["topic", "partition"])) == (
        (),
        ("partition",),
        ("topic", "partition"),
    )
    for wrong in (3, [3], {"partition"}):
        with pytest.raises(InvalidInputError, match=r"^watermark_by2: is not the name of a column"):
            value_columns(wrong, "watermark_by2")  # type: ignore[arg-type]  # misuse


@pytest.mark.parametrize("wrong", [0, "0 seconds", -1, "soon", True, 1.5])
def test_a_time_that_is_none_is_refused_by_name(wrong: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"^idle_after: "):
        idle_ms(wrong, has_event_time=True)
