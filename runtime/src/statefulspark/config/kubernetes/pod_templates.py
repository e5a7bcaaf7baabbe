"""Conflicts of a pod template with the pod that the operator makes of it, for which no side can win. Pure.

In every other conflict the operator's or the template's part is taken whole: docs/operator.md, "Pod templates".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from statefulspark.config.problems import Problem

RESERVED_VOLUMES: Final[Mapping[str, frozenset[str]]] = {
    "driver": frozenset({"config", "api-token", "spark-secret", "tls", "storage-ca", "storage-credentials"}),
    "executor": frozenset({"tls", "storage-ca", "storage-credentials"}),
}
"""Names of the operator's volumes. A template's mounts of its own volume of such a name would show the operator's files."""
_CPU: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(m?)")


def template_conflicts(
    path: str, template: Mapping[str, Any], *, container: str, cores: float, volumes: frozenset[str]
) -> Iterator[Problem]:
    """Yields conflicts by the names of the things that conflict.

    Args:
        path: Path of the template in the manifest.
        template: The template.
        container: Name of the operator's container in it.
        cores: CPU cores that the operator requests for this container.
        volumes: Names of the operator's volumes.
    """
    spec = template.get("spec")
    if not isinstance(spec, dict):
        return
    for volume in _named(spec.get("volumes")):
        if volume["name"] in volumes:
            yield Problem(f"{path}.spec.volumes[{volume['name']}]", "is the name of a volume of the operator", "Choose another name")
    for each in _named(spec.get("initContainers")):
        if each["name"] == container:
            yield Problem(f"{path}.spec.initContainers[{container}]", "is the name of a container of the operator", "Choose another name")
    for each in _named(spec.get("containers")):
        limit = _cpu(_limits(each).get("cpu")) if each["name"] == container else None
        if limit is not None and limit < round(cores, 3):
            where = f"{path}.spec.containers[{container}].resources.limits.cpu"
            yield Problem(where, f"is below {path.rpartition('.')[0]}.cores, which is requested", "Raise the limit or lower cores")


def _named(items: object) -> Iterator[dict[str, Any]]:
    yield from (each for each in items if isinstance(each, dict) and isinstance(each.get("name"), str)) if isinstance(items, list) else ()


def _limits(container: Mapping[str, Any]) -> Mapping[str, Any]:
    resources = container.get("resources")
    limits = resources.get("limits") if isinstance(resources, dict) else None
    return limits if isinstance(limits, dict) else {}


def _cpu(quantity: object) -> float | None:
    """Cores of a Kubernetes quantity in the forms that people use for CPU; None for others, which the API server judges."""
    found = _CPU.fullmatch(str(quantity)) if isinstance(quantity, str | int | float) and not isinstance(quantity, bool) else None
    return float(found[1]) / (1000 if found[2] else 1) if found is not None else None
