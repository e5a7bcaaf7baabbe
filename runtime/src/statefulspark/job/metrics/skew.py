"""Computes the skew of a job's rows over its key groups, from the slots' heartbeats. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from statefulspark.coordinator.controls import BusyKeyGroup, StepSkew
from statefulspark.coordinator.slot_table import Slot


@dataclass(frozen=True, slots=True)
class Skew:
    """Of one uid.

    Attributes:
        ratio: Rows of the fullest key group by the mean over all key groups; 1 without rows.
        slots: (slot, rows of its fullest key group, mean rows of its key groups).
        top: The fullest key groups of the job, the fullest first.
    """

    ratio: float
    slots: tuple[tuple[int, int, float], ...]
    top: tuple[BusyKeyGroup, ...]

    def to_status(self) -> StepSkew:
        """Return what the status says of it."""
        return StepSkew(ratio=self.ratio, top=self.top)


def skew_of(slots: Iterable[Slot], *, top: int) -> dict[str, Skew]:
    """Return the skew per uid, from the slots that have reported rows."""
    reports: dict[str, list[tuple[int, int, int, list[tuple[int, int]]]]] = {}
    for slot in slots:
        for uid, figures in slot.report.get("steps", {}).items():
            spread = figures["key_groups"]
            if spread["rows"]:
                found = [(int(group), int(rows)) for group, rows in spread["top"]]
                reports.setdefault(uid, []).append((slot.index, int(spread["rows"]), int(spread["number"]), found))
    return {uid: _skew(found, top) for uid, found in reports.items()}


def _skew(reports: list[tuple[int, int, int, list[tuple[int, int]]]], top: int) -> Skew:
    rows = sum(rows for _, rows, _, _ in reports)
    number = sum(number for _, _, number, _ in reports)
    busiest = sorted(
        (BusyKeyGroup(key_group=group, slot=slot, rows=count) for slot, _, _, found in reports for group, count in found),
        key=lambda one: (-one.rows, one.key_group),
    )[:top]
    return Skew(
        ratio=busiest[0].rows * number / rows,
        slots=tuple((slot, found[0][1], rows / number) for slot, rows, number, found in reports),
        top=tuple(busiest),
    )
