"""Restart strategies, with Flink's defaults."""

from __future__ import annotations

import pytest

from statefulspark.job.failures.restarts import ExponentialDelay, FailureRate, FixedDelay, NoRestart


def test_no_restart_gives_up_at_once() -> None:
    assert NoRestart().next_pause_s(0) is None


def test_fixed_delay_gives_up_after_its_attempts() -> None:
    strategy = FixedDelay(attempts=2, delay_s=3)
    assert [strategy.next_pause_s(time) for time in range(3)] == [3, 3, None]


def test_failure_rate_counts_within_its_interval() -> None:
    strategy = FailureRate(failures=2, interval_s=10, delay_s=1)
    assert [strategy.next_pause_s(time) for time in (0, 5, 16, 17, 18)] == [1, 1, 1, 1, None]


def test_exponential_delay_grows_to_its_maximum_and_starts_again_after_a_quiet_time() -> None:
    strategy = ExponentialDelay(initial_s=1, max_s=4, multiplier=2, reset_s=100, jitter=0)
    assert [strategy.next_pause_s(time) for time in (0, 1, 2, 3, 200)] == [1, 2, 4, 4, 1]


def test_exponential_delay_spreads_by_its_jitter() -> None:
    pauses = {ExponentialDelay(jitter=0.1).next_pause_s(0) for _ in range(50)}
    assert len(pauses) > 1
    assert all(pause is not None and pause == pytest.approx(1.0, rel=0.1) for pause in pauses)
