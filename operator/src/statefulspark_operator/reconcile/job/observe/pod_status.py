"""Reads the state of pods from their objects: phase, termination, start problems, OOM kills. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from statefulspark.config.kubernetes.pods import DRIVER_CONTAINER, EXECUTOR_CONTAINER
from statefulspark.config.values.sizes import parse_size
from statefulspark.errors import InvalidInputError, UnavailableError
from statefulspark_operator.api.drivers import Failure
from statefulspark_operator.api.names import ANNOTATION_GENERATION, ANNOTATION_KEY_ID
from statefulspark_operator.api.responses import EndingResponse, StorageReport, parse
from statefulspark_operator.builders.pods import stop_grace_s
from statefulspark_operator.reconcile.job.observe.observation import DeadExecutor, DriverPod, Ending, OutOfMemory

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
_STORAGE_START_S: Final = 120.0
"""For a pod that opens storage to be scheduled, started and done; images may have to be pulled."""
_OOM: Final = "OOMKilled"
_IMAGES: Final = "Check spec.image and spec.imagePullSecrets"
_REMEDIES: Final = {
    "ErrImagePull": _IMAGES,
    "ImagePullBackOff": _IMAGES,
    "InvalidImageName": "Check spec.image",
    "CreateContainerConfigError": "Check the Secrets and ConfigMaps that the spec refers to",
    "CrashLoopBackOff": "Check the container's log",
}
_TEMPLATE_IMAGES: Final = "Check its image in the podTemplate and spec.imagePullSecrets"
_TEMPLATE_REMEDIES: Final = _REMEDIES | {
    "ErrImagePull": _TEMPLATE_IMAGES,
    "ImagePullBackOff": _TEMPLATE_IMAGES,
    "InvalidImageName": _TEMPLATE_IMAGES,
}
"""Remedies for containers that only a podTemplate names."""
_CONTAINERS: Final = ("containerStatuses", "initContainerStatuses")


_METADATA: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "labels", "ownerReferences")
_CONTAINER_STATUS: Final = ("name", "restartCount", "state", "lastState")


def relevant_part(pod: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a pod that the operator reads, for the object cache: a whole pod is ten times as large, and a job has many."""
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    annotations = metadata.get("annotations") or {}
    return {
        **{name: pod[name] for name in ("apiVersion", "kind") if name in pod},
        "metadata": {
            **{name: metadata[name] for name in _METADATA if name in metadata},
            "annotations": {name: value for name, value in annotations.items() if name in {ANNOTATION_GENERATION, ANNOTATION_KEY_ID}},
        },
        "spec": {
            **{name: spec[name] for name in ("terminationGracePeriodSeconds",) if name in spec},
            "containers": [
                {
                    "name": each.get("name"),
                    "resources": {"limits": (each.get("resources") or {}).get("limits")},
                }
                for each in spec.get("containers") or ()
            ],
        },
        "status": {
            **{name: status[name] for name in ("phase", "podIP", "reason", "message") if name in status},
            "conditions": [each for each in status.get("conditions") or () if each.get("type") == "PodScheduled"],
            **{
                kind: [{name: each[name] for name in _CONTAINER_STATUS if name in each} for each in status.get(kind) or ()]
                for kind in _CONTAINERS
                if status.get(kind)
            },
        },
    }


def driver_pod(pod: Mapping[str, Any] | None) -> DriverPod | None:
    """The state of the driver pod."""
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
        gone_by=_time(metadata, "deletionTimestamp"),
        ip=status.get("podIP"),
        restarts=container.get("restartCount", 0),
        ending=_ending(terminated.get("message")) if terminated and terminated.get("exitCode") == 0 else None,
        trouble=_trouble(status, DRIVER_CONTAINER),
        created_at=_time(metadata, "creationTimestamp"),
        running_since=_time((container.get("state") or {}).get("running"), "startedAt"),
        started=bool(terminated or last or (container.get("state") or {}).get("running") is not None),
        failure=_failure(status) if phase == "Failed" else None,
        key_id=(metadata.get("annotations") or {}).get(ANNOTATION_KEY_ID),
        oom_killed=_OOM in {terminated.get("reason"), last.get("reason")},
        stop_grace_s=stop_grace_s(pod.get("spec") or {}),
    )


def _container(status: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return next((each for each in status.get("containerStatuses") or () if each.get("name") == name), {})


def _failure(status: Mapping[str, Any]) -> Failure | None:
    """Kubernetes' reason for ending a pod as a whole: an eviction, a node's shutdown, a kubelet that did not admit it."""
    reason = status.get("reason")
    return Failure(reason=reason, message=status.get("message") or "no message") if reason else None


def _ending(message: str | None) -> Ending | None:
    """The termination message (docs/formats.md); None if it has another format."""
    try:
        said = parse(EndingResponse, message or "")
    except UnavailableError:
        return None
    error = said.error.failure() if said.error is not None else None
    return Ending(
        state=said.state,
        batch=said.batch,
        path=said.path,
        error=error,
        checkpoint=said.left("checkpoint"),
        savepoint=said.left("savepoint"),
        kept=said.kept(),
    )


def storage_report(pod: Mapping[str, Any] | None, now: datetime) -> StorageReport | Failure | None:
    """The report of a storage pod, or why there is none; None while the pod may still report."""
    if pod is None or pod["metadata"].get("deletionTimestamp") is not None:
        return None
    status = pod.get("status") or {}
    container = _container(status, DRIVER_CONTAINER)
    terminated = (container.get("state") or {}).get("terminated")
    if terminated:
        try:
            return parse(StorageReport, terminated.get("message") or "")
        except UnavailableError as error:
            why = terminated.get("reason") or f"exit code {terminated.get('exitCode')}"
            return Failure(reason="StoragePodFailed", message=f"The storage pod terminated without a report ({why}); {error}")
    if status.get("phase") == "Failed":
        return Failure(reason="StoragePodFailed", message=f"The storage pod failed: {status.get('message') or status.get('reason')}")
    if (now - datetime.fromisoformat(pod["metadata"]["creationTimestamp"])).total_seconds() < _STORAGE_START_S:
        return None
    return _trouble(status, DRIVER_CONTAINER) or Failure(reason="StoragePodLate", message="The storage pod did not complete in time")


def _trouble(status: Mapping[str, Any], own: str) -> Failure | None:
    """Reason for which a pod does not start: a container that does not, ``own`` first, or no node that takes it."""
    containers = [each for kind in _CONTAINERS for each in status.get(kind) or ()]
    for container in sorted(containers, key=lambda each: each.get("name") != own):
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason = waiting.get("reason")
        if reason not in _TROUBLE:
            continue
        name = container.get("name")
        where = "" if name == own else f"Container {name}: "
        last = (container.get("lastState") or {}).get("terminated") or {}
        code = f" (last exit code {last['exitCode']})" if last.get("exitCode") is not None else ""
        remedy = (_TEMPLATE_REMEDIES if where else _REMEDIES).get(reason, "")
        text = f"{where}{waiting.get('message') or 'the container does not start'}{code}"
        return Failure(reason=reason, message=f"{text}. {remedy}".strip())
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return Failure(reason="Unschedulable", message=f"The pod cannot be scheduled: {condition.get('message') or 'unknown'}")
    return None


def executors(pods: Iterable[Mapping[str, Any]]) -> tuple[int, tuple[OutOfMemory, ...], Failure | None]:
    """The number of running executors, the OOM-killed ones, and the reason for which one does not run."""
    running, lost, trouble = 0, [], None
    for pod in pods:
        status = pod.get("status") or {}
        deleting = pod["metadata"].get("deletionTimestamp") is not None
        running += status.get("phase") == "Running" and not deleting
        container = _container(status, EXECUTOR_CONTAINER)
        ends = [(container.get(state) or {}).get("terminated") or {} for state in ("state", "lastState")]
        if any(end.get("reason") == _OOM for end in ends):
            lost.append(OutOfMemory(pod=pod["metadata"]["name"], uid=pod["metadata"]["uid"], limit_bytes=_limit_bytes(pod)))
        found = None if deleting else _failure(status) if status.get("phase") == "Failed" else _trouble(status, EXECUTOR_CONTAINER)
        # A pod that waits says more about the executors that are missing than one that has failed and was replaced.
        if found is not None and (trouble is None or status.get("phase") == "Pending"):
            trouble = Failure(reason=found.reason, message=f"Executor {pod['metadata']['name']}: {found.message}")
    return running, tuple(lost), trouble


def dead_executors(pods: Iterable[Mapping[str, Any]], driver: DriverPod | None) -> tuple[DeadExecutor, ...]:
    """The executors that no driver deletes: Spark deletes those that end, but a driver whose container restarts does not know those before it (SPARK-37856)."""
    if driver is None or driver.running_since is None:
        return ()
    return tuple(
        DeadExecutor(pod=metadata["name"], uid=metadata["uid"])
        for metadata in (pod["metadata"] for pod in pods if (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"})
        if any(owner.get("uid") == driver.uid for owner in metadata.get("ownerReferences") or ())
        and (created := _time(metadata, "creationTimestamp")) is not None
        and created < driver.running_since
    )


def _time(found: Mapping[str, Any] | None, name: str) -> datetime | None:
    text = (found or {}).get(name)
    return datetime.fromisoformat(text) if text else None


def _limit_bytes(pod: Mapping[str, Any]) -> int | None:
    for container in pod["spec"].get("containers") or ():
        if container.get("name") == EXECUTOR_CONTAINER:
            limit = ((container.get("resources") or {}).get("limits") or {}).get("memory")
            try:
                return parse_size(str(limit)) if limit else None
            except InvalidInputError:
                return None
    return None
