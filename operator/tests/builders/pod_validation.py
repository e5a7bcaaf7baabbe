"""The API server's rules for pods that merging a template may break, written from its own validation (pkg/apis/core/validation)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_HANDLERS = {"httpGet", "exec", "tcpSocket", "grpc"}
_PROBES = ("readinessProbe", "livenessProbe", "startupProbe")


def pod_problems(pod: dict[str, Any]) -> list[str]:
    """Everything that the API server would refuse."""
    spec = pod["spec"]
    containers = [*spec.get("initContainers", []), *spec["containers"]]
    found = [*_twice("container", [each["name"] for each in containers]), *_volumes(spec.get("volumes", []))]
    names = {volume["name"] for volume in spec.get("volumes", [])}
    found += _seccomp("pod", spec.get("securityContext", {}))
    for each in containers:
        found += [f"{each['name']}: {problem}" for problem in _container(each, names)]
    return found


def _twice(what: str, names: list[str]) -> list[str]:
    return [f"{what} {name} twice" for name in sorted({each for each in names if names.count(each) > 1})]


def _volumes(volumes: list[dict[str, Any]]) -> Iterator[str]:
    yield from _twice("volume", [each["name"] for each in volumes])
    for volume in volumes:
        if len(volume.keys() - {"name"}) != 1:
            yield f"volume {volume['name']} has types {sorted(volume.keys() - {'name'})}"


def _container(container: dict[str, Any], volumes: set[str]) -> Iterator[str]:
    env = container.get("env", [])
    yield from _twice("env", [each["name"] for each in env])
    for each in env:
        if "valueFrom" in each and ("value" in each or len(each["valueFrom"]) != 1):
            yield f"env {each['name']} has {sorted(each)} {sorted(each['valueFrom'])}"
    mounts = container.get("volumeMounts", [])
    yield from _twice("mount", [each["mountPath"].rstrip("/") for each in mounts])
    yield from (f"mount of {each['name']}, which is no volume" for each in mounts if each["name"] not in volumes)
    yield from _twice("port", [each["name"] for each in container.get("ports", []) if "name" in each])
    for probe in _PROBES:
        if len(_HANDLERS & container.get(probe, {"exec": {}}).keys()) != 1:
            yield f"{probe} has {sorted(container[probe])}"
    resources = container.get("resources", {})
    for name, request in resources.get("requests", {}).items():
        if name in resources.get("limits", {}) and _amount(request) > _amount(resources["limits"][name]):
            yield f"{name} request {request} above limit {resources['limits'][name]}"
    security = container.get("securityContext", {})
    yield from _seccomp("container", security)
    added = security.get("capabilities", {}).get("add", [])
    if security.get("allowPrivilegeEscalation") is False and (security.get("privileged") or "SYS_ADMIN" in added):
        yield "allowPrivilegeEscalation is false although the container is privileged"


def _seccomp(where: str, security: dict[str, Any]) -> Iterator[str]:
    profile = security.get("seccompProfile", {"type": "RuntimeDefault"})
    if (profile.get("type") == "Localhost") is not ("localhostProfile" in profile):
        yield f"seccompProfile of the {where}: {profile}"


def _amount(quantity: Any) -> float:
    text = str(quantity)
    units = {"m": 0.001, "Mi": 2**20, "Gi": 2**30}
    unit = next((each for each in units if text.endswith(each)), "")
    return float(text.removesuffix(unit)) * units.get(unit, 1.0)
