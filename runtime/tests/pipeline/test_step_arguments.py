"""A step with event time and without a watermark says so once."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from statefulspark.pipeline import step_arguments
from statefulspark.pipeline.step_arguments import warn_without_watermark


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
