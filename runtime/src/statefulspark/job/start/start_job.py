"""Starts a job: validates everything that can be validated, claims an attempt, restores the state, and starts slots and query.

A running job is not affected until the pipeline has been built and fits the stored state: claiming the attempt, which fences an
older driver, comes last.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import structlog
from pyspark.sql import SparkSession

from statefulspark.checkpoint.catalog import damaged_checkpoints
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.pipeline import Pipeline as StoredPipeline
from statefulspark.checkpoint.lineage.identity import ensure_job
from statefulspark.checkpoint.lineage.lineage import Lineage, begin_attempt, has_state
from statefulspark.checkpoint.spark.location import LocationFiles
from statefulspark.checkpoint.spark.state_uploader import SparkStateUploader
from statefulspark.config.claim_mode import ClaimMode
from statefulspark.config.job import StatefulSparkJob
from statefulspark.config.kubernetes.pods import STORAGE_LOCATIONS_VARIABLE, TLS_FOLDER_VARIABLE
from statefulspark.coordinator.coordinator import Coordinator, Listen
from statefulspark.coordinator.durable.durable_job import DurableJob
from statefulspark.coordinator.durable.recovery import batch_log, recovered_batch, restore_location, restore_spark_state, state_registry
from statefulspark.coordinator.durable.returns import returns_at_start
from statefulspark.coordinator.durable.spark_location import SparkLocation
from statefulspark.coordinator.snapshots.pending import CheckpointTimes
from statefulspark.errors import CorruptDataError, InvalidInputError
from statefulspark.exchange.config import SlotConfig, SlotLogs
from statefulspark.exchange.endpoint import Endpoint
from statefulspark.exchange.rocksdb_choice import RocksDBChoice
from statefulspark.job.history.recorder import HistoryRecorder
from statefulspark.job.history.storing import StoredHistory
from statefulspark.job.metrics.native import check_native_metrics
from statefulspark.job.run.running import RunningJob
from statefulspark.job.spark.checkpoint_location import open_location, remove_location
from statefulspark.job.spark.query_plan import shares_disk
from statefulspark.job.spark.session import check_spark_version, is_local, open_session, parallelism_max
from statefulspark.job.start.checked_pipeline import checked_pipeline
from statefulspark.job.start.interactive import Interactive
from statefulspark.job.start.manifest_settings import durable_options, memory_tuner, restart_strategy, slot_options, storage_settings
from statefulspark.job.start.new_slots import new_slots
from statefulspark.job.start.options_factory import rocksdb_choice
from statefulspark.job.start.own_backend import own_backend_options
from statefulspark.job.start.pipeline_builder import PipelineBuilder
from statefulspark.job.start.preflight import choose_max_parallelism, restorable_state
from statefulspark.job.start.run_settings import RunSettings
from statefulspark.job.start.stored_pipeline import hashings
from statefulspark.pipeline.first_build import printing_once
from statefulspark.pipeline.job import Job
from statefulspark.pipeline.script import Pipeline, load_pipeline, python_path
from statefulspark.process.rows.step_spec import StepSpec, idle_afters_ms, steps_before, watermark_columns
from statefulspark.process.runner.checkpointed_functions import is_checkpointed
from statefulspark.rpc.certificates import CertificateFolder
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.local.os_errors import local_disk
from statefulspark.storage.local.private_folder import check_private, make_private
from statefulspark.storage.open import check_reachable, open_store

_log = structlog.get_logger("statefulspark.start")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Command-line options that complement the manifest."""

    parallelism: int | None = None
    """Instead of the manifest's."""
    restore_from: str | None = None
    """URL of a checkpoint or savepoint to start from, instead of the job's own latest state."""
    claim_mode: ClaimMode | None = None
    """Instead of the manifest's."""
    until_idle: bool = False
    """Stop with a checkpoint when the sources have nothing more."""
    drain: bool = False
    """With ``until_idle``: fire every event-time timer before that."""
    master: str | None = None
    """Spark master instead of the manifest's or an embedded one."""
    spark_output: int | None = None
    """Descriptor of the file that Spark's JVM writes its log and output to; None leaves them on this process's stderr and stdout."""
    slot_logs: SlotLogs = field(default_factory=SlotLogs)
    """Level and destination of the slots' log records."""
    shared_dir: bool = False
    """Take a folder on this machine that other users own or may write."""
    interactive: Interactive | None = None
    """For a job in a notebook, on the user's session."""


def start_job(manifest: StatefulSparkJob, options: RunOptions) -> RunningJob:
    """Start a job in this process.

    Raises:
        InvalidInputError: the manifest, the code or the options are wrong; nothing was touched.
        NotRestorableError: the state that is there does not fit the job; nothing was touched.
        UnavailableError: storage does not answer.
        CorruptDataError: the state is damaged; the text names the file and what to do.
    """
    parallelism = _parallelism(manifest, options)
    check_native_metrics(manifest)
    check_spark_version(manifest)
    interactive = options.interactive
    pipeline = printing_once(load_pipeline(manifest)) if interactive is None else interactive.pipeline
    rocksdb = rocksdb_choice(manifest)
    own_backend = own_backend_options(manifest)
    settings = storage_settings(manifest)
    job_id = manifest.job_id

    def opened(url: str) -> ObjectStore:
        return open_store(url, settings)

    store = opened(paths.url_of(manifest.spec.checkpointing.dir, job_id))
    private = _private_folder(manifest, options)
    if private is not None:
        check_private(private)
    check_reachable(opened(manifest.spec.checkpointing.dir))  # not the job's folder: a job that is refused leaves none
    origin = options.restore_from or _initial_savepoint(manifest, store)
    claims = origin is not None and (options.claim_mode or manifest.spec.claim_mode) is ClaimMode.CLAIM
    restorable = restorable_state(store, origin, opened, claims=claims)
    max_parallelism = choose_max_parallelism(manifest, parallelism, restorable)
    for warning in manifest.spec.memory_plan(parallelism).warnings:
        _log.warning("memory", warning=warning)
    if interactive is None:
        spark = open_session(manifest, options.master, parallelism, continued=restorable.continued, output=options.spark_output)
    else:
        spark = interactive.session
    try:
        certificates = _certificates(str(spark.sparkContext.master))
        trial = PipelineBuilder(
            spark, manifest, pipeline, max_parallelism, Endpoint(location="grpc+unix:///", secret=""), hashings(restorable)
        )
        checked = checked_pipeline(spark, manifest, store, restorable, trial.build(parallelism), from_origin=origin is not None)
        if private is not None:
            make_private(private)
        ensure_job(store, manifest.metadata.name, max_parallelism)
        lineage = begin_attempt(
            store,
            now_ms=_now_ms(),
            origin=origin,
            open_store=opened,
            damaged=damaged_checkpoints(store),
            sink_batch=checked.sink_batch,
            claim_origin=claims,
        )
        start = _Start(
            manifest,
            options,
            spark,
            pipeline,
            rocksdb,
            own_backend,
            lineage,
            store,
            opened,
            parallelism,
            max_parallelism,
            checked.steps,
            checked.has_spark_state,
            checked.stored,
            certificates,
        )
        with local_disk():
            return start.run()
    except Exception:
        # Not after a signal: the process ends at once, and Spark's JVM with it.
        if interactive is None:
            spark.stop()
        raise


@dataclass(frozen=True, slots=True)
class _Start:
    """A claimed attempt on its way to a running job."""

    manifest: StatefulSparkJob
    options: RunOptions
    spark: SparkSession
    pipeline: Pipeline
    rocksdb: RocksDBChoice
    own_backend: Mapping[str, Any]
    """Options of SlotConfig for a state backend of the job's own."""
    lineage: Lineage
    store: ObjectStore
    opened: Callable[[str], ObjectStore]
    parallelism: int
    max_parallelism: int
    steps: dict[str, StepSpec]
    has_spark_state: bool
    stored: StoredPipeline
    certificates: CertificateFolder | None

    def run(self) -> RunningJob:
        """Restore, and set slots and query going."""
        shared = self.manifest.spec.checkpointing.spark_location
        root = self.options.interactive.folder if self.options.interactive is not None else None
        location = open_location(shared if self.has_spark_state else None, self.manifest.job_id, self.lineage.attempt, root)
        try:
            return self._run_in(location)
        except BaseException:
            remove_location(location)
            raise

    def _run_in(self, location: Path) -> RunningJob:
        files, state = LocationFiles(location), SparkStateUploader(location)
        restore_location(files, self.lineage, self.stored, may_drop=self.manifest.spec.allow_non_restored_state)
        durable = self._durable()
        durable.pipeline = self.stored
        try:
            if self.has_spark_state:
                restore_spark_state(state, self.lineage, self.store)
        except CorruptDataError as error:
            raise durable.mark_damaged(error) from error
        for problem in self.lineage.problems:
            _log.warning("skipped a checkpoint that cannot be restored", problem=problem)
        coordinator = self._coordinator(durable, files, state)
        endpoint = coordinator.endpoint
        known = {step.uid: step.hashing for step in self.stored.steps}
        builder = PipelineBuilder(self.spark, self.manifest, self.pipeline, self.max_parallelism, endpoint, known)
        history = HistoryRecorder(StoredHistory(self.store, self.lineage.attempt, durable.fence.check))
        for message, reason in returns_at_start(self.lineage):
            history.returned(message, reason)
        running = RunningJob(
            spark=self.spark,
            coordinator=coordinator,
            build=builder.build,
            slot_config=lambda job: self._slot_config(job, endpoint),
            restart=restart_strategy(self.manifest),
            settings=self._settings(location),
            history=history,
        )
        try:
            job, writer = builder.build(self.parallelism)
        except Exception:
            coordinator.close()
            raise
        running.start(job, writer)
        return running

    @property
    def _master(self) -> str:
        return str(self.spark.sparkContext.master)

    @property
    def _slots_per_executor(self) -> int | None:
        return None if self._master.startswith("local[") else self.manifest.spec.executor.slots

    def _durable(self) -> DurableJob:
        return DurableJob(
            store=self.store,
            open_store=self.opened,
            job_id=self.manifest.job_id,
            max_parallelism=self.max_parallelism,
            lineage=self.lineage,
            savepoint_places=_storage_locations(os.environ),
            **durable_options(self.manifest),
        )

    def _coordinator(self, durable: DurableJob, files: LocationFiles, state: SparkStateUploader) -> Coordinator:
        spec = self.manifest.spec
        delays_ms = {uid: step.delays_ms for uid, step in self.steps.items()}
        steps = self.steps.values()
        batches = batch_log(self.lineage, delays_ms, steps_before(steps), idle_afters_ms(steps), watermark_columns(steps))
        host = str(self.spark.conf.get("spark.driver.host")) if self.certificates is not None else None
        return Coordinator(
            durable=durable,
            batches=batches,
            states=state_registry(
                self.lineage,
                self.store,
                changelogs=durable.changelogs,
                allow_non_restored=spec.allow_non_restored_state,
            ),
            slots=new_slots(self.spark, self.parallelism, self._slots_per_executor),
            location=SparkLocation(files, state, has_state=self.has_spark_state),
            listen=Listen(host=host, secret=secrets.token_urlsafe(32), certificates=self.certificates),
            recovered=recovered_batch(self.lineage, batches),
            memory=memory_tuner(self.manifest, self.rocksdb),
            storage=storage_settings(self.manifest),
            checkpointed=[uid for uid, step in self.steps.items() if is_checkpointed(step.function)],
            times=CheckpointTimes(
                interval_s=spec.checkpointing.interval / 1000,
                timeout_s=spec.checkpointing.timeout / 1000,
                min_pause_s=spec.checkpointing.min_pause / 1000,
            ),
        )

    def _slot_config(self, job: Job, endpoint: Endpoint) -> SlotConfig:
        return SlotConfig(
            coordinator=endpoint,
            job_name=self.manifest.metadata.name,
            parallelism=job.parallelism,
            max_parallelism=self.max_parallelism,
            steps=job.pickled_steps(),
            parameters=self.manifest.spec.job.parameters,
            python_path=tuple(python_path(self.manifest)),
            store=self.store,
            storage=storage_settings(self.manifest),
            host="auto" if self.certificates is not None else None,
            logs=self.options.slot_logs,
            rocksdb=self.rocksdb,
            **self.own_backend,
            **slot_options(self.manifest) | (self.options.interactive.slot_options if self.options.interactive is not None else {}),
        )

    def _settings(self, location: Path) -> RunSettings:
        spec, interactive = self.manifest.spec, self.options.interactive
        return RunSettings(
            name=self.manifest.metadata.name,
            max_parallelism=self.max_parallelism,
            parallelism_max=parallelism_max(self._master, self.parallelism, self.max_parallelism),
            slots_per_executor=self._slots_per_executor,
            local_checkpoint=str(location),
            restart_user_errors="restart_strategy" in spec.model_fields_set and interactive is None,
            until_idle=self.options.until_idle,
            drain_when_idle=self.options.drain,
            tolerable_failures=spec.checkpointing.tolerable_failures,
            retain_on_cancellation=spec.checkpointing.retention.on_cancellation.value == "RETAIN",
            native_metrics=spec.state_backend.rocksdb.metrics,
            own_session=interactive is None,
            query_settings=interactive.query_settings if interactive is not None else nullcontext,
            executors_for=spec.executor.instances_for,
        )


def _private_folder(manifest: StatefulSparkJob, options: RunOptions) -> Path | None:
    """Return the job's folder if it is this user's alone: executors on other machines may run as another user, and share a volume with the driver."""
    master = options.master or manifest.spec.spark_conf.get("spark.master", "local")
    url = urlsplit(paths.url_of(manifest.spec.checkpointing.dir, manifest.job_id))
    return Path(unquote(url.path)) if url.scheme == "file" and is_local(master) and not options.shared_dir else None


def _certificates(master: str) -> CertificateFolder | None:
    """The certificates for connections between machines; None if the whole job runs on this one."""
    if shares_disk(master):
        return None
    found = CertificateFolder.of(os.environ)
    if found is None:
        raise InvalidInputError(
            f"slots of {master.split(':', maxsplit=1)[0]} run on other machines, which requires TLS",
            field=TLS_FOLDER_VARIABLE,
            remedy="Set it, for the driver and the executors, to a folder with tls.crt, tls.key and ca.crt; on Kubernetes the operator does",
        )
    return found


def _now_ms() -> int:
    return int(time.time() * 1000)


def _parallelism(manifest: StatefulSparkJob, options: RunOptions) -> int:
    parallelism = options.parallelism if options.parallelism is not None else manifest.spec.parallelism
    if parallelism < 1:
        raise InvalidInputError(f"{parallelism} is less than 1", field="parallelism", remedy="Set a positive number of slots")
    if manifest.spec.max_parallelism_given and parallelism > manifest.spec.max_parallelism:
        raise InvalidInputError(
            f"{parallelism} slots cannot share {manifest.spec.max_parallelism} key groups",
            field="parallelism",
            remedy="Set it to at most spec.maxParallelism",
        )
    return parallelism


def _initial_savepoint(manifest: StatefulSparkJob, store: ObjectStore) -> str | None:
    """The manifest's initial savepoint, which counts only for a job that has no state of its own yet."""
    spec = manifest.spec
    if (spec.initial_savepoint_path is None and spec.initial_snapshot is None) or has_state(store):
        return None
    if spec.initial_snapshot is not None:
        raise InvalidInputError(
            "refers to a Kubernetes object, which cannot be read outside the operator",
            field="spec.initialSnapshot",
            remedy="Pass the path from its status with --from, or set initialSavepointPath",
        )
    return spec.initial_savepoint_path


def _storage_locations(environ: Mapping[str, str]) -> list[str] | None:
    """The storage locations to which the operator limits its jobs; None without limits."""
    text = environ.get(STORAGE_LOCATIONS_VARIABLE)
    return None if text is None else [str(each) for each in json.loads(text)]
