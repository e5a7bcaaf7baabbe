"""``StatefulSparkJob``: the one resource that describes a job, on this machine and on Kubernetes."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import Field, StringConstraints, model_validator

from statefulspark.config.base import IGNORE, REJECT, SCALE, UPGRADE, Flag, Model, ObjectName, Text, WholeNumber
from statefulspark.config.checkpointing import CheckpointingSpec
from statefulspark.config.locations import StorageUrl
from statefulspark.config.problems import Problem
from statefulspark.config.resources import DriverSpec, ExecutorSpec
from statefulspark.config.restart import RestartStrategySpec
from statefulspark.config.savepoints import SavepointsSpec
from statefulspark.config.scalars import ScalarText
from statefulspark.config.state_backend import StateBackendSpec
from statefulspark.keygroups import MAX_PARALLELISM_LIMIT, default_max_parallelism

API_VERSION: Final = "statefulspark.io/v1alpha1"
KIND: Final = "StatefulSparkJob"

SPARK_CONF_HOMES = {
    "spark.app.name": "metadata.name",
    "spark.driver.cores": "spec.driver.cores",
    "spark.driver.memory": "spec.driver.memory",
    "spark.executor.cores": "spec.executor.slots and spec.executor.exchangeTasks",
    "spark.executor.instances": "spec.executor.instances",
    "spark.executor.memory": "spec.executor.memory",
    "spark.kubernetes.container.image": "spec.image",
    "spark.kubernetes.container.image.pullPolicy": "spec.imagePullPolicy",
    "spark.submit.pyFiles": "spec.job.pyFiles",
    "spark.task.cpus": "spec.executor.slots",
}
"""Spark settings that the spec has a field for, and the field."""

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
    """Identity that Kubernetes gives the object."""

    labels: dict[str, str] = Field(default_factory=dict)
    """Labels for selecting."""

    annotations: dict[str, str] = Field(default_factory=dict, repr=False)
    """Notes of other tools."""

    @model_validator(mode="before")
    @classmethod
    def _without_what_kubernetes_adds(cls, given: Any) -> Any:
        if isinstance(given, dict):
            return {name: value for name, value in given.items() if name not in _OBJECT_META_IGNORED}
        return given


class JobSpec(Model):
    """The program."""

    script: Text | None = Field(default=None, json_schema_extra=UPGRADE)
    """Path of the Python file with the entry point; a relative one is looked for beside the manifest."""

    module: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")] | None = Field(
        default=None, json_schema_extra=UPGRADE
    )
    """Importable Python module with the entry point, for example shop.orders."""

    entrypoint: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*$")] = Field(default="pipeline", json_schema_extra=UPGRADE)
    """Name of the function that builds the query."""

    args: tuple[ScalarText, ...] = Field(default=(), repr=False, json_schema_extra=UPGRADE)
    """Arguments of the program."""

    py_files: tuple[Text, ...] = Field(default=(), json_schema_extra=UPGRADE)
    """Python files, folders or zip files that slots and executors need to import; relative ones are looked for beside the manifest."""

    def conflicts(self) -> Iterator[Problem]:
        """The program is in one place."""
        if (self.script is None) == (self.module is None):
            yield Problem("script", "give exactly one of script and module", "Write script: my_job.py, or module: my_package.my_job")


class ApiSpec(Model):
    """The driver's REST API."""

    host: Text = Field(default="127.0.0.1", json_schema_extra=UPGRADE)
    """Address that the API listens on; on Kubernetes the pod's own."""

    port: Annotated[WholeNumber, Field(ge=0, le=65535)] = Field(default=8480, json_schema_extra=UPGRADE)
    """Port of the API, 1 .. 65535; 0 takes any free one."""

    token_secret: ObjectName | None = Field(default=None, json_schema_extra=UPGRADE)
    """Kubernetes Secret with the bearer token under the key token; one is made when not given."""


class StatefulSparkJobSpec(Model):
    """What should run, and how."""

    image: Text | None = Field(default=None, json_schema_extra=UPGRADE)
    """Container image of driver and executors; only for Kubernetes."""

    image_pull_policy: ImagePullPolicy = Field(default=ImagePullPolicy.IF_NOT_PRESENT, json_schema_extra=UPGRADE)
    """When the image is pulled: Always, IfNotPresent or Never."""

    spark_version: Annotated[str, StringConstraints(pattern=r"^4\.3(\.\d+)?$")] = Field(default="4.3", json_schema_extra=UPGRADE)
    """Version of Spark in the image."""

    service_account: ObjectName | None = Field(default=None, json_schema_extra=UPGRADE)
    """Kubernetes service account of driver and executors; one is made when not given."""

    job: JobSpec = Field(json_schema_extra=UPGRADE)
    """The program."""

    spark_conf: dict[Annotated[str, StringConstraints(pattern=r"^spark\.\S+$")], ScalarText] = Field(
        default_factory=dict, repr=False, json_schema_extra=UPGRADE
    )
    """Further settings of Spark; those that the spec has a field for are refused."""

    state: DesiredState = Field(default=DesiredState.RUNNING, json_schema_extra=IGNORE)
    """running, or suspended: stopped with its state kept."""

    parallelism: Annotated[WholeNumber, Field(ge=1, le=MAX_PARALLELISM_LIMIT)] = Field(default=1, json_schema_extra=SCALE)
    """Number of slots, 1 .. maxParallelism."""

    max_parallelism: Annotated[WholeNumber, Field(ge=1, le=MAX_PARALLELISM_LIMIT)] = Field(
        default_factory=lambda given: default_max_parallelism(given["parallelism"]), json_schema_extra=REJECT
    )
    """Number of key groups, 1 .. 32768, fixed for the job's life; Flink's formula when not given (128 for up to 85 slots)."""

    driver: DriverSpec = Field(default=DriverSpec(), json_schema_extra=UPGRADE)
    """The driver process."""

    executor: ExecutorSpec = Field(default=ExecutorSpec(), json_schema_extra=UPGRADE)
    """The executors."""

    state_backend: StateBackendSpec = Field(default=StateBackendSpec(), json_schema_extra=UPGRADE)
    """Where slots keep their state."""

    checkpointing: CheckpointingSpec = Field(json_schema_extra=UPGRADE)
    """Checkpoints of the job."""

    savepoints: SavepointsSpec = Field(default=SavepointsSpec(), json_schema_extra=IGNORE)
    """Savepoints of the job."""

    savepoint_on_deletion: Flag = Field(default=False, json_schema_extra=IGNORE)
    """Take a savepoint before the job is deleted."""

    upgrade_mode: UpgradeMode = Field(default=UpgradeMode.LAST_STATE, json_schema_extra=IGNORE)
    """Where an upgrade takes its state from: a new savepoint, the last state in storage, or nowhere (stateless)."""

    initial_savepoint_path: StorageUrl | None = Field(default=None, json_schema_extra=IGNORE)
    """Savepoint or checkpoint that the job starts from when it runs for the first time."""

    savepoint_nonce: WholeNumber | None = Field(default=None, json_schema_extra=IGNORE)
    """A new number here takes one savepoint."""

    restart_nonce: WholeNumber | None = Field(default=None, json_schema_extra=UPGRADE)
    """A new number here restarts the job with its state."""

    allow_non_restored_state: Flag = Field(default=False, json_schema_extra=IGNORE)
    """Start even when the stored state holds uids that the job no longer has; their state is dropped."""

    restart_strategy: RestartStrategySpec = Field(default=RestartStrategySpec(), json_schema_extra=IGNORE)
    """What follows a failure of the job."""

    rescale_mode: RescaleMode = Field(default=RescaleMode.IN_PLACE, json_schema_extra=IGNORE)
    """in-place changes the slots inside the running driver, restart starts a new driver."""

    api: ApiSpec = Field(default=ApiSpec(), json_schema_extra=UPGRADE)
    """The driver's REST API."""

    @property
    def max_parallelism_given(self) -> bool:
        """False when maxParallelism is Flink's default; a stored job's own number wins over it then."""
        return "max_parallelism" in self.model_fields_set

    def conflicts(self) -> Iterator[Problem]:
        """Slots fit key groups and executors, savepoints have a folder, and Spark settings do not contradict fields."""
        if self.parallelism > self.max_parallelism:
            yield Problem(
                "parallelism",
                f"{self.parallelism} slots cannot share {self.max_parallelism} key groups",
                "Keep it at or below maxParallelism",
            )
        instances = self.executor.instances
        if instances is not None and instances * self.executor.slots < self.parallelism:
            yield Problem(
                "executor.instances",
                f"{instances} executors x {self.executor.slots} slots are fewer than parallelism = {self.parallelism}",
                "Raise instances or slots, or remove instances",
            )
        for name in sorted(self.spark_conf.keys() & SPARK_CONF_HOMES.keys()):
            yield Problem(f"sparkConf[{name}]", "has a field of its own", f"Set {SPARK_CONF_HOMES[name]} instead")
        yield from self._savepoint_conflicts()

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
                yield Problem(field, "needs a folder for savepoints", "Set checkpointing.savepointDir")


class StatefulSparkJob(Model):
    """A stateful PySpark job."""

    api_version: Literal["statefulspark.io/v1alpha1"] = API_VERSION
    """Version of this format."""

    kind: Literal["StatefulSparkJob"] = KIND
    """StatefulSparkJob."""

    metadata: Metadata
    """Name and labels."""

    spec: StatefulSparkJobSpec
    """What should run, and how."""

    @model_validator(mode="before")
    @classmethod
    def _without_status(cls, given: Any) -> Any:
        """Objects read from Kubernetes carry a status, which is written by the operator and never an input."""
        if isinstance(given, dict):
            return {name: value for name, value in given.items() if name != "status"}
        return given
