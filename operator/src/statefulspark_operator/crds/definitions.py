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
    "message": "spec.maxParallelism: cannot change during the lifetime of the job's state; if it was unset, only the value of status.maxParallelism is"
    " allowed. Restore the previous value, or create a new job",
}

_JOB_COLUMNS: Final = (
    ("State", "string", ".status.lifecycleState", 0, "Lifecycle state."),
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', 0, "True if the job is in the desired state."),
    ("Slots", "integer", ".status.parallelism", 0, "Slots that run."),
    ("Behind", "integer", ".status.lag.rows", 0, "Rows, or Kafka records, that the sources had and the last batch did not read."),
    ("Restarts", "integer", ".status.restarts", 0, "Restarts of a lost driver since the job was last stable."),
    ("Checkpoint", "date", ".status.lastCheckpoint.completedAt", 0, "Age of the latest checkpoint."),
    ("Restored from", "string", ".status.restoredFrom", 0, "Checkpoint or savepoint that the running attempt restored from."),
    ("Age", "date", ".metadata.creationTimestamp", 0, "Age of the job."),
    ("Wanted", "integer", ".spec.parallelism", 1, "Desired number of slots."),
    ("Key groups", "integer", ".status.maxParallelism", 1, "Number of key groups."),
    ("Savepoint", "date", ".status.lastSavepoint.completedAt", 1, "Age of the latest savepoint."),
    ("Image", "string", ".spec.image", 1, "Image of driver and executors."),
    ("Error", "string", ".status.error.reason", 1, "Reason of the error that keeps the job from the desired state."),
)
_SNAPSHOT_COLUMNS: Final = (
    ("Job", "string", ".spec.jobReference.name", 0, "Job of the snapshot."),
    ("Type", "string", ".metadata.labels.statefulspark\\.io/snapshot-type", 0, "checkpoint or savepoint."),
    ("State", "string", ".status.state", 0, "State of the snapshot."),
    ("Path", "string", ".status.path", 0, "Location in storage."),
    ("Completed", "date", ".status.resultTimestamp", 0, "Time since completion, or since the last failure."),
    ("Bytes", "integer", ".status.sizeBytes", 0, "Total size of all files that it refers to, in bytes."),
    ("Trigger", "string", ".metadata.labels.statefulspark\\.io/trigger-type", 1, "What triggered the snapshot."),
    ("Failures", "integer", ".status.failures", 1, "Number of failed attempts."),
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
            "description": "One checkpoint or savepoint of a StatefulSparkJob. Creating the object triggers the snapshot, or registers an existing one.",
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
    schema = structural_schema(model, defaults=False)["properties"]["name"]
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
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": subresources,
                    "additionalPrinterColumns": _printer_columns(columns),
                }
            ],
        },
    }


def _printer_columns(columns: tuple[tuple[str, str, str, int, str], ...]) -> list[dict[str, Any]]:
    return [
        {"name": name, "type": kind, "jsonPath": path, **({"priority": priority} if priority else {}), "description": description}
        for name, kind, path, priority, description in columns
    ]
