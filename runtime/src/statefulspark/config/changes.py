"""What differs between two specs of a job, and what the difference costs. Pure.

Values are compared, not spellings: ``60s`` and ``1m`` are the same interval, and a default that is written down changes nothing, except for
the fields whose absence means more than their default.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from statefulspark.config.job import StatefulSparkJobSpec

_MAX_PARALLELISM = "maxParallelism"


class Cost(IntEnum):
    """What a change costs, the dearest last, so that ``max`` tells what a set of changes costs."""

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
        key_groups: Number of key groups of the job's state, None while there is none; writing it down as maxParallelism is no change.
    """
    written_down = key_groups is not None and "max_parallelism" not in before.model_fields_set and after.max_parallelism == key_groups
    return tuple(each for each in _changes(before, after, "") if not (written_down and each.field == _MAX_PARALLELISM))


def field_costs(model: type[BaseModel], prefix: str = "") -> dict[str, Cost]:
    """Return what changing each leaf field of ``model`` costs, by its path as in YAML."""
    found: dict[str, Cost] = {}
    for name, field in model.model_fields.items():
        path = f"{prefix}{field.alias or name}"
        inner = _inner(field.annotation)
        found |= {path: _cost(field)} if inner is None else field_costs(inner, f"{path}.")
    return found


def _changes(before: BaseModel, after: BaseModel, prefix: str) -> Iterator[Change]:
    for name, field in type(before).model_fields.items():
        path = f"{prefix}{field.alias or name}"
        old, new = getattr(before, name), getattr(after, name)
        given = (name in before.model_fields_set, name in after.model_fields_set)
        if _absence_matters(field) and given in {(False, False), (True, False), (False, True)}:
            if given[0] != given[1]:
                yield Change(path, _cost(field))
        elif isinstance(old, BaseModel) and isinstance(new, BaseModel):
            yield from _changes(old, new, f"{path}.")
        elif old != new:
            yield Change(path, _cost(field))


def _extra(field: FieldInfo) -> dict[str, Any]:
    return field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}


def _cost(field: FieldInfo) -> Cost:
    return Cost[str(_extra(field)["change"]).upper()]


def _absence_matters(field: FieldInfo) -> bool:
    return not _extra(field).get("serverDefault", True)


def _inner(annotation: object) -> type[BaseModel] | None:
    kinds = (annotation, *getattr(annotation, "__args__", ()))
    return next((each for each in kinds if isinstance(each, type) and issubclass(each, BaseModel)), None)
