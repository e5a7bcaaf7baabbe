"""Sums the metrics of functions over slots, bounded, for the status of a job. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

from statefulspark.coordinator.reported_metrics import UserMetricStatus
from statefulspark.coordinator.slots.state import Slot
from statefulspark.process.api.metrics import UserMetric

METRICS_MAX: Final = 200
"""Metrics of functions in a status; `/metrics` has them all."""
SLOT_VALUES_MAX: Final = 2_000
"""Values of single slots in a status. The metrics after them have sums only."""


def by_uid(slots: Iterable[Slot]) -> dict[str, dict[str, dict[int, UserMetric]]]:
    """Return the metrics that the slots have reported, by uid, name and slot, in a stable order."""
    found: dict[str, dict[str, dict[int, UserMetric]]] = {}
    for slot in slots:
        for uid, step in slot.report.steps.items() if slot.report is not None else ():
            for name, metric in step.user.items():
                found.setdefault(uid, {}).setdefault(name, {})[slot.index] = metric
    return {uid: {name: found[uid][name] for name in sorted(found[uid])} for uid in sorted(found)}


def user_metrics_of(slots: Iterable[Slot]) -> dict[str, tuple[UserMetricStatus, ...]]:
    """Return the metrics of functions per uid that has any, within the bounds of a status."""
    left, values = METRICS_MAX, SLOT_VALUES_MAX
    found: dict[str, tuple[UserMetricStatus, ...]] = {}
    for uid, metrics in by_uid(slots).items():
        shown = []
        for name, of_slots in list(metrics.items())[:left]:
            values -= len(of_slots)
            shown.append(_status(name, of_slots, with_slots=values >= 0))
        left -= len(shown)
        if shown:
            found[uid] = tuple(shown)
    return found


def number_of_user_metrics(slots: Iterable[Slot]) -> int:
    """Return how many metrics functions have registered, those included that a status has no room for."""
    return sum(len(metrics) for metrics in by_uid(slots).values())


def _status(name: str, of_slots: Mapping[int, UserMetric], *, with_slots: bool) -> UserMetricStatus:
    metrics = list(of_slots.values())
    kind = metrics[-1].kind
    values = [metric.value for metric in metrics]
    least, most = (values, values) if kind == "gauge" else (_known(m.min for m in metrics), _known(m.max for m in metrics))
    return UserMetricStatus(
        name=name,
        kind=kind,
        value=finite(sum(values)),
        sum=finite(sum(metric.sum for metric in metrics)) if kind == "distribution" else None,
        min=finite(min(least, default=math.nan)),
        max=finite(max(most, default=math.nan)),
        slots={slot: finite(metric.value) for slot, metric in of_slots.items()} if with_slots else {},
    )


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def finite(value: float) -> float | None:
    """Return the value, or None where JSON has no number for it."""
    return value if math.isfinite(value) else None
