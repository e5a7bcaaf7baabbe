"""Names that appear in users' objects and manifests: group, kinds, labels, annotations, finalizers. Changing one is a breaking change."""

from __future__ import annotations

from typing import Final

GROUP: Final = "statefulspark.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

JOB_KIND: Final = "StatefulSparkJob"
JOB_PLURAL: Final = "statefulsparkjobs"
SNAPSHOT_KIND: Final = "StateSnapshot"
SNAPSHOT_PLURAL: Final = "statesnapshots"

FIELD_MANAGER: Final = "statefulspark-operator"
"""Owner of the fields that the operator applies (server-side apply)."""
STATUS_MANAGER: Final = "statefulspark-operator-status"
"""Owner of a status. Another name: an older API server takes what one manager applied to the object before for what it no longer wants."""
PATCH_MANAGER: Final = "statefulspark-operator-patch"
"""Owner of single fields, such as finalizers."""
FINALIZER: Final = f"{GROUP}/operator"
"""On jobs and snapshots, until their cleanup is done or has timed out."""

LABEL_JOB: Final = f"{GROUP}/job"
"""On everything that belongs to a job, executor pods and snapshots included: the job's name."""
LABEL_COMPONENT: Final = f"{GROUP}/component"
"""On a job's pods: ``driver``, ``executor`` or ``storage`` (a short-lived pod that opens the job's storage)."""
COMPONENT_DRIVER: Final = "driver"
COMPONENT_EXECUTOR: Final = "executor"
COMPONENT_STORAGE: Final = "storage"
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
"""On every object that the operator creates, with the value of `FIELD_MANAGER`."""
LABEL_CANARY: Final = f"{GROUP}/canary"
"""``true`` on the canary, by which the operator checks its watches; it runs nothing."""

LABEL_SNAPSHOT_TYPE: Final = f"{GROUP}/snapshot-type"
"""On snapshots: ``checkpoint`` or ``savepoint``."""
LABEL_SNAPSHOT_STATE: Final = f"{GROUP}/snapshot-state"
"""On snapshots: the state of the status, for label selectors."""
LABEL_TRIGGER_TYPE: Final = f"{GROUP}/trigger-type"
"""On snapshots: what triggered it, see `SnapshotTrigger`."""
LABEL_OWNS: Final = f"{GROUP}/owns"
"""``secret`` on the config map that owns a job's Secret of the same name."""

ANNOTATION_PREFIX: Final = GROUP
"""Prefix of the annotations in which kopf keeps its progress and last-handled configuration (annotations, since structural schemas prune foreign status fields)."""
ANNOTATION_GENERATION: Final = f"{GROUP}/generation"
"""On a job's children: the generation of the spec they were built from."""
ANNOTATION_KEY_ID: Final = f"{GROUP}/key-id"
"""On a driver's pod: which key of the operator the Secrets were made with that it was started with."""
