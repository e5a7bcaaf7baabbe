"""Every scenario runs twice: slots store each changelog, or send them to the driver, which stores those of a batch in one object (RFC 0013)."""

from __future__ import annotations

import pytest

from statefulspark.testing import TestingJob

_QUICK = frozenset(
    {
        "test_what_is_counted_is_what_came",
        "test_a_slot_dies_while_changelogs_are_grouped",
        "test_a_lost_slot_loses_and_repeats_no_row",
        "test_a_driver_lost_before_the_sinks_commit_runs_the_batch_again",
        "test_a_driver_lost_after_the_sinks_commit_does_not_run_the_batch_again",
        "test_storage_that_fails_costs_no_row",
        "test_a_poison_row_fails_the_job_by_name_and_its_batch_leaves_no_trace",
    }
)
"""Tests of which `make test` runs both forms."""
GROUPED_BYTES = 1 << 20
"""Every changelog is smaller."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test both values of ``checkpointing.changelogInlineThreshold``."""
    marks = () if metafunc.function.__name__ in _QUICK else pytest.mark.exhaustive
    grouped = pytest.param(GROUPED_BYTES, id="grouped", marks=marks)
    metafunc.parametrize("changelog_inline_threshold", [pytest.param(0, id="alone"), grouped], indirect=True)


@pytest.fixture(autouse=True)
def changelog_inline_threshold(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The threshold of jobs that do not say theirs."""
    threshold: int = request.param
    defaults = TestingJob.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "changelog_inline_threshold", threshold)
    return threshold
