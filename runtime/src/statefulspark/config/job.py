"""``StatefulSparkJob``: the one resource that describes a job, on this machine and on Kubernetes."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import Field, StringConstraints, model_validator

from statefulspark.config.base import (
    IGNORE,
    REJECT,
    SCALE,
    UPGRADE,
    CelRule,
    Expected,
    Flag,
    Model,
    Nonce,
    ObjectName,
    Resource,
    Text,
    WholeNumber,
    local_only,
    no_server_default,
)
from statefulspark.config.checkpointing import CheckpointingSpec
from statefulspark.config.claim_mode import ClaimMode
from statefulspark.config.jars import JarSpec
from statefulspark.config.memory import JobMemory, job_memory
from statefulspark.config.problems import Problem
from statefulspark.config.resources import DriverSpec, ExecutorSpec
from statefulspark.config.restart import RestartStrategySpec
from statefulspark.config.savepoints import SavepointsSpec
from statefulspark.config.spark_conf_homes import SPARK_CONF_HOMES
from statefulspark.config.state_backend import StateBackendSpec
from statefulspark.config.values.durations import Duration, at_least
from statefulspark.config.values.locations import StorageUrl
from statefulspark.config.values.scalars import ScalarText
from statefulspark.config.values.secret_names import PATTERN, REFERENCES, WAY
from statefulspark.errors import InvalidInputError
from statefulspark.keygroups import MAX_PARALLELISM_LIMIT, default_max_parallelism

API_VERSION: Final = "statefulspark.io/v1alpha1"
KIND: Final = "StatefulSparkJob"

_OBJECT_META_IGNORED = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "managedFields",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
    }
)
"""Fields of a Kubernetes object's metadata that mean nothing to a job."""


class DesiredState(StrEnum):
    """Whether the job should run."""

    RUNNING = "running"
    SUSPENDED = "suspended"


class UpgradeMode(StrEnum):
    """How state gets from the old to the new version of a job."""

    SAVEPOINT = "savepoint"
    LAST_STATE = "last-state"
    STATELESS = "stateless"


class RescaleMode(StrEnum):
    """How the number of slots changes."""

    IN_PLACE = "in-place"
    RESTART = "restart"


class ImagePullPolicy(StrEnum):
    """Kubernetes's image pull policies."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


class Metadata(Model):
    """Name and labels, as in every Kubernetes object."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z]([-a-z0-9]{0,43}[a-z0-9])?$")]
    """Name of the job: lower-case letters, digits and dashes, starts with a letter, at most 45 characters."""

    namespace: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")] = "default"
    """Kubernetes namespace."""

    uid: Text | None = None
    """UID assigned by Kubernetes."""

    labels: dict[str, str] = Field(default_factory=dict)
    """Labels."""

    annotations: dict[str, str] = Field(default_factory=dict, repr=False)
    """Annotations."""

    @model_validator(mode="before")
    @classmethod
    def _without_what_kubernetes_adds(cls, given: Any) -> Any:
        if isinstance(given, dict):
            return {name: value for name, value in given.items() if name not in _OBJECT_META_IGNORED}
        return given


class JobSpec(Model):
    """The program to run."""

    cel_rules = (
        CelRule(
            "has(self.script) != has(self.module)",
            "script: set exactly one of script and module. Write script: my_job.py, or module: my_package.my_job",
        ),
    )

    script: Text | None = Field(default=None, json_schema_extra=UPGRADE)
    """Path of the Python file that contains the entry point. Relative paths are resolved against the manifest's directory, or against
    /opt/job in the image on Kubernetes."""

    module: (
        Annotated[
            str, StringConstraints(max_length=253, pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$"), Expected("a module such as shop.orders")
        ]
        | None
    ) = Field(default=None, json_schema_extra=UPGRADE)
    """Importable Python module that contains the entry point, for example shop.orders."""

    entrypoint: Annotated[str, StringConstraints(max_length=253, pattern=r"^[A-Za-z_]\w*$"), Expected("the name of a Python function")] = (
        Field(default="pipeline", json_schema_extra=UPGRADE)
    )
    """Name of the function that builds the query."""

    args: Annotated[tuple[ScalarText, ...], Field(max_length=1024)] = Field(default=(), repr=False, json_schema_extra=UPGRADE)
    """Arguments passed to the program (at most 1024)."""

    parameters: Annotated[dict[Annotated[str, StringConstraints(min_length=1, max_length=512)], ScalarText], Field(max_length=512)] = Field(
        default_factory=dict, repr=False, json_schema_extra=UPGRADE
    )
    """Global job parameters (at most 512), available in every function through RuntimeContext.get_job_parameter, like Flink's
    pipeline.global-job-parameters. They are stored as plain text: do not put secrets here."""

    py_files: Annotated[tuple[Text, ...], Field(max_length=256)] = Field(default=(), json_schema_extra=UPGRADE)
    """Python files, directories or zip files that slots and executors must be able to import (at most 256). Relative paths are resolved
    like script."""

    jars: Annotated[tuple[JarSpec, ...], Field(max_length=64)] = Field(default=(), json_schema_extra=UPGRADE)
    """Jars on the class path of the driver and the executors (at most 64), for sources, sinks and functions that Spark lacks."""

    def conflicts(self) -> Iterator[Problem]:
        """The program is in one place."""
        if (self.script is None) == (self.module is None):
            yield Problem("script", "set exactly one of script and module", "Write script: my_job.py, or module: my_package.my_job")


class ApiSpec(Model):
    """Address of the driver's REST API under ``statefulspark run``. On Kubernetes the API always listens on port 8480 of the driver pod."""

    host: Text = Field(default="127.0.0.1", json_schema_extra=local_only(IGNORE))
    """Address to listen on."""

    port: Annotated[WholeNumber, Field(ge=0, le=65535)] = Field(default=0, json_schema_extra=local_only(IGNORE))
    """Port (1 to 65535), or 0 to pick a free port."""


class SnapshotReference(Model):
    """Reference to a StateSnapshot."""

    name: ObjectName = Field(json_schema_extra=IGNORE)
    """Name of the StateSnapshot, in the job's namespace."""


class StatefulSparkJobSpec(Model):
    """Desired state of the job."""

    cel_rules = (
        CelRule(
            "!has(self.maxParallelism) || self.parallelism <= self.maxParallelism",
            "parallelism: must not exceed maxParallelism, the number of key groups. Lower parallelism",
        ),
        CelRule(
            "!has(self.executor.instances) || self.executor.instances * self.executor.slots >= self.parallelism",
            "executor.instances: instances * slots is less than parallelism. Raise instances or slots, or remove instances",
        ),
        CelRule(
            f"!has(self.sparkConf) || self.sparkConf.all(name, !(name in {list(SPARK_CONF_HOMES)}))",
            "sparkConf: contains a setting that has its own field in the spec (app name, cores, memory, instances, image, pyFiles). Set the field instead",
        ),
        CelRule(
            "!has(self.sparkConf) || self.sparkConf.all(name, "
            f"!name.matches('(?i)({PATTERN})') || name.startsWith('{REFERENCES[0]}') || name.startsWith('{REFERENCES[1]}'))",
            f"sparkConf: contains a name that Spark treats as a secret (secret, password, token, access key). {WAY}",
        ),
        *(
            CelRule(
                f"has(self.checkpointing.savepointDir) || !({needs})",
                f"{field}: requires a savepoint directory. Set checkpointing.savepointDir",
            )
            for field, needs in (
                ("upgradeMode", "self.upgradeMode == 'savepoint'"),
                ("savepoints.schedule", "has(self.savepoints.schedule)"),
                ("savepointOnDeletion", "self.savepointOnDeletion"),
                ("savepointNonce", "has(self.savepointNonce)"),
            )
        ),
        CelRule(
            "!(has(self.initialSavepointPath) && has(self.initialSnapshot))",
            "initialSnapshot: initialSavepointPath and initialSnapshot are mutually exclusive. Keep one of them",
        ),
        CelRule(
            "self.claimMode == 'NO_CLAIM' || has(self.initialSavepointPath)",
            "claimMode: CLAIM requires initialSavepointPath. A StateSnapshot owns its files, so the job cannot claim initialSnapshot",
        ),
    )

    image: Text | None = Field(default=None, json_schema_extra=UPGRADE)
    """Container image of the driver and the executors (Kubernetes only). Defaults to the operator's job image."""

    image_pull_policy: ImagePullPolicy = Field(default=ImagePullPolicy.IF_NOT_PRESENT, json_schema_extra=UPGRADE)
    """Image pull policy: Always, IfNotPresent or Never."""

    image_pull_secrets: Annotated[tuple[ObjectName, ...], Field(max_length=16)] = Field(default=(), json_schema_extra=UPGRADE)
    """Names of Secrets used to pull the image (at most 16)."""

    spark_version: Annotated[
        str, StringConstraints(max_length=16, pattern=r"^4\.3(\.\d+)?$"), Expected("4.3 or one of its releases, such as 4.3.1")
    ] = Field(default="4.3", json_schema_extra=UPGRADE)
    """Version of Spark in the image: 4.3, or one of its releases, such as 4.3.1."""

    service_account: ObjectName | None = Field(default=None, json_schema_extra=UPGRADE)
    """Kubernetes service account of the driver. By default the operator creates one with the least privileges a driver needs. The
    service account can also grant access to the object store, instead of checkpointing.storage.credentialsSecret."""

    job: JobSpec = Field(json_schema_extra=UPGRADE)
    """The program to run."""

    spark_conf: Annotated[
        dict[Annotated[str, StringConstraints(max_length=512, pattern=r"^spark\.\S+$")], ScalarText], Field(max_length=512)
    ] = Field(default_factory=dict, repr=False, json_schema_extra=UPGRADE)
    """Additional Spark configuration (at most 512 entries). Settings that have their own field in the spec are rejected. spark.master
    only applies to local runs."""

    state: DesiredState = Field(default=DesiredState.RUNNING, json_schema_extra=IGNORE)
    """Desired state of the job: running or suspended. A suspended job is stopped and keeps its state."""

    parallelism: Annotated[WholeNumber, Field(ge=1, le=MAX_PARALLELISM_LIMIT)] = Field(default=1, json_schema_extra=SCALE)
    """Number of slots (1 to maxParallelism)."""

    max_parallelism: Annotated[WholeNumber, Field(ge=1, le=MAX_PARALLELISM_LIMIT)] = Field(
        default_factory=lambda given: default_max_parallelism(given["parallelism"]), json_schema_extra=no_server_default(REJECT)
    )
    """Number of key groups (1 to 32768). Cannot be changed during the job's lifetime. Defaults to Flink's formula (128 for up to 85
    slots)."""

    driver: DriverSpec = Field(default=DriverSpec(), json_schema_extra=UPGRADE)
    """The driver process."""

    executor: ExecutorSpec = Field(default=ExecutorSpec(), json_schema_extra=UPGRADE)
    """The executors."""

    state_backend: StateBackendSpec = Field(default=StateBackendSpec(), json_schema_extra=UPGRADE)
    """State backend of the slots."""

    checkpointing: CheckpointingSpec = Field(json_schema_extra=UPGRADE)
    """Checkpoints of the job."""

    savepoints: SavepointsSpec = Field(default=SavepointsSpec(), json_schema_extra=IGNORE)
    """Savepoints of the job."""

    savepoint_on_deletion: Flag = Field(default=False, json_schema_extra=IGNORE)
    """Take a savepoint before the job is deleted."""

    upgrade_mode: UpgradeMode = Field(default=UpgradeMode.LAST_STATE, json_schema_extra=IGNORE)
    """State that an upgrade resumes from: a new savepoint (savepoint), the latest state in storage (last-state), or none (stateless)."""

    upgrade_timeout: Annotated[Duration, at_least("10s")] = Field(default=600_000, json_schema_extra=IGNORE)
    """Time within which a deployed or upgraded job must be running (minimum 10s). After an upgrade, the job must also complete a
    checkpoint within another upgradeTimeout. Otherwise the deployment or upgrade has failed."""

    rollback: Flag = Field(default=True, json_schema_extra=IGNORE)
    """If an upgrade fails, roll back to the last stable spec and resume from its latest state in storage."""

    last_state_max_checkpoint_age: Annotated[Duration, at_least("1s")] | None = Field(default=None, json_schema_extra=IGNORE)
    """Maximum age of the latest checkpoint for upgradeMode last-state (minimum 1s). If the checkpoint is older, the operator takes a
    savepoint before it stops the job (a checkpoint if savepointDir is not set), and does not upgrade if that fails. Defaults to no
    limit."""

    initial_savepoint_path: StorageUrl | None = Field(default=None, json_schema_extra=IGNORE)
    """Savepoint or checkpoint to restore when the job starts for the first time."""

    initial_snapshot: SnapshotReference | None = Field(default=None, json_schema_extra=IGNORE)
    """StateSnapshot to restore when the job starts for the first time, which forks the other job's state (Kubernetes only)."""

    claim_mode: ClaimMode = Field(default=ClaimMode.NO_CLAIM, json_schema_extra=IGNORE)
    """Owner of the savepoint at initialSavepointPath. With NO_CLAIM it stays the user's. With CLAIM the job deletes it after the
    first checkpoint of its own. The job copies the savepoint before it starts in both modes. Checkpoints cannot be claimed."""

    savepoint_nonce: Nonce | None = Field(default=None, json_schema_extra=IGNORE)
    """Change this number to trigger a savepoint."""

    restart_nonce: Nonce | None = Field(default=None, json_schema_extra=UPGRADE)
    """Change this number to restart the job with its state."""

    allow_non_restored_state: Flag = Field(default=False, json_schema_extra=IGNORE)
    """Allow the job to start if the stored state contains uids, renamed states or source positions that the job no longer has. That
    state is not restored."""

    restart_strategy: RestartStrategySpec = Field(default=RestartStrategySpec(), json_schema_extra=no_server_default(UPGRADE))
    """How the job restarts after a failure. By default, infrastructure failures are retried with exponential backoff, and an error in
    the user's code fails the job immediately, because it would happen again. If set, the strategy applies to every failure."""

    rescale_mode: RescaleMode = Field(default=RescaleMode.IN_PLACE, json_schema_extra=IGNORE)
    """How to rescale: in-place changes the slots of the running driver, restart starts a new driver."""

    api: ApiSpec = Field(default=ApiSpec(), json_schema_extra=local_only(IGNORE))
    """Address on which statefulspark run serves the driver's REST API. On Kubernetes the operator sets it."""

    @property
    def max_parallelism_given(self) -> bool:
        """False when maxParallelism is Flink's default; a stored job's own number wins over it then."""
        return "max_parallelism" in self.model_fields_set

    def memory_plan(self, parallelism: int | None = None) -> JobMemory:
        """Return the memory of all processes; ``parallelism`` instead of the manifest's decides how many executors there are."""
        return job_memory(self.driver, self.executor, self.state_backend, parallelism or self.parallelism)

    def conflicts(self) -> Iterator[Problem]:
        """Slots fit key groups, executors and memory, savepoints have a folder, and Spark settings do not contradict fields."""
        if self.parallelism > self.max_parallelism:
            yield Problem(
                "parallelism",
                f"{self.parallelism} slots cannot share {self.max_parallelism} key groups",
                "Set it to at most maxParallelism",
            )
        instances = self.executor.instances
        if instances is not None and instances * self.executor.slots < self.parallelism:
            yield Problem(
                "executor.instances",
                f"{instances} executors x {self.executor.slots} slots are fewer than parallelism = {self.parallelism}",
                "Raise instances or slots, or remove instances",
            )
        for name in sorted(self.spark_conf.keys() & SPARK_CONF_HOMES.keys()):
            yield Problem(f"sparkConf[{name}]", "has its own field in the spec", f"Set {SPARK_CONF_HOMES[name]} instead")
        if self.initial_savepoint_path is not None and self.initial_snapshot is not None:
            yield Problem("initialSnapshot", "initialSavepointPath and initialSnapshot are mutually exclusive", "Keep one of them")
        if self.claim_mode is ClaimMode.CLAIM and self.initial_savepoint_path is None:
            yield Problem(
                "claimMode",
                "CLAIM requires initialSavepointPath",
                "Set it. A StateSnapshot owns its files, so the job cannot claim initialSnapshot",
            )
        yield from self._savepoint_conflicts()
        try:
            self.memory_plan()
        except InvalidInputError as error:
            yield Problem(error.field or "executor.memory", error.message, error.remedy or "Raise memory")

    def _savepoint_conflicts(self) -> Iterator[Problem]:
        if self.checkpointing.savepoint_dir is not None:
            return
        for field, needs in (
            ("upgradeMode", self.upgrade_mode is UpgradeMode.SAVEPOINT),
            ("savepoints.schedule", self.savepoints.schedule is not None),
            ("savepointOnDeletion", self.savepoint_on_deletion),
            ("savepointNonce", self.savepoint_nonce is not None),
        ):
            if needs:
                yield Problem(field, "requires a savepoint directory", "Set checkpointing.savepointDir")


class StatefulSparkJob(Resource):
    """A stateful PySpark job."""

    api_version: Literal["statefulspark.io/v1alpha1"] = API_VERSION
    """API version."""

    kind: Literal["StatefulSparkJob"] = KIND
    """StatefulSparkJob."""

    metadata: Metadata
    """Name and labels."""

    spec: StatefulSparkJobSpec
    """Desired state of the job."""

    @property
    def job_id(self) -> str:
        """Name of the job's directory: Kubernetes' uid of the object, so a new object of the same name does not take over old state."""
        return self.metadata.uid or self.metadata.name
