"""Pods of a job: the driver's, and the template from which Spark makes executors. Pure; every call returns a fresh tree.

A user's pod template is the ground; what the job needs is laid over it: see `_over_template`.
Both pods fit the restricted Pod Security Standard and a root file system that is read-only.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark.config.kubernetes import pods
from statefulspark_operator.api.names import ANNOTATION_KEY_ID, COMPONENT_DRIVER, COMPONENT_EXECUTOR, COMPONENT_STORAGE
from statefulspark_operator.builders.identities import JobIdentity

STOP_GRACE_S: Final = 60
"""Least grace period, in seconds, of a driver that the operator stops: time for its last checkpoint. See `stop_grace_s`."""
_GRACE_S: Final = 30
"""Grace period in the driver's spec, which holds for every other deletion. It is Kubernetes' default: the namespace controller checks a terminating
namespace again only after half of the longest grace period in the specs of its pods, so a longer one delays the deletion of every namespace with a job."""
STORAGE_POD_S: Final = 300
"""Deadline of a storage pod."""
_USER: Final = 10001
_TMP: Final = "/tmp"  # noqa: S108  the pod's own volume
_HOME_VARIABLES: Final = {"HOME": _TMP, "SPARK_LOCAL_DIRS": f"{_TMP}/spark"}
_SCRATCH: Final = "tmp"
"""The one volume of ours that a template may replace, by its name or by another volume at its mount path."""
_TMP_MOUNT: Final = {"name": _SCRATCH, "mountPath": _TMP}
_TLS_MOUNT: Final = {"name": "tls", "mountPath": pods.TLS_FOLDER, "readOnly": True}
_LOST_NODE_S: Final = 30
"""A pod on an unreachable node is evicted after this time instead of Kubernetes' five minutes."""


def stop_grace_s(pod_spec: Mapping[str, Any]) -> int:
    """Grace period, in seconds, of a driver that the operator stops: the longer one of the operator's and of the pod's spec or template."""
    given = pod_spec.get("terminationGracePeriodSeconds")
    return max(STOP_GRACE_S, given) if isinstance(given, int) else STOP_GRACE_S


def driver_pod(
    job: JobIdentity, spec: StatefulSparkJobSpec, *, image: str, account: str, key_id: str, locations: tuple[str, ...] | None = None
) -> dict[str, Any]:
    """The driver's pod. ``key_id`` tells which key of the operator its Secrets were made with, ``locations`` limits targets of savepoints."""
    ours = {
        "serviceAccountName": account,
        "restartPolicy": "OnFailure",
        "terminationGracePeriodSeconds": _GRACE_S,
        "securityContext": _pod_security(),
        "imagePullSecrets": [{"name": name} for name in spec.image_pull_secrets],
        "tolerations": _tolerations(),
        "containers": [_driver_container(job, spec, image, locations)],
        "volumes": [
            {"name": "config", "configMap": {"name": job.config}},
            {"name": "api-token", "secret": {"secretName": job.secret, "items": [{"key": pods.TOKEN_KEY, "path": pods.TOKEN_KEY}]}},
            {
                "name": "spark-secret",
                "secret": {"secretName": job.secret, "items": [{"key": pods.SPARK_SECRET_KEY, "path": pods.SPARK_SECRET_KEY}]},
            },
            _tls_volume(job),
            {"name": _SCRATCH, "emptyDir": {}},
            *_storage_volumes(spec),
        ],
    }
    metadata = job.metadata(job.driver, COMPONENT_DRIVER)
    metadata["annotations"][ANNOTATION_KEY_ID] = key_id
    return _over_template(spec.driver.pod_template, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": ours})


def _driver_container(job: JobIdentity, spec: StatefulSparkJobSpec, image: str, locations: tuple[str, ...] | None) -> dict[str, Any]:
    memory = str(spec.memory_plan().driver.total_bytes)
    return {
        "name": pods.DRIVER_CONTAINER,
        "image": image,
        "imagePullPolicy": spec.image_pull_policy.value,
        "args": [
            "run",
            f"{pods.CONFIG_FOLDER}/{pods.MANIFEST_FILE}",
            "--master=kubernetes",
            "--api-host=0.0.0.0",
            f"--api-port={pods.API_PORT}",
            f"--stop-timeout={stop_grace_s(_pod_spec(spec.driver.pod_template)) - 10}",
            "--termination-log=/dev/termination-log",
            "--no-progress",
        ],
        "env": [
            *_fields(
                {
                    pods.POD_NAME_VARIABLE: "metadata.name",
                    pods.POD_NAMESPACE_VARIABLE: "metadata.namespace",
                    pods.POD_IP_VARIABLE: "status.podIP",
                }
            ),
            *_values(
                _HOME_VARIABLES
                | {
                    "STATEFULSPARK_API_TOKEN_FILE": f"{pods.TOKEN_FOLDER}/{pods.TOKEN_KEY}",
                    pods.EXECUTOR_TEMPLATE_VARIABLE: f"{pods.CONFIG_FOLDER}/{pods.EXECUTOR_TEMPLATE_FILE}",
                    pods.SPARK_SECRET_VARIABLE: job.secret,
                    pods.TLS_FOLDER_VARIABLE: pods.TLS_FOLDER,
                }
                | ({pods.STORAGE_LOCATIONS_VARIABLE: json.dumps(locations)} if locations is not None else {})
            ),
            *_credentials(spec),
        ],
        "ports": [
            {"name": "api", "containerPort": pods.API_PORT},
            {"name": "driver", "containerPort": pods.DRIVER_PORT},
            {"name": "blockmanager", "containerPort": pods.BLOCK_MANAGER_PORT},
        ],
        "resources": {
            "requests": {"cpu": _cpu(spec.driver.cores), "memory": memory},
            "limits": {"memory": memory},
        },
        "volumeMounts": [
            {"name": "config", "mountPath": pods.CONFIG_FOLDER, "readOnly": True},
            {"name": "api-token", "mountPath": pods.TOKEN_FOLDER, "readOnly": True},
            {"name": "spark-secret", "mountPath": pods.SPARK_SECRET_FOLDER, "readOnly": True},
            _TLS_MOUNT,
            dict(_TMP_MOUNT),
            *_storage_mounts(spec),
        ],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "api", "scheme": "HTTPS"}, "periodSeconds": 2, "failureThreshold": 2},
        # Alive is the process; whether the job runs is the operator's question. The API opens when the job is restored, which may take long.
        "securityContext": _container_security(),
        "terminationMessagePath": "/dev/termination-log",
    }


def executor_template(job: JobIdentity, spec: StatefulSparkJobSpec) -> dict[str, Any]:
    """The template from which Spark makes executor pods; Spark adds image, command, memory and owner."""
    container = {
        "name": pods.EXECUTOR_CONTAINER,
        "env": [*_values(_HOME_VARIABLES | {pods.TLS_FOLDER_VARIABLE: pods.TLS_FOLDER}), *_credentials(spec)],
        "securityContext": _container_security(),
        "volumeMounts": [_TLS_MOUNT, dict(_TMP_MOUNT), *_storage_mounts(spec)],
    }
    ours = {
        "automountServiceAccountToken": False,
        "securityContext": _pod_security(),
        "imagePullSecrets": [{"name": name} for name in spec.image_pull_secrets],
        "tolerations": _tolerations(),
        "containers": [container],
        "volumes": [_tls_volume(job), {"name": _SCRATCH, "emptyDir": {}}, *_storage_volumes(spec)],
    }
    metadata = {"labels": job.labels(COMPONENT_EXECUTOR)}
    return _over_template(spec.executor.pod_template, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": ours})


def executor_sample(job: JobIdentity, spec: StatefulSparkJobSpec, *, image: str) -> dict[str, Any]:
    """A pod like the ones that Spark makes from the executor template, for a dry run."""
    pod = executor_template(job, spec)
    memory = str(spec.memory_plan().executor.total_bytes)
    resources = {"requests": {"cpu": _cpu(spec.executor.cores), "memory": memory}, "limits": {"memory": memory}}
    for container in pod["spec"]["containers"]:
        if isinstance(container, dict) and container.get("name") == pods.EXECUTOR_CONTAINER:
            given = _tree(container.get("resources"))
            container |= {"image": image, "resources": given | {name: _tree(given.get(name)) | value for name, value in resources.items()}}
    pod["metadata"] |= {"name": f"{job.name}-exec-check", "namespace": job.namespace}
    return pod


def storage_pod(
    job: JobIdentity, spec: StatefulSparkJobSpec, *, name: str, owner: Mapping[str, Any], command: Sequence[str], image: str, account: str
) -> dict[str, Any]:
    """A short-lived pod that opens the job's storage with the job's identity and reports what it finds.

    Args:
        job: whose storage.
        spec: how it is reached; the driver's template gives volumes, variables and where the pod may run.
        name: of the pod.
        owner: reference to the object that wants to know; the pod goes with it.
        command: ``describe`` or ``dispose`` of ``statefulspark snapshot``, and the location.
        image: the job's.
        account: the job's.
    """
    container = {
        "name": pods.DRIVER_CONTAINER,
        "image": image,
        "imagePullPolicy": spec.image_pull_policy.value,
        "args": ["snapshot", *command, *_storage_options(spec), "--report=/dev/termination-log"],
        "env": [*_values(_HOME_VARIABLES), *_credentials(spec)],
        "resources": {"requests": {"cpu": "50m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": _container_security(),
        "terminationMessagePath": "/dev/termination-log",
        "volumeMounts": [dict(_TMP_MOUNT), *_storage_mounts(spec)],
    }
    ours = {
        "serviceAccountName": account,
        # It asks the object store, never the API server.
        "automountServiceAccountToken": False,
        "restartPolicy": "Never",
        "activeDeadlineSeconds": STORAGE_POD_S,
        "terminationGracePeriodSeconds": 5,
        "securityContext": _pod_security(),
        "imagePullSecrets": [{"name": each} for each in spec.image_pull_secrets],
        "containers": [container],
        "volumes": [{"name": _SCRATCH, "emptyDir": {}}, *_storage_volumes(spec)],
    }
    metadata = job.metadata(name, COMPONENT_STORAGE) | {"ownerReferences": [dict(owner)]}
    return _over_template(
        _of_the_driver_alone(spec.driver.pod_template), {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": ours}
    )


def _of_the_driver_alone(template: Mapping[str, Any]) -> dict[str, Any]:
    """The driver's template without containers beside the driver's, which would never end, and without what a driver's container does."""
    ground = copy.deepcopy(dict(template))
    spec = ground.get("spec")
    if not isinstance(spec, dict):
        return ground
    containers = spec.get("containers")
    named = (
        [each for each in containers if isinstance(each, dict) and each.get("name") == pods.DRIVER_CONTAINER]
        if isinstance(containers, list)
        else []
    )
    own: dict[str, Any] = named[0] if named else {}
    kept: dict[str, Any] = {name: own[name] for name in ("env", "envFrom", "volumeMounts") if name in own}
    for name in ("containers", "initContainers", "terminationGracePeriodSeconds"):
        spec.pop(name, None)
    return ground | {"spec": spec | ({"containers": [{"name": pods.DRIVER_CONTAINER, **kept}]} if kept else {})}


def _storage_options(spec: StatefulSparkJobSpec) -> list[str]:
    storage = spec.checkpointing.storage
    options = []
    if storage.endpoint is not None:
        options.append(f"--endpoint={storage.endpoint}")
    if storage.region is not None:
        options.append(f"--region={storage.region}")
    if storage.path_style is not None:
        options.append("--path-style" if storage.path_style else "--virtual-host")
    if storage.ca_bundle_from is not None:
        options.append(f"--ca-bundle={pods.CA_FOLDER}/{pods.CA_FILE}")
    return options


def _storage_mounts(spec: StatefulSparkJobSpec) -> list[dict[str, Any]]:
    storage = spec.checkpointing.storage
    mounts = []
    if storage.ca_bundle_from is not None:
        mounts.append({"name": "storage-ca", "mountPath": pods.CA_FOLDER, "readOnly": True})
    if storage.credentials_secret is not None:
        mounts.append({"name": "storage-credentials", "mountPath": pods.CREDENTIALS_FOLDER, "readOnly": True})
    return mounts


def _storage_volumes(spec: StatefulSparkJobSpec) -> list[dict[str, Any]]:
    """Certificates and credentials from the job's namespace; the operator never reads them."""
    return _ca_volumes(spec) + _credentials_volumes(spec)


def _credentials_volumes(spec: StatefulSparkJobSpec) -> list[dict[str, Any]]:
    """The keys as files: those follow when the Secret changes. All of its keys, because a volume can require or pardon none of them by itself."""
    secret = spec.checkpointing.storage.credentials_secret
    return [{"name": "storage-credentials", "secret": {"secretName": secret, "defaultMode": 0o440}}] if secret is not None else []


def _ca_volumes(spec: StatefulSparkJobSpec) -> list[dict[str, Any]]:
    source = spec.checkpointing.storage.ca_bundle_from
    if source is None:
        return []
    key = source.secret_key_ref or source.config_map_key_ref
    if key is None:
        return []
    items = [{"key": key.key, "path": pods.CA_FILE}]
    if source.secret_key_ref is not None:
        return [{"name": "storage-ca", "secret": {"secretName": key.name, "items": items}}]
    return [{"name": "storage-ca", "configMap": {"name": key.name, "items": items}}]


def _tls_volume(job: JobIdentity) -> dict[str, Any]:
    """The job's certificates without the authority's key. No subPath: only whole volumes follow when the Secret changes."""
    files = (pods.TLS_CERTIFICATE_FILE, pods.TLS_KEY_FILE, pods.TLS_AUTHORITY_FILE)
    items = [{"key": name, "path": name} for name in files]
    return {"name": "tls", "secret": {"secretName": job.certificates, "items": items, "defaultMode": 0o440}}


def _cpu(cores: float) -> str:
    return f"{round(cores * 1000)}m"


def _values(values: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def _fields(paths: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in paths.items()]


def _credentials(spec: StatefulSparkJobSpec) -> list[dict[str, Any]]:
    """Variables of the object store's keys, by reference: the values never pass through the operator.

    Variables stay as they are when the Secret changes. The job's own access to storage uses the files; the job's code may want the variables.
    """
    secret = spec.checkpointing.storage.credentials_secret
    if secret is None:
        return []
    schemes = spec.checkpointing.credential_schemes
    keys = [(name, False) for scheme in schemes for name in pods.CREDENTIALS[scheme]]
    if "s3" in schemes:
        keys.append((pods.SESSION_TOKEN, True))
    return [
        *_values({pods.CREDENTIALS_FOLDER_VARIABLE: pods.CREDENTIALS_FOLDER}),
        *(
            {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": name, **({"optional": True} if optional else {})}}}
            for name, optional in keys
        ),
    ]


def _pod_security() -> dict[str, Any]:
    return {
        "runAsNonRoot": True,
        "runAsUser": _USER,
        "runAsGroup": _USER,
        "fsGroup": _USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _container_security() -> dict[str, Any]:
    return {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


def _tolerations() -> list[dict[str, Any]]:
    return [
        {"key": f"node.kubernetes.io/{taint}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _LOST_NODE_S}
        for taint in ("not-ready", "unreachable")
    ]


def _pod_spec(template: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = template.get("spec")
    return spec if isinstance(spec, dict) else {}


# -- templates -----------------------------------------------------------------------------------------------------------

_TEMPLATE_WINS: Final = frozenset({"tolerations", "terminationGracePeriodSeconds"})
"""Fields of the pod where what a person wrote replaces the default."""


def _over_template(template: Mapping[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """Lays ``ours`` over the user's template.

    Where both name a thing (a volume, variable, port, mount, probe or security context), one of the two is taken whole: ours, except for
    scratch space. Mixing their fields would make pods that the API server refuses, such as a volume of two types.
    """
    # What is no object is left out here; the API server would refuse it, and the job needs its pod.
    metadata, spec = _tree(template.get("metadata")), copy.deepcopy(_tree(template.get("spec")))
    result = {**ours, "metadata": dict(ours["metadata"])}
    for name in ("labels", "annotations"):
        if added := _tree(metadata.get(name)):
            result["metadata"][name] = added | result["metadata"].get(name, {})
    for name, value in ours["spec"].items():
        given = spec.get(name)
        if name in _TEMPLATE_WINS and given:
            continue
        if name == "securityContext":
            spec[name] = _tree(given) | value
        elif name == "volumes":
            spec[name] = _by_key(given, value, "name", theirs=frozenset({_SCRATCH}))
        elif name == "containers":
            spec[name] = _containers(given, value)
        else:
            spec[name] = value
    return result | {"spec": spec}


def _containers(given: object, ours: Sequence[dict[str, Any]]) -> list[Any]:
    by_name = {each.get("name"): each for each in _items(given) if isinstance(each, dict) and isinstance(each.get("name"), str)}
    return _by_key(given, [_container(by_name.get(each["name"], {}), each) for each in ours], "name")


def _container(given: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {**given, **ours}
    for name, key, theirs in (("env", "name", ()), ("ports", "name", ()), ("volumeMounts", "mountPath", (_TMP,))):
        if name in ours:
            result[name] = _by_key(given.get(name), ours[name], key, theirs=frozenset(theirs))
    if "resources" in ours:
        resources = _tree(given.get("resources"))
        result["resources"] = resources | {name: _tree(resources.get(name)) | value for name, value in ours["resources"].items()}
    return result


def _by_key(given: object, ours: Iterable[dict[str, Any]], key: str, *, theirs: frozenset[str] = frozenset()) -> list[Any]:
    """Items of both; of two with the same key ours, or the template's for the keys in ``theirs``."""
    remaining = {item[key]: item for item in ours}
    result = []
    for item in _items(given):
        name = item.get(key) if isinstance(item, dict) else None
        name = (name.rstrip("/") if key == "mountPath" else name) if isinstance(name, str) else None
        mine = remaining.pop(name, None) if name is not None else None
        result.append(mine if mine is not None and name not in theirs else item)
    return [*result, *remaining.values()]


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _tree(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
