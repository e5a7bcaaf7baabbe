"""Derives the settings of storage, slots and restarts from the manifest. Pure."""

from __future__ import annotations

from typing import Any

from statefulspark.checkpoint.write.inline import InlineLimits
from statefulspark.config.checkpointing import CheckpointingMode
from statefulspark.config.job import StatefulSparkJob
from statefulspark.config.restart import RestartStrategyType
from statefulspark.config.s3 import S3Spec
from statefulspark.config.state_backend import StateBackendType, TimerServiceType
from statefulspark.coordinator.slots.memory_tuning import MemoryTuner
from statefulspark.exchange.rocksdb_choice import RocksDBChoice
from statefulspark.job.failures.restarts import ExponentialDelay, FailureRate, FixedDelay, NoRestart, RestartStrategy
from statefulspark.memory.executor import PYTHON_PER_SLOT
from statefulspark.memory.split import native_arena_block_bytes
from statefulspark.storage.s3.objects import S3Checksum, S3Encryption, S3ObjectSettings
from statefulspark.storage.storage_settings import StorageSettings


def storage_settings(manifest: StatefulSparkJob) -> StorageSettings:
    """Storage settings."""
    spec = manifest.spec.checkpointing.storage
    return StorageSettings(
        endpoint=spec.endpoint,
        region=spec.region,
        path_style=spec.path_style,
        access_key_id=spec.access_key_id,
        secret_access_key=spec.secret_access_key.get_secret_value() if spec.secret_access_key is not None else None,
        session_token=spec.session_token.get_secret_value() if spec.session_token is not None else None,
        ca_bundle=spec.ca_bundle,
        s3=_object_settings(spec.s3),
    )


def _object_settings(spec: S3Spec) -> S3ObjectSettings:
    encryption = spec.encryption
    return S3ObjectSettings(
        encryption=S3Encryption(encryption.type) if encryption is not None else None,
        kms_key_id=encryption.kms_key_id if encryption is not None else None,
        bucket_key=encryption.bucket_key if encryption is not None else None,
        checksum=S3Checksum(spec.checksum),
        storage_class=spec.storage_class,
        savepoint_storage_class=spec.savepoint_storage_class,
        tags=tuple(sorted(spec.tags.items())),
        kind_tag=spec.kind_tag,
    )


def inline_limits(manifest: StatefulSparkJob) -> InlineLimits:
    """What bounds the checkpoints of the memory backend, and the changelogs that the driver stores."""
    memory = manifest.spec.state_backend.memory
    return InlineLimits(
        state_bytes=memory.max_state_size,
        checkpoint_bytes=memory.max_checkpoint_size,
        changelog_bytes=manifest.spec.checkpointing.changelog_inline_threshold,
    )


def durable_options(manifest: StatefulSparkJob) -> dict[str, Any]:
    """Keyword options of DurableJob that come from the manifest."""
    spec = manifest.spec
    retention = spec.checkpointing.retention
    return {
        "name": manifest.metadata.name,
        "backend": spec.state_backend.type,
        "savepoint_dir": spec.checkpointing.savepoint_dir,
        "retained": retention.count,
        "max_age_s": retention.max_age / 1000 if retention.max_age is not None else None,
        "incremental": spec.checkpointing.incremental,
        "inline_limits": inline_limits(manifest),
        "at_least_once": spec.checkpointing.mode is CheckpointingMode.AT_LEAST_ONCE,
    }


def slot_options(manifest: StatefulSparkJob) -> dict[str, Any]:
    """Keyword options of SlotConfig that come from the manifest."""
    spec = manifest.spec
    backend = spec.state_backend
    memory = backend.rocksdb.memory
    plan = spec.memory_plan()
    work = plan.work
    return {
        "backend": backend.type,
        "inline_max_bytes": inline_limits(manifest).checkpoint_bytes if backend.type == StateBackendType.MEMORY else None,
        "managed_bytes": plan.managed_bytes,
        "managed": memory.managed,
        "fixed_per_slot": memory.fixed_per_slot,
        **_ratios(manifest),
        "native_metrics": backend.rocksdb.metrics,
        "cache_bytes": work.cache_bytes,
        "dirty_bytes": work.dirty_bytes,
        "sort_bytes": work.sort_bytes,
        "local_dir": backend.rocksdb.local_dir,
        "local_recovery": backend.local_recovery,
        "restore_threads": spec.checkpointing.restore_threads,
        "heap_timers": backend.rocksdb.timer_service is TimerServiceType.HEAP,
        "async_snapshots": backend.filesystem.async_snapshots and backend.memory.async_snapshots,
    }


def _ratios(manifest: StatefulSparkJob) -> dict[str, float]:
    """How managed memory is divided, by the names that slots and the tuner share."""
    memory = manifest.spec.state_backend.rocksdb.memory
    return {"write_buffer_ratio": memory.write_buffer_ratio, "high_prio_pool_ratio": memory.high_prio_pool_ratio}


def memory_tuner(manifest: StatefulSparkJob, choice: RocksDBChoice) -> MemoryTuner:
    """The tuner of the running job's managed memory split."""
    spec = manifest.spec
    plan = spec.memory_plan()
    split = plan.split
    settings = choice.final().settings
    return MemoryTuner(
        backend=spec.state_backend.type,
        budget_bytes=split.managed_bytes if split is not None else None,
        **_ratios(manifest),
        arena_bytes=native_arena_block_bytes(settings.write_buffer_bytes, settings.arena_block_bytes),
        process_bytes=plan.executor.part(PYTHON_PER_SLOT).each_bytes + plan.managed_bytes,
    )


def restart_strategy(manifest: StatefulSparkJob) -> RestartStrategy:
    """The strategy the manifest names."""
    spec = manifest.spec.restart_strategy
    if spec.type is RestartStrategyType.FIXED_DELAY:
        return FixedDelay(attempts=spec.fixed_delay.attempts, delay_s=spec.fixed_delay.delay / 1000)
    if spec.type is RestartStrategyType.FAILURE_RATE:
        rate = spec.failure_rate
        return FailureRate(failures=rate.max_failures_per_interval, interval_s=rate.failure_rate_interval / 1000, delay_s=rate.delay / 1000)
    if spec.type is RestartStrategyType.EXPONENTIAL_DELAY:
        delay = spec.exponential_delay
        return ExponentialDelay(
            initial_s=delay.initial_backoff / 1000,
            max_s=delay.max_backoff / 1000,
            multiplier=delay.backoff_multiplier,
            reset_s=delay.reset_backoff_threshold / 1000,
            jitter=delay.jitter_factor,
            attempts=delay.attempts_before_reset_backoff,
        )
    return NoRestart()
