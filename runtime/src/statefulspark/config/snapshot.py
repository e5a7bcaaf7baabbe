"""``StateSnapshot``: one checkpoint or savepoint of a job as a Kubernetes object. Creating one takes it; deleting one may dispose of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field

from statefulspark.config.base import IGNORE, REJECT, CelRule, Flag, Model, ObjectName, Resource, WholeNumber
from statefulspark.config.job import API_VERSION
from statefulspark.config.problems import Problem
from statefulspark.config.savepoints import SavepointFormat
from statefulspark.config.values.locations import StorageUrl

SNAPSHOT_KIND: Final = "StateSnapshot"


class JobReference(Model):
    """Reference to the job that a snapshot belongs to."""

    name: ObjectName = Field(json_schema_extra=REJECT)
    """Name of the StatefulSparkJob in the same namespace."""


class SavepointSource(Model):
    """A savepoint: self-contained, owned by a person."""

    cel_rules = (
        CelRule("!self.alreadyExists || has(self.path)", "path: is required for an existing savepoint. Set path: s3://..."),
        CelRule("!self.alreadyExists || self.format == 'native'", "format: is for new savepoints. Remove format"),
    )

    path: StorageUrl | None = Field(default=None, json_schema_extra=REJECT)
    """Directory in which to create the savepoint. Defaults to the job's checkpointing.savepointDir. With alreadyExists, the path of the
    savepoint itself."""

    dispose_on_delete: Flag = Field(default=False, json_schema_extra=IGNORE)
    """Delete the savepoint from storage when this object is deleted."""

    already_exists: Flag = Field(default=False, json_schema_extra=REJECT)
    """True to register a savepoint that already exists in storage, instead of taking a new one."""

    format: SavepointFormat = Field(default="native", json_schema_extra=REJECT)
    """Format of a new savepoint: native, the files of the job's state backend, or canonical, Parquet files that every state backend restores. A
    canonical one takes longer, and needs 384Mi more in the driver."""

    def conflicts(self) -> Iterator[Problem]:
        """What exists is somewhere, and has its format."""
        if self.already_exists and self.path is None:
            yield Problem("path", "is required for an existing savepoint", "Set path: s3://...")
        if self.already_exists and self.format != "native":
            yield Problem("format", "is for new savepoints", "Remove format")


class CheckpointSource(Model):
    """A checkpoint, which the job takes and deletes."""

    path: StorageUrl | None = Field(default=None, json_schema_extra=REJECT)
    """Path of an existing checkpoint to register. By default a new checkpoint is taken."""


_OTHER_JOB: Final = "jobReference: is immutable. Create another StateSnapshot"
_OTHER_SAVEPOINT: Final = "savepoint: only disposeOnDelete can change. Create another StateSnapshot"
_OTHER_CHECKPOINT: Final = "checkpoint: is immutable. Create another StateSnapshot"


class StateSnapshotSpec(Model):
    """Desired snapshot and the job it belongs to."""

    cel_rules = (
        CelRule("has(self.savepoint) != has(self.checkpoint)", "savepoint: set exactly one of savepoint and checkpoint"),
        CelRule("self.jobReference == oldSelf.jobReference", _OTHER_JOB),
        CelRule(
            "has(self.savepoint) == has(oldSelf.savepoint) && (!has(self.savepoint) ||"
            " (self.savepoint.alreadyExists == oldSelf.savepoint.alreadyExists && self.savepoint.format == oldSelf.savepoint.format"
            " && has(self.savepoint.path) == has(oldSelf.savepoint.path)"
            " && (!has(self.savepoint.path) || self.savepoint.path == oldSelf.savepoint.path)))",
            _OTHER_SAVEPOINT,
        ),
        CelRule(
            "!has(self.checkpoint) || !has(oldSelf.checkpoint) || (has(self.checkpoint.path) == has(oldSelf.checkpoint.path)"
            " && (!has(self.checkpoint.path) || self.checkpoint.path == oldSelf.checkpoint.path))",
            _OTHER_CHECKPOINT,
        ),
    )

    job_reference: JobReference = Field(json_schema_extra=REJECT)
    """The job."""

    savepoint: SavepointSource | None = Field(default=None, json_schema_extra=REJECT)
    """Take a savepoint or register an existing one."""

    checkpoint: CheckpointSource | None = Field(default=None, json_schema_extra=REJECT)
    """Take a checkpoint or register an existing one."""

    backoff_limit: Annotated[WholeNumber, Field(ge=-1, le=1000)] = Field(default=6, json_schema_extra=IGNORE)
    """Number of retries after a failed attempt (at most 1000), with backoff of 10s, 20s, 40s and so on. 0 disables retries; -1 means no
    limit."""

    def refused_change(self, before: StateSnapshotSpec) -> str | None:
        """Why a snapshot of the spec ``before`` cannot become this one, in the words of the rules above; None when it can."""
        if self.job_reference.name != before.job_reference.name:
            return _OTHER_JOB
        if _fixed(self.savepoint) != _fixed(before.savepoint):
            return _OTHER_SAVEPOINT
        return None if _fixed(self.checkpoint) == _fixed(before.checkpoint) else _OTHER_CHECKPOINT

    def conflicts(self) -> Iterator[Problem]:
        """One kind of snapshot."""
        if (self.savepoint is None) == (self.checkpoint is None):
            yield Problem("savepoint", "set exactly one of savepoint and checkpoint", "Write savepoint: {} or checkpoint: {}")


def _fixed(source: SavepointSource | CheckpointSource | None) -> dict[str, object] | None:
    return None if source is None else source.model_dump(exclude={"dispose_on_delete"})


class SnapshotMetadata(Model):
    """Standard object metadata. Other fields that Kubernetes adds are ignored."""

    model_config = ConfigDict(extra="ignore")

    name: ObjectName
    """Name of the snapshot."""

    namespace: ObjectName = "default"
    """Kubernetes namespace."""

    uid: str | None = None
    """UID assigned by Kubernetes."""

    labels: dict[str, str] = Field(default_factory=dict)
    """Labels."""

    annotations: dict[str, str] = Field(default_factory=dict, repr=False)
    """Annotations."""


class StateSnapshot(Resource):
    """One checkpoint or savepoint of a job."""

    api_version: Literal["statefulspark.io/v1alpha1"] = API_VERSION
    """API version."""

    kind: Literal["StateSnapshot"] = SNAPSHOT_KIND
    """StateSnapshot."""

    metadata: SnapshotMetadata
    """Name and labels."""

    spec: StateSnapshotSpec
    """Desired snapshot and the job it belongs to."""
