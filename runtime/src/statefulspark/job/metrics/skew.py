"""Computes the skew of a job's rows over its key groups, from the slots' heartbeats. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from statefulspark.coordinator.slots.state import Slot
from statefulspark.coordinator.slots.status import BusyKeyGroup, SlotSpread, StepSkew
from statefulspark.process.rows.key_group_rows import RowSpread


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
        spreads = tuple(SlotSpread(slot=slot, rows_max=fullest, rows_mean=mean) for slot, fullest, mean in self.slots)
        return StepSkew(ratio=self.ratio, top=self.top, slots=spreads)


def skew_of(slots: Iterable[Slot], *, top: int) -> dict[str, Skew]:
    """Return the skew per uid, from the slots that have reported rows."""
    reports: dict[str, list[tuple[int, RowSpread]]] = {}
    for slot in slots:
        for uid, step in slot.report.steps.items() if slot.report is not None else ():
            if step.key_groups.rows:
                reports.setdefault(uid, []).append((slot.index, step.key_groups))
    return {uid: _skew(found, top) for uid, found in reports.items()}


def _skew(reports: list[tuple[int, RowSpread]], top: int) -> Skew:
    rows = sum(spread.rows for _, spread in reports)
    number = sum(spread.key_groups for _, spread in reports)
    busiest = sorted(
        (BusyKeyGroup(key_group=group, slot=slot, rows=count) for slot, spread in reports for group, count in spread.top),
        key=lambda one: (-one.rows, one.key_group),
    )[:top]
    return Skew(
        ratio=busiest[0].rows * number / rows,
        slots=tuple((slot, spread.top[0][1], spread.rows / spread.key_groups) for slot, spread in reports),
        top=tuple(busiest),
    )
