"""When checkpoints are taken, where they are stored and how long they are kept. Names and defaults are Flink's."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from statefulspark.config.base import IGNORE, UPGRADE, CelRule, Expected, Flag, Model, ObjectName, Text, WholeNumber, local_only
from statefulspark.config.problems import Problem
from statefulspark.config.s3 import S3Spec
from statefulspark.config.values.durations import Duration, at_least
from statefulspark.config.values.locations import StorageUrl, check_endpoint, check_mounted
from statefulspark.config.values.sizes import ByteSize, between


class CheckpointingMode(StrEnum):
    """What a row's effect on state is guaranteed to be after a failure."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


class OnCancellation(StrEnum):
    """What happens to checkpoints when the job is cancelled."""

    RETAIN = "RETAIN"
    DELETE = "DELETE"


class RetentionSpec(Model):
    """Retention of completed checkpoints."""

    cel_rules = (
        CelRule(
            "!has(self.maxAge) || self.count > 1",
            "maxAge: has no effect if count is 1, because the newest checkpoint is always retained. Set count to 2 or more",
        ),
    )

    count: Annotated[WholeNumber, Field(ge=1, le=1000)] = Field(default=1, json_schema_extra=UPGRADE)
    """Number of completed checkpoints to retain (1 to 1000). The oldest are deleted first."""

    max_age: Annotated[Duration, at_least("1s")] | None = Field(default=None, json_schema_extra=UPGRADE)
    """Maximum age of completed checkpoints (minimum 1s). Older ones are deleted, also while the job is idle, except the newest one.
    count still limits their number, and must be above 1. Defaults to no limit."""

    on_cancellation: OnCancellation = Field(default=OnCancellation.RETAIN, json_schema_extra=UPGRADE)
    """Whether to keep (RETAIN) or delete (DELETE) checkpoints and changelogs when the job is canceled: by statefulspark cancel, or on Kubernetes
    by deleting the resource without savepointOnDeletion. Savepoints are always kept."""

    listed: Annotated[WholeNumber, Field(ge=0, le=100)] | None = Field(default=None, json_schema_extra=IGNORE)
    """Number of retained checkpoints that have a StateSnapshot object, newest first (0 to 100, Kubernetes only). Defaults to 0 if count
    is 1, because the next checkpoint replaces it and status.lastCheckpoint shows it, and otherwise to at most 3. The operator creates at
    most one object per job every 30 s, so not every checkpoint gets one if checkpoints are more frequent."""

    @property
    def listed_count(self) -> int:
        """Number of objects, the default worked out."""
        if self.listed is not None:
            return min(self.listed, self.count)
        return 0 if self.count == 1 else min(self.count, 3)

    def conflicts(self) -> Iterator[Problem]:
        """The newest checkpoint has no maximum age."""
        if self.max_age is not None and self.count == 1:
            yield Problem(
                "maxAge", "has no effect if count is 1, because the newest checkpoint is always retained", "Set count to 2 or more"
            )


class CaBundleKey(Model):
    """Key of a Secret or ConfigMap."""

    name: ObjectName = Field(json_schema_extra=UPGRADE)
    """Name of the object in the job's namespace."""

    key: Annotated[str, Field(pattern=r"^[-._a-zA-Z0-9]+$", max_length=253), Expected("a key such as ca.crt")] = Field(
        default="ca.crt", json_schema_extra=UPGRADE
    )
    """Key that contains the PEM certificates."""


class CaBundleSource(Model):
    """Source of the certificate authorities: a Secret or a ConfigMap."""

    cel_rules = (
        CelRule(
            "has(self.secretKeyRef) != has(self.configMapKeyRef)",
            "secretKeyRef: set exactly one of secretKeyRef and configMapKeyRef",
        ),
    )

    secret_key_ref: CaBundleKey | None = Field(default=None, json_schema_extra=UPGRADE)
    """Key of a Secret."""

    config_map_key_ref: CaBundleKey | None = Field(default=None, json_schema_extra=UPGRADE)
    """Key of a ConfigMap."""

    def conflicts(self) -> Iterator[Problem]:
        """Exactly one of the two."""
        if (self.secret_key_ref is None) == (self.config_map_key_ref is None):
            yield Problem("secretKeyRef", "set exactly one of secretKeyRef and configMapKeyRef", "Remove the other one")


class StorageSpec(Model):
    """Access to the object store. What is not set comes from the environment or the identity of the pods. Not used for file://."""

    endpoint: Annotated[Text, AfterValidator(check_endpoint)] | None = Field(default=None, json_schema_extra=UPGRADE)
    """Base URL of the service, for example http://minio:9000. For abfss:// it ends with the account's name if the service wants it there. Defaults
    to AWS, Google Cloud or Azure. gs:// sends no credentials to an endpoint that starts with http://."""

    region: Text | None = Field(default=None, json_schema_extra=UPGRADE)
    """Region of the bucket, for example eu-central-1 (s3:// only)."""

    path_style: Flag | None = Field(default=None, json_schema_extra=UPGRADE)
    """True to address buckets as endpoint/bucket, false for bucket.endpoint. Defaults to true if endpoint is set."""

    access_key_id: Text | None = Field(default=None, repr=False, json_schema_extra=local_only(UPGRADE))
    """Access key ID (local runs only). On Kubernetes use credentialsSecret or a service account."""

    secret_access_key: SecretStr | None = Field(default=None, repr=False, json_schema_extra=local_only(UPGRADE))
    """Secret access key (local runs only). On Kubernetes use credentialsSecret or a service account."""

    session_token: SecretStr | None = Field(default=None, repr=False, json_schema_extra=local_only(UPGRADE))
    """Session token of temporary credentials (local runs only). On Kubernetes use credentialsSecret or a service account."""

    credentials_secret: ObjectName | None = Field(default=None, json_schema_extra=UPGRADE)
    """Kubernetes Secret. For s3://, it has the keys AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and AWS_SESSION_TOKEN for temporary credentials;
    for gs://, GOOGLE_CREDENTIALS (a service account's JSON key); for abfss://, AZURE_STORAGE_KEY (an account key); for hdfs://, none. Defaults to the identity of the
    service account or the standard credential chain of the store. A changed Secret takes effect without a restart for s3://. For local
    runs, set the environment variables of the same names."""

    ca_bundle: Text | None = Field(default=None, json_schema_extra=local_only(UPGRADE))
    """Path of a PEM file with the certificate authorities to trust for endpoint (local runs only). The file must exist on every machine.
    On Kubernetes use caBundleFrom."""

    ca_bundle_from: CaBundleSource | None = Field(default=None, json_schema_extra=UPGRADE)
    """Secret or ConfigMap key with the PEM certificates of the authorities to trust for endpoint. It is mounted into the driver and all
    executors. For local runs, use caBundle or the environment variable AWS_CA_BUNDLE."""

    s3: S3Spec = Field(default=S3Spec(), json_schema_extra=UPGRADE)
    """Settings for written objects: encryption, checksum, storage class and tags."""

    def conflicts(self) -> Iterator[Problem]:
        """Keys come whole and from one place."""
        if (self.access_key_id is None) != (self.secret_access_key is None):
            missing = "accessKeyId" if self.access_key_id is None else "secretAccessKey"
            yield Problem(
                missing,
                "accessKeyId and secretAccessKey must be set together",
                "Set both, or neither to use the AWS default credential chain",
            )
        if self.session_token is not None and self.access_key_id is None:
            yield Problem("sessionToken", "needs accessKeyId and secretAccessKey", "Set all three")
        if self.ca_bundle is not None and self.ca_bundle_from is not None:
            yield Problem(
                "caBundleFrom", "caBundle and caBundleFrom are mutually exclusive", "Keep caBundleFrom on Kubernetes, else caBundle"
            )
        if self.credentials_secret is not None and self.access_key_id is not None:
            yield Problem("credentialsSecret", "accessKeyId and credentialsSecret are mutually exclusive", "Keep credentialsSecret only")


class CheckpointingSpec(Model):
    """Checkpoints of the job."""

    cel_rules = (
        CelRule(
            "self.maxConcurrent == 1",
            "maxConcurrent: one checkpoint is taken at a time. Set maxConcurrent: 1",
        ),
    )

    mode: CheckpointingMode = Field(default=CheckpointingMode.EXACTLY_ONCE, json_schema_extra=UPGRADE)
    """Processing guarantee. exactly-once uploads what each batch changes before the batch is committed. at-least-once does not; after a failure the job
    goes back to its last checkpoint, and output since then is repeated under new batch numbers. State is exact in both modes. Spark's own stateful operators need
    exactly-once."""

    interval: Annotated[Duration, at_least("10ms")] = Field(default=60_000, json_schema_extra=UPGRADE)
    """Time between the starts of two checkpoints (minimum 10ms)."""

    min_pause: Duration = Field(default=0, json_schema_extra=UPGRADE)
    """Minimum pause between the end of a checkpoint and the start of the next."""

    timeout: Annotated[Duration, at_least("1s")] = Field(default=600_000, json_schema_extra=UPGRADE)
    """Checkpoint timeout (minimum 1s). A checkpoint that takes longer is aborted."""

    max_concurrent: Annotated[WholeNumber, Field(ge=1, le=100)] = Field(default=1, json_schema_extra=UPGRADE)
    """Maximum number of concurrent checkpoints. Must be 1. The field exists for compatibility with Flink's configuration."""

    incremental: Flag = Field(default=True, json_schema_extra=UPGRADE)
    """True to name files that an earlier checkpoint has uploaded, as only RocksDB can; savepoints copy them inside the storage where possible.
    If false, each checkpoint and savepoint uploads all of its files."""

    changelog_inline_threshold: Annotated[ByteSize, between("0", "1Mi")] = Field(default=0, json_schema_extra=UPGRADE)
    """Largest changelog that a slot sends to the driver instead of storing it (0 to 1Mi). The driver stores those of all slots and keyed steps in one
    object per batch, which saves requests to the storage. Larger changelogs are one object each. Releases without this field refuse state that was
    written with it. Defaults to 0, which stores each changelog as an object of its own."""

    restore_threads: Annotated[WholeNumber, Field(ge=1, le=32)] = Field(default=8, json_schema_extra=UPGRADE)
    """Number of files that each slot downloads at the same time when it restores (1 to 32). More restores faster from an object store far away, and
    uses more connections: a file of more than 128Mi is downloaded from S3 in up to 4 parts at once. Defaults to 8."""

    tolerable_failures: Annotated[WholeNumber, Field(ge=0, le=1_000_000)] = Field(default=0, json_schema_extra=UPGRADE)
    """Number of consecutive checkpoint failures to tolerate (0 to 1000000). If more fail, the query fails and the restart strategy
    applies."""

    dir: StorageUrl = Field(json_schema_extra=UPGRADE)
    """URL of the checkpoint directory, file:///..., s3://bucket/prefix, gs://bucket/prefix,
    abfss://container@account.dfs.core.windows.net/prefix or hdfs://namenode:8020/folder. Each job gets its own subdirectory."""

    savepoint_dir: StorageUrl | None = Field(default=None, json_schema_extra=IGNORE)
    """URL of the savepoint directory, file:///..., s3://bucket/prefix, gs://bucket/prefix,
    abfss://container@account.dfs.core.windows.net/prefix or hdfs://namenode:8020/folder."""

    spark_location: Annotated[StorageUrl, AfterValidator(check_mounted)] | None = Field(default=None, json_schema_extra=UPGRADE)
    """Directory (file:///...) that is mounted in the driver and all executors, for the working files of Spark's own stateful operators.
    Only needed if the query has such operators and the executors do not share the driver's disk."""

    retention: RetentionSpec = Field(default=RetentionSpec(), json_schema_extra=UPGRADE)
    """Retention of completed checkpoints."""

    storage: StorageSpec = Field(default=StorageSpec(), json_schema_extra=UPGRADE)
    """Access to the object store of dir and savepointDir."""

    @property
    def credential_schemes(self) -> tuple[str, ...]:
        """Schemes of the object stores for which ``storage.credentials_secret`` has keys, sorted: those of dir and savepointDir, or else s3."""
        named = {urlsplit(each).scheme for each in (self.dir, self.savepoint_dir) if each is not None}
        return tuple(sorted(named - {"file"})) or ("s3",)

    def conflicts(self) -> Iterator[Problem]:
        """One checkpoint is taken at a time: a second one would hold what batches commit still longer."""
        if self.max_concurrent > 1:
            yield Problem("maxConcurrent", "one checkpoint is taken at a time", "Set maxConcurrent: 1")
