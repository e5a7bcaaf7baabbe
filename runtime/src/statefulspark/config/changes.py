"""Differences between two specs of a job, and their costs. Pure.

Values are compared, not spellings: ``60s`` and ``1m`` are the same interval, and a default that is written down changes nothing, except for
the fields whose absence means more than their default.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from statefulspark.config.job import StatefulSparkJobSpec

_MAX_PARALLELISM = "maxParallelism"
_PARALLELISM = "parallelism"


class Cost(IntEnum):
    """Cost of a change, the dearest last, so that ``max`` is the cost of a set of changes."""

    IGNORE = 0
    """Nothing running is touched."""
    SCALE = 1
    """The number of slots changes; state moves."""
    UPGRADE = 2
    """The job is stopped with its state and started with the new spec."""
    REJECT = 3
    """It can never change while the job keeps its state."""


@dataclass(frozen=True, slots=True)
class Change:
    """One field that differs.

    Attributes:
        field: Path as in YAML below ``spec``, for example ``executor.memory``; never with a value, which may be secret.
        cost: What changing it costs.
    """

    field: str
    cost: Cost


def spec_changes(before: StatefulSparkJobSpec, after: StatefulSparkJobSpec, *, key_groups: int | None = None) -> tuple[Change, ...]:
    """Return the fields that differ, in the order of the spec.

    Args:
        before: The spec that what runs was built from.
        after: The spec that is wanted.
        key_groups: Number of key groups of the job's state, None while there is none. Writing it down as maxParallelism is no change, and
            it is the limit of parallelism, whatever Flink's default for the new parallelism would be.
    """
    written_down = key_groups is not None and "max_parallelism" not in before.model_fields_set and after.max_parallelism == key_groups
    too_many = key_groups is not None and after.parallelism > key_groups
    return tuple(
        Change(_PARALLELISM, Cost.REJECT) if too_many and each.field == _PARALLELISM else each
        for each in _changes(before, after, "")
        if not (written_down and each.field == _MAX_PARALLELISM)
    )


def dearest(changes: Iterable[Change]) -> Cost | None:
    """The cost of a set of changes, which is that of the dearest; None when there is none."""
    return max((each.cost for each in changes), default=None)


def named(changes: Iterable[Change]) -> str:
    """The fields for people: those whose change costs something, or all when none does."""
    found = sorted(changes, key=lambda each: (-each.cost, each.field))
    return ", ".join([each.field for each in found if each.cost is not Cost.IGNORE] or [each.field for each in found])


def refusal(before: StatefulSparkJobSpec, after: StatefulSparkJobSpec, *, key_groups: int | None = None) -> str | None:
    """The sentence that refuses a change which the job's state cannot follow: field, reason and remedy. None when it can.

    Args:
        before: As for `spec_changes`.
        after: As for `spec_changes`.
        key_groups: As for `spec_changes`.
    """
    refused = {each.field for each in spec_changes(before, after, key_groups=key_groups) if each.cost is Cost.REJECT}
    found = []
    if fixed := sorted(refused - {_PARALLELISM}):
        found.append(
            f"spec.{', spec.'.join(fixed)}: cannot change during the lifetime of the job's state. Restore the previous value, or create a new job"
        )
    if _PARALLELISM in refused:
        found.append(
            f"spec.parallelism: {after.parallelism} slots cannot share the {key_groups} key groups of the job's state."
            f" Use {key_groups} at most, or start a new job"
        )
    return "; ".join(found) or None


def field_costs(model: type[BaseModel], prefix: str = "") -> dict[str, Cost]:
    """Return the cost of changing each leaf field of ``model``, by its path as in YAML."""
    found: dict[str, Cost] = {}
    for name, field in model.model_fields.items():
        path = f"{prefix}{field.alias or name}"
        inner = _inner(field.annotation)
        found |= {path: _cost(field)} if inner is None else field_costs(inner, f"{path}.")
    return found


def _changes(before: BaseModel, after: BaseModel, prefix: str) -> Iterator[Change]:
    given_before, given_after = before.model_fields_set, after.model_fields_set
    for field in _comparable(type(before)):
        name = field.name
        old, new = getattr(before, name), getattr(after, name)
        if field.absence_matters and not (name in given_before and name in given_after):
            if (name in given_before) != (name in given_after):
                yield Change(f"{prefix}{field.alias}", field.cost())
        elif isinstance(old, BaseModel) and isinstance(new, BaseModel):
            yield from _changes(old, new, f"{prefix}{field.alias}.")
        elif old != new:
            yield Change(f"{prefix}{field.alias}", field.cost())


@dataclass(frozen=True, slots=True)
class _Comparable:
    """A field, with what comparing it takes: the operator compares every job's specs several times per reconciliation."""

    name: str
    alias: str
    absence_matters: bool
    info: FieldInfo

    def cost(self) -> Cost:
        return _cost(self.info)


@cache
def _comparable(model: type[BaseModel]) -> tuple[_Comparable, ...]:
    return tuple(_Comparable(name, field.alias or name, _absence_matters(field), field) for name, field in model.model_fields.items())


def _extra(field: FieldInfo) -> dict[str, Any]:
    return field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}


def _cost(field: FieldInfo) -> Cost:
    return Cost[str(_extra(field)["change"]).upper()]


def _absence_matters(field: FieldInfo) -> bool:
    return not _extra(field).get("serverDefault", True)


def _inner(annotation: object) -> type[BaseModel] | None:
    kinds = (annotation, *getattr(annotation, "__args__", ()))
    return next((each for each in kinds if isinstance(each, type) and issubclass(each, BaseModel)), None)
