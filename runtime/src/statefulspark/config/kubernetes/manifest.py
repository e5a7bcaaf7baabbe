"""What a manifest may say on Kubernetes, and the manifest that the driver in its pod gets. Pure.

The same manifest runs on this machine and on Kubernetes. What makes no sense or is not safe there is refused with a sentence: credentials
written into it (Kubernetes has Secrets and service accounts), and Spark settings by which driver and executors find each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from statefulspark.config.document_bounds import check_bounds
from statefulspark.config.job import StatefulSparkJob, StatefulSparkJobSpec
from statefulspark.config.kubernetes import pods
from statefulspark.config.kubernetes.pod_templates import RESERVED_VOLUMES, template_conflicts
from statefulspark.config.manifest import validate_job
from statefulspark.config.problems import Problem, as_invalid_input, sentences
from statefulspark.config.snapshot import StateSnapshot
from statefulspark.config.values.secret_names import HIDING, WAY, is_secret, is_secret_value

_OPERATORS_SPARK_CONF: Final = frozenset(
    {
        "spark.authenticate",
        "spark.authenticate.secret",
        "spark.authenticate.secret.file",
        "spark.driver.bindAddress",
        "spark.driver.blockManager.port",
        "spark.driver.host",
        "spark.driver.port",
        "spark.dynamicAllocation.enabled",
        "spark.kubernetes.driver.pod.name",
        "spark.kubernetes.executor.limit.cores",
        "spark.kubernetes.executor.podTemplateContainerName",
        "spark.kubernetes.executor.podTemplateFile",
        "spark.kubernetes.executor.request.cores",
        "spark.kubernetes.namespace",
        "spark.submit.deployMode",
    }
)
_OPERATORS_SPARK_CONF_PREFIXES: Final = ("spark.kubernetes.authenticate.", "spark.kubernetes.driver.container.image")
_TEMPLATE_DEPTH_MAX: Final = 32
_TEMPLATE_CHARACTERS_MAX: Final = 64 << 10
"""A pod's own fields need a tenth of this. The operator keeps the text several times, in the status too, and etcd takes 1.5 MiB in all."""
_TEMPLATE_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata", "spec"})
_OPERATORS_POD_FIELDS: Final = {
    "restartPolicy": "Remove it; the operator decides about restarts",
    "serviceAccount": "Set spec.serviceAccount",
    "serviceAccountName": "Set spec.serviceAccount",
    "imagePullSecrets": "Set spec.imagePullSecrets",
}


def validate_on_kubernetes(document: object) -> StatefulSparkJob:
    """Check a job as `validate_job` does, and that it can run on Kubernetes; relative paths become absolute ones in the image.

    Raises:
        InvalidInputError: One sentence per problem, with the field's path as in YAML.
    """
    job = validate_job(document, folder=Path(pods.JOB_FOLDER))
    if problems := tuple(kubernetes_problems(job)):
        raise sentences(problems)
    return job


def validate_snapshot(document: object) -> StateSnapshot:
    """Check a snapshot, an object of the Kubernetes API.

    Raises:
        InvalidInputError: One sentence per problem, with the field's path as in YAML.
    """
    check_bounds(document)
    try:
        return StateSnapshot.model_validate(document, by_alias=True, by_name=False)
    except ValidationError as error:
        raise as_invalid_input(error, StateSnapshot) from None  # the cause holds the input


def kubernetes_problems(job: StatefulSparkJob) -> Iterator[Problem]:
    """Yield what the manifest says that cannot be on Kubernetes."""
    spec = job.spec
    for path in _local_fields(spec, "spec."):
        yield Problem(path, "only applies to statefulspark run, not to Kubernetes", _LOCAL_REMEDIES.get(path, "Remove it"))
    for name in sorted(spec.spark_conf):
        if name in _OPERATORS_SPARK_CONF or name.startswith(_OPERATORS_SPARK_CONF_PREFIXES):
            yield Problem(f"spec.sparkConf[{name}]", "is set by the operator", "Remove it")
        elif is_secret(name):
            yield Problem(f"spec.sparkConf[{name}]", "is a secret by Spark's rules", WAY)
        elif is_secret_value(spec.spark_conf[name]):
            yield Problem(f"spec.sparkConf[{name}]", "contains a secret, such as a password in a URL", WAY)
        elif name in HIDING:
            yield Problem(f"spec.sparkConf[{name}]", "tells Spark which secrets to hide", "Remove it")
    for part, container, cores, template in (
        ("driver", pods.DRIVER_CONTAINER, spec.driver.cores, spec.driver.pod_template),
        ("executor", pods.EXECUTOR_CONTAINER, spec.executor.cores, spec.executor.pod_template),
    ):
        path = f"spec.{part}.podTemplate"
        yield from _template_problems(path, template)
        yield from template_conflicts(path, template, container=container, cores=cores, volumes=RESERVED_VOLUMES[part])


def driver_spec(spec: StatefulSparkJobSpec) -> dict[str, Any]:
    """Return the spec for the driver: what a person gave, and nothing that only the operator acts on."""
    document: dict[str, Any] = spec.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    for part in ("driver", "executor"):
        document.get(part, {}).pop("podTemplate", None)
    document.pop("initialSnapshot", None)
    document.get("sparkConf", {}).pop("spark.master", None)
    if spec.checkpointing.storage.ca_bundle_from is not None:
        storage = document["checkpointing"]["storage"]
        storage.pop("caBundleFrom")
        storage["caBundle"] = f"{pods.CA_FOLDER}/{pods.CA_FILE}"
    return document


_STORAGE: Final = "spec.checkpointing.storage"
_LOCAL_REMEDIES: Final = {
    f"{_STORAGE}.{name}": "Put it into a Secret and name that in credentialsSecret, or use a service account"
    for name in ("accessKeyId", "secretAccessKey", "sessionToken")
} | {f"{_STORAGE}.caBundle": "Put the certificates into a ConfigMap or Secret and name it in caBundleFrom"}


def _local_fields(model: BaseModel, prefix: str) -> Iterator[str]:
    """Paths of the fields that are given and only mean something on this machine."""
    for name, field in type(model).model_fields.items():
        if name not in model.model_fields_set:
            continue
        path, value = f"{prefix}{field.alias or name}", getattr(model, name)
        extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        if extra.get("local") and value is not None:
            yield path
        elif isinstance(value, BaseModel):
            yield from _local_fields(value, f"{path}.")


def _template_problems(path: str, template: Mapping[str, Any]) -> Iterator[Problem]:
    for name in sorted(template.keys() - _TEMPLATE_FIELDS):
        yield Problem(f"{path}.{name}", "is not a field of a pod template", "Use metadata and spec")
    for name in ("metadata", "spec"):
        if name in template and not isinstance(template[name], dict):
            yield Problem(f"{path}.{name}", "is not a mapping", "Write one indented `name: value` per line below it")
    size, depth = _measure(template)
    if depth > _TEMPLATE_DEPTH_MAX:
        yield Problem(path, f"has more than {_TEMPLATE_DEPTH_MAX} levels", "No pod field is nested that deeply")
    if size > _TEMPLATE_CHARACTERS_MAX:
        yield Problem(path, f"has more than {_TEMPLATE_CHARACTERS_MAX >> 10} Ki characters", "Put files and long texts into a ConfigMap")
    spec = template.get("spec")
    if isinstance(spec, dict):
        for name, remedy in _OPERATORS_POD_FIELDS.items():
            if name in spec:
                yield Problem(f"{path}.spec.{name}", "is set by the operator", remedy)


def _measure(tree: object) -> tuple[int, int]:
    """Characters and levels of a tree, without recursion: it may be deeper than Python's stack. Counting ends beyond the bounds."""
    size, depth, pending = 0, 0, [(tree, 1)]
    while pending and size <= _TEMPLATE_CHARACTERS_MAX and depth <= _TEMPLATE_DEPTH_MAX:
        value, level = pending.pop()
        if isinstance(value, dict):
            size += sum(len(str(name)) + 4 for name in value)
            pending += [(each, level + 1) for each in value.values()]
        elif isinstance(value, list):
            pending += [(each, level + 1) for each in value]
        else:
            size += len(str(value))
            continue
        size += 2
        depth = max(depth, level)
    return size, depth
