"""The two custom resource definitions: schemas of the models, subresources, names and printer columns. Pure."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel

from statefulspark.config.job import Metadata, StatefulSparkJobSpec
from statefulspark.config.snapshot import StateSnapshotSpec
from statefulspark_operator.api.jobs import StatefulSparkJobStatus
from statefulspark_operator.api.names import GROUP, JOB_KIND, JOB_PLURAL, SNAPSHOT_KIND, SNAPSHOT_PLURAL, VERSION
from statefulspark_operator.api.snapshots import StateSnapshotStatus
from statefulspark_operator.crds.structural import Schema, structural_schema

__all__ = ["definitions", "job_definition", "snapshot_definition"]

_MAX_PARALLELISM_RULE: Final = {
    # A job without the field has as many key groups as its status says; until then the operator may have taken the default already.
    "rule": "has(oldSelf.spec.maxParallelism) ? has(self.spec.maxParallelism) && self.spec.maxParallelism == oldSelf.spec.maxParallelism"
    " : !has(self.spec.maxParallelism) || (has(self.status) && has(self.status.maxParallelism)"
    " && self.spec.maxParallelism == self.status.maxParallelism)",
    "message": "spec.maxParallelism: fixed for the life of the job's state; when it was not given, only the number in status.maxParallelism may"
    " be written. Set it back, or start a new job",
}

_JOB_COLUMNS: Final = (
    ("State", "string", ".status.lifecycleState", 0, "Where the job is in its life."),
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', 0, "Whether what the spec asks for is there."),
    ("Slots", "integer", ".status.parallelism", 0, "Slots that run."),
    ("Checkpoint", "date", ".status.lastCheckpoint.completedAt", 0, "Age of the newest checkpoint."),
    ("Restored from", "string", ".status.restoredFrom", 0, "What the running attempt started from."),
    ("Age", "date", ".metadata.creationTimestamp", 0, "Age of the job."),
    ("Wanted", "integer", ".spec.parallelism", 1, "Slots that the spec asks for."),
    ("Key groups", "integer", ".status.maxParallelism", 1, "Key groups; fixed."),
    ("Savepoint", "date", ".status.lastSavepoint.completedAt", 1, "Age of the newest savepoint."),
    ("Image", "string", ".spec.image", 1, "Image of driver and executors."),
    ("Error", "string", ".status.error.reason", 1, "Why the job is not as it should be."),
)
_SNAPSHOT_COLUMNS: Final = (
    ("Job", "string", ".spec.jobReference.name", 0, "The job."),
    ("Type", "string", ".metadata.labels.statefulspark\\.io/snapshot-type", 0, "checkpoint or savepoint."),
    ("State", "string", ".status.state", 0, "How far it is."),
    ("Path", "string", ".status.path", 0, "Where it is in storage."),
    ("Completed", "date", ".status.resultTimestamp", 0, "Time since it was completed, or failed last."),
    ("Bytes", "integer", ".status.sizeBytes", 0, "All files it refers to."),
    ("Trigger", "string", ".metadata.labels.statefulspark\\.io/trigger-type", 1, "Who asked for it."),
    ("Failures", "integer", ".status.failures", 1, "Failed attempts."),
    ("Age", "date", ".metadata.creationTimestamp", 1, "Age of the object."),
)


def definitions() -> tuple[Schema, ...]:
    """Return all custom resource definitions."""
    return job_definition(), snapshot_definition()


def job_definition() -> Schema:
    """Return the definition of ``StatefulSparkJob``."""
    name = _name_schema(Metadata)
    return _definition(
        kind=JOB_KIND,
        plural=JOB_PLURAL,
        short_names=["ssj", "ssjob"],
        root={
            "description": "A stateful PySpark job: keyed state, checkpoints, savepoints and rescaling on Kubernetes.",
            "metadata": {"type": "object", "properties": {"name": name}},
            "spec": structural_schema(StatefulSparkJobSpec),
            "status": structural_schema(StatefulSparkJobStatus, defaults=False),
            "rules": [_MAX_PARALLELISM_RULE],
        },
        subresources={
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.parallelism",
                "statusReplicasPath": ".status.parallelism",
                "labelSelectorPath": ".status.labelSelector",
            },
        },
        columns=_JOB_COLUMNS,
    )


def snapshot_definition() -> Schema:
    """Return the definition of ``StateSnapshot``."""
    return _definition(
        kind=SNAPSHOT_KIND,
        plural=SNAPSHOT_PLURAL,
        short_names=["ssnap"],
        root={
            "description": "One checkpoint or savepoint of a StatefulSparkJob. Creating one takes it.",
            "metadata": {"type": "object"},
            "spec": structural_schema(StateSnapshotSpec),
            "status": structural_schema(StateSnapshotStatus, defaults=False),
            "rules": [],
        },
        subresources={"status": {}},
        columns=_SNAPSHOT_COLUMNS,
    )


def _name_schema(model: type[BaseModel]) -> Schema:
    """The schema of an object's name, which is all that a definition may say about metadata."""
    schema = structural_schema(model)["properties"]["name"]
    return {"type": "string", "maxLength": 45, "pattern": schema["pattern"]}


def _definition(
    *,
    kind: str,
    plural: str,
    short_names: list[str],
    root: Schema,
    subresources: Schema,
    columns: tuple[tuple[str, str, str, int, str], ...],
) -> Schema:
    schema: Schema = {
        "type": "object",
        "description": root["description"],
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"{GROUP}/{VERSION}."},
            "kind": {"type": "string", "description": f"{kind}."},
            "metadata": root["metadata"],
            "spec": root["spec"],
            "status": root["status"],
        },
    }
    if root["rules"]:
        schema["x-kubernetes-validations"] = root["rules"]
    version: dict[str, Any] = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": subresources,
        "additionalPrinterColumns": [
            {
                "name": name,
                "type": kind_of_column,
                "jsonPath": path,
                **({"priority": priority} if priority else {}),
                "description": description,
            }
            for name, kind_of_column, path, priority, description in columns
        ],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}", "labels": {"app.kubernetes.io/part-of": "statefulspark"}},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": short_names,
                "categories": ["all", "statefulspark"],
            },
            "versions": [version],
        },
    }
