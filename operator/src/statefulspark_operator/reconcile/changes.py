"""What differs between two specs of a job, and what the difference costs. Pure.

Every field of the spec declares the cost of changing it (``config.base``: ignore, scale, upgrade, reject); nothing here knows a field by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo


class Cost(StrEnum):
    """What changing a field costs; the values of ``change`` in the models, cheapest first."""

    IGNORE = "ignore"
    SCALE = "scale"
    UPGRADE = "upgrade"
    REJECT = "reject"


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Paths of the fields that differ, as in YAML, by cost; sorted."""

    ignored: tuple[str, ...] = ()
    scaled: tuple[str, ...] = ()
    upgraded: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()

    @property
    def cost(self) -> Cost | None:
        """The dearest of all changes; None when nothing differs."""
        for cost, paths in (
            (Cost.REJECT, self.rejected),
            (Cost.UPGRADE, self.upgraded),
            (Cost.SCALE, self.scaled),
            (Cost.IGNORE, self.ignored),
        ):
            if paths:
                return cost
        return None

    def paths(self) -> str:
        """All fields that cost something, for people."""
        return ", ".join((*self.rejected, *self.upgraded, *self.scaled)) or ", ".join(self.ignored)


def changes_between(before: BaseModel, after: BaseModel) -> Changes:
    """Compare two specs of one type, field by field."""
    found: dict[Cost, list[str]] = {cost: [] for cost in Cost}
    for path, cost in _differences(before, after, ()):
        found[cost].append(".".join(path))
    return Changes(
        ignored=tuple(sorted(found[Cost.IGNORE])),
        scaled=tuple(sorted(found[Cost.SCALE])),
        upgraded=tuple(sorted(found[Cost.UPGRADE])),
        rejected=tuple(sorted(found[Cost.REJECT])),
    )


def _differences(before: BaseModel, after: BaseModel, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Cost]]:
    for name, field in type(before).model_fields.items():
        old, new = getattr(before, name), getattr(after, name)
        if old == new:
            continue
        here = (*path, field.alias or name)
        if isinstance(old, BaseModel) and type(old) is type(new):
            yield from _differences(old, new, here)
        else:
            yield here, cost_of(field)


def cost_of(field: FieldInfo) -> Cost:
    """The cost that a field declares; an upgrade, the safe answer, when it declares none."""
    extra: Any = field.json_schema_extra
    return Cost(extra.get("change", Cost.UPGRADE)) if isinstance(extra, dict) else Cost.UPGRADE
