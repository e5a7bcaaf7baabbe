"""When checkpoints are taken, where they are stored and how long they are kept. Names and defaults are Flink's."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from statefulspark.config.base import IGNORE, UPGRADE, CelRule, Flag, Model, ObjectName, Text, WholeNumber, local_only
from statefulspark.config.durations import Duration, at_least
from statefulspark.config.locations import StorageUrl, check_endpoint, check_mounted
from statefulspark.config.problems import Problem


class CheckpointingMode(StrEnum):
    """What a row's effect on state is guaranteed to be after a failure."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


class OnCancellation(StrEnum):
    """What happens to checkpoints when the job is cancelled."""

    RETAIN = "RETAIN"
    DELETE = "DELETE"


class RetentionSpec(Model):
    """Which checkpoints are kept."""

    count: Annotated[WholeNumber, Field(ge=1, le=1000)] = Field(default=1, json_schema_extra=UPGRADE)
    """Number of completed checkpoints kept, newest first, 1 .. 1000."""

    on_cancellation: OnCancellation = Field(default=OnCancellation.RETAIN, json_schema_extra=UPGRADE)
    """RETAIN keeps the checkpoints when the job is cancelled, DELETE removes them."""

    listed: Annotated[WholeNumber, Field(ge=0, le=100)] | None = Field(default=None, json_schema_extra=IGNORE)
    """On Kubernetes, number of kept checkpoints that have a StateSnapshot object, newest first, 0 .. 100; 0 for none. When not given: none
    if count is 1, since that one is gone with the next and status.lastCheckpoint tells it, else up to 3. A job gets a new object at most
    every 30 s, so of checkpoints that come faster only some have one."""

    @property
    def listed_count(self) -> int:
        """Number of objects, the default worked out."""
        if self.listed is not None:
            return min(self.listed, self.count)
        return 0 if self.count == 1 else min(self.count, 3)


class StorageSpec(Model):
    """How to reach an S3-compatible store. What is not given comes from the usual AWS places; file:// needs nothing."""

    endpoint: Annotated[Text, AfterValidator(check_endpoint)] | None = Field(default=None, json_schema_extra=UPGRADE)
    """Base URL of an S3-compatible service, for example http://minio:9000; AWS when not given."""

    region: Text | None = Field(default=None, json_schema_extra=UPGRADE)
    """Region of the bucket, for example eu-central-1."""

    path_style: Flag | None = Field(default=None, json_schema_extra=UPGRADE)
    """True addresses buckets as endpoint/bucket, false as bucket.endpoint; true by default when endpoint is given."""

    access_key_id: Text | None = Field(default=None, repr=False, json_schema_extra=local_only(UPGRADE))
    """Access key; not on Kubernetes, where it comes from credentialsSecret or a service account."""

    secret_access_key: SecretStr | None = Field(default=None, repr=False, json_schema_extra=local_only(UPGRADE))
    """Secret of the access key; not on Kubernetes, where it comes from credentialsSecret or a service account."""

    session_token: SecretStr | None = Field(default=None, repr=False, json_schema_extra=local_only(UPGRADE))
    """Token of temporary credentials; not on Kubernetes, where it comes from credentialsSecret or a service account."""

    credentials_secret: ObjectName | None = Field(default=None, json_schema_extra=UPGRADE)
    """Kubernetes Secret with the keys AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and AWS_SESSION_TOKEN if temporary; when not given, the
    service account's identity or what else AWS's tools find. On this machine the variables of the same names take its place."""

    ca_bundle: Text | None = Field(default=None, json_schema_extra=UPGRADE)
    """Path of a PEM file with the authorities to trust for endpoint; must exist in every process, on Kubernetes in the image or mounted by
    the pod templates."""

    def conflicts(self) -> Iterator[Problem]:
        """Keys come whole and from one place."""
        if (self.access_key_id is None) != (self.secret_access_key is None):
            missing = "accessKeyId" if self.access_key_id is None else "secretAccessKey"
            yield Problem(missing, "accessKeyId and secretAccessKey go together", "Give both, or none to use the usual AWS ways")
        if self.session_token is not None and self.access_key_id is None:
            yield Problem("sessionToken", "needs accessKeyId and secretAccessKey", "Give all three")
        if self.credentials_secret is not None and self.access_key_id is not None:
            yield Problem("credentialsSecret", "accessKeyId and credentialsSecret exclude each other", "Keep credentialsSecret only")


class CheckpointingSpec(Model):
    """Checkpoints of the job."""

    cel_rules = (
        CelRule(
            "self.maxConcurrent == 1",
            "maxConcurrent: one checkpoint is taken at a time. Set maxConcurrent: 1",
        ),
    )

    mode: CheckpointingMode = Field(default=CheckpointingMode.EXACTLY_ONCE, json_schema_extra=UPGRADE)
    """exactly-once stores the changes of each batch; at-least-once goes back to the last checkpoint after a failure."""

    interval: Annotated[Duration, at_least("10ms")] = Field(default=60_000, json_schema_extra=UPGRADE)
    """Time between the starts of two checkpoints, at least 10ms."""

    min_pause: Duration = Field(default=0, json_schema_extra=UPGRADE)
    """Least time between the end of a checkpoint and the start of the next."""

    timeout: Annotated[Duration, at_least("1s")] = Field(default=600_000, json_schema_extra=UPGRADE)
    """A checkpoint that takes longer is given up, at least 1s."""

    max_concurrent: Annotated[WholeNumber, Field(ge=1, le=100)] = Field(default=1, json_schema_extra=UPGRADE)
    """Number of checkpoints that may be under way at the same time: 1. The field is Flink's, so that its configurations can be taken over."""

    tolerable_failures: Annotated[WholeNumber, Field(ge=0, le=1_000_000)] = Field(default=0, json_schema_extra=UPGRADE)
    """Checkpoints in a row that may fail; one more fails the query and the restart strategy decides, 0 .. 1000000."""

    dir: StorageUrl = Field(json_schema_extra=UPGRADE)
    """Folder of the checkpoints, file:///... or s3://bucket/prefix; each job has its own folder below it."""

    savepoint_dir: StorageUrl | None = Field(default=None, json_schema_extra=IGNORE)
    """Folder of the savepoints, file:///... or s3://bucket/prefix."""

    spark_location: Annotated[StorageUrl, AfterValidator(check_mounted)] | None = Field(default=None, json_schema_extra=UPGRADE)
    """Folder mounted in the driver and all executors, file:///..., where Spark's own stateful steps keep their files while the job
    runs; needed for such steps only, and only where executors do not share the driver's disk."""

    retention: RetentionSpec = Field(default=RetentionSpec(), json_schema_extra=UPGRADE)
    """Which checkpoints are kept."""

    storage: StorageSpec = Field(default=StorageSpec(), json_schema_extra=UPGRADE)
    """How to reach the store of dir and savepointDir."""

    def conflicts(self) -> Iterator[Problem]:
        """One checkpoint is taken at a time: a second one would hold what batches commit still longer."""
        if self.max_concurrent > 1:
            yield Problem("maxConcurrent", "one checkpoint is taken at a time", "Set maxConcurrent: 1")
