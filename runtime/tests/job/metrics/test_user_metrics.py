"""Metrics of functions: what slots report of them whatever a user registers, and their sums in a status of bounded size."""

from __future__ import annotations

import math
from typing import Any, cast

from runtime.tests.job.metrics.test_collection import reporting

from statefulspark.coordinator.slots.state import Slot
from statefulspark.job.metrics.user_metrics import METRICS_MAX, SLOT_VALUES_MAX, number_of_user_metrics, user_metrics_of
from statefulspark.process.api.metrics import MetricGroup, UserMetric
from statefulspark.slot.step_metrics import USER_METRIC_NAME_MAX, USER_METRICS_MAX, user_metrics


class Reports:
    """A heartbeat report of which only the metrics of functions are read."""

    def __init__(self, **steps: dict[str, UserMetric]) -> None:
        self.steps = {uid: type("Step", (), {"user": user}) for uid, user in steps.items()}


def slot(index: int, **steps: dict[str, UserMetric]) -> Slot:
    return Slot(index, report=cast("Any", Reports(**steps)))


def gauge(value: float) -> UserMetric:
    return UserMetric(kind="gauge", value=value)


def test_each_kind_is_reported_as_registered() -> None:
    group = MetricGroup()
    group.counter("rejected").inc(3)
    group.add_group("sizes", "large").meter("seen").mark_event(5)
    distribution = group.distribution("delay")
    for value in (4, -2, 9):
        distribution.update(value)
    group.distribution("none")
    group.gauge("cached", lambda: 7)
    assert user_metrics(group) == {
        "rejected": UserMetric(kind="counter", value=3.0),
        "delay": UserMetric(kind="distribution", value=3.0, sum=11.0, min=-2.0, max=9.0),
        "none": UserMetric(kind="distribution", value=0.0),
        "cached": UserMetric(kind="gauge", value=7.0),
        "sizes.large.seen": UserMetric(kind="meter", value=5.0),
    }


def test_one_bad_metric_does_not_hide_the_others() -> None:
    """A gauge that raises or returns no number, a count that no float holds, a name of any length or not Unicode."""

    def fails() -> int:
        raise ValueError("boom")

    group = MetricGroup()
    for name, value in (("raises", fails), ("text", lambda: "many"), ("none", lambda: None), ("nan", lambda: math.nan)):
        group.gauge(name, cast("Any", value))
    group.counter("huge").inc(10**400)
    group.counter("n" * 10_000).inc()
    group.counter("\ud800").inc()
    group.counter("last").inc()
    found = user_metrics(group)
    assert set(found) == {"nan", "n" * USER_METRIC_NAME_MAX, "?", "last"}
    for i in range(2 * USER_METRICS_MAX):
        group.counter(f"c{i}")
    assert len(user_metrics(group)) == USER_METRICS_MAX


def test_the_status_has_sums_and_the_values_of_slots() -> None:
    (seen, size) = user_metrics_of(reporting())["u"]
    assert (seen.name, seen.kind, seen.value, seen.slots) == ("seen", "meter", 6.0, {0: 3.0, 1: 3.0})
    assert (size.value, size.sum, size.min, size.max) == (4.0, 11.0, 0.0, 4.0)
    (cached,) = user_metrics_of([slot(0, a={"x": gauge(2)}), slot(1, a={"x": gauge(9)}), Slot(2)])["a"]
    assert (cached.min, cached.max, cached.slots) == (2.0, 9.0, {0: 2.0, 1: 9.0})


def test_a_status_of_500_slots_and_40_uids_is_bounded() -> None:
    """What does not fit is counted."""
    metrics = {f"m{i}": gauge(i) for i in range(20)}
    slots = [slot(i, **{f"u{j}": metrics for j in range(40)}) for i in range(500)]
    found = user_metrics_of(slots)
    assert sum(map(len, found.values())) == METRICS_MAX
    assert number_of_user_metrics(slots) == 800
    assert sum(len(one.slots) for named in found.values() for one in named) <= SLOT_VALUES_MAX
    assert found["u0"][0].slots, "the first ones have the values of each slot"
