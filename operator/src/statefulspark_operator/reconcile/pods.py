"""What pods say, read from their objects: phase, ending, trouble, lack of memory. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from statefulspark.config.pods import DRIVER_CONTAINER, EXECUTOR_CONTAINER
from statefulspark.config.sizes import parse_size
from statefulspark.errors import InvalidInputError
from statefulspark_operator.api.drivers import Failure
from statefulspark_operator.api.names import ANNOTATION_GENERATION
from statefulspark_operator.reconcile.observation import DriverPod, Ending, OutOfMemory

_TROUBLE: Final = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "CreateContainerConfigError",
        "CreateContainerError",
        "CrashLoopBackOff",
        "RunContainerError",
    }
)
_OOM: Final = "OOMKilled"
_REMEDIES: Final = {
    "ErrImagePull": "Check spec.image and spec.imagePullSecrets",
    "ImagePullBackOff": "Check spec.image and spec.imagePullSecrets",
    "InvalidImageName": "Check spec.image",
    "CreateContainerConfigError": "Check the Secrets and config maps that the spec names",
    "CrashLoopBackOff": "The driver's log says why",
}


def driver_pod(pod: Mapping[str, Any] | None) -> DriverPod | None:
    """What the driver's pod says."""
    if pod is None:
        return None
    metadata, status = pod["metadata"], pod.get("status") or {}
    container = _container(status, DRIVER_CONTAINER)
    terminated = (container.get("state") or {}).get("terminated") or {}
    last = (container.get("lastState") or {}).get("terminated") or {}
    phase = status.get("phase") or "Pending"
    return DriverPod(
        name=metadata["name"],
        uid=metadata["uid"],
        generation=int((metadata.get("annotations") or {}).get(ANNOTATION_GENERATION, 0)),
        phase=phase,
        deleting=metadata.get("deletionTimestamp") is not None,
        gone_by=datetime.fromisoformat(metadata["deletionTimestamp"]) if metadata.get("deletionTimestamp") else None,
        ip=status.get("podIP"),
        restarts=container.get("restartCount", 0),
        ending=_ending(terminated.get("message")) if terminated and terminated.get("exitCode") == 0 else None,
        trouble=_trouble(status, container),
        oom_killed=_OOM in {terminated.get("reason"), last.get("reason")},
    )


def _container(status: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return next((each for each in status.get("containerStatuses") or () if each.get("name") == name), {})


def _ending(message: str | None) -> Ending | None:
    """The termination message (docs/formats.md); None when it is none of ours."""
    try:
        document = json.loads(message or "")
        if document["version"] != 1:
            return None
        error = document["error"]
        return Ending(
            state=document["state"],
            batch=document["batch"],
            path=document["path"],
            error=Failure(reason=error["reason"], message=error["message"]) if error else None,
        )
    except (ValueError, KeyError, TypeError):
        return None


def _trouble(status: Mapping[str, Any], container: Mapping[str, Any]) -> Failure | None:
    waiting = (container.get("state") or {}).get("waiting") or {}
    reason = waiting.get("reason")
    if reason in _TROUBLE:
        remedy = _REMEDIES.get(reason, "")
        return Failure(reason=reason, message=f"{waiting.get('message') or 'the driver does not start'}. {remedy}".strip())
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return Failure(reason="Unschedulable", message=f"No node takes the driver: {condition.get('message') or 'unknown'}")
    return None


def executors(pods: Iterable[Mapping[str, Any]]) -> tuple[int, tuple[OutOfMemory, ...]]:
    """How many executors run, and which were ended for lack of memory."""
    running, lost = 0, []
    for pod in pods:
        status = pod.get("status") or {}
        running += status.get("phase") == "Running" and pod["metadata"].get("deletionTimestamp") is None
        container = _container(status, EXECUTOR_CONTAINER)
        ends = [(container.get(state) or {}).get("terminated") or {} for state in ("state", "lastState")]
        if any(end.get("reason") == _OOM for end in ends):
            lost.append(OutOfMemory(pod=pod["metadata"]["name"], uid=pod["metadata"]["uid"], limit_bytes=_limit_bytes(pod)))
    return running, tuple(lost)


def _limit_bytes(pod: Mapping[str, Any]) -> int | None:
    for container in pod["spec"].get("containers") or ():
        if container.get("name") == EXECUTOR_CONTAINER:
            limit = ((container.get("resources") or {}).get("limits") or {}).get("memory")
            try:
                return parse_size(str(limit)) if limit else None
            except InvalidInputError:
                return None
    return None
