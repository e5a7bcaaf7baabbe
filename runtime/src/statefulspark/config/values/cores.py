"""CPU shares as Kubernetes writes them: ``2``, ``0.5``, ``500m``. Inside the program a float of cores."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from statefulspark.config.base import Expected
from statefulspark.config.problems import refused

_TEXT = re.compile(r"\d{1,6}m|\d{1,4}(\.\d{1,3})?", re.ASCII)
_REMEDY = "Write a number of cores, for example 2, 0.5 or 500m"


def parse_cores(text: str) -> float | None:
    """Return the cores that ``text`` stands for, or None when it is not written as Kubernetes writes CPU."""
    stripped = text.strip()
    if _TEXT.fullmatch(stripped) is None:
        return None
    return int(stripped[:-1]) / 1000 if stripped.endswith("m") else float(stripped)


def format_cores(cores: float) -> str:
    """Return the shortest spelling Kubernetes accepts: ``0.5`` becomes ``500m``."""
    return str(int(cores)) if cores == int(cores) else f"{round(cores * 1000)}m"


def _from_manifest(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    cores = parse_cores(value) if isinstance(value, str) else None
    if cores is None:
        raise refused("not a number of cores", _REMEDY)
    return cores


Cores = Annotated[
    float,
    Field(ge=0.1, le=256),
    BeforeValidator(_from_manifest),
    PlainSerializer(format_cores, return_type=str),
    WithJsonSchema({"x-kubernetes-int-or-string": True, "pattern": r"^([0-9]{1,6}m|[0-9]{1,4}(\.[0-9]{1,3})?)$", "maxLength": 16}),
    Expected("a number of cores, such as 2, 0.5 or 500m"),
]
"""CPU of a process in a manifest: Kubernetes's quantity outside, cores inside, 0.1 .. 256."""
