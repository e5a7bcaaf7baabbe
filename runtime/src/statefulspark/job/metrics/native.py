"""Checks, before anything starts, that RocksDB provides the native metrics that the manifest requests."""

from __future__ import annotations

from statefulspark.config.job import StatefulSparkJob
from statefulspark.errors import InvalidInputError
from statefulspark.state.store.native_metrics import unavailable_native_metrics


def check_native_metrics(manifest: StatefulSparkJob) -> None:
    """Reject native metrics that the installed RocksDB does not provide: they would silently be missing.

    Raises:
        InvalidInputError: names each with the reason.
    """
    missing = unavailable_native_metrics(manifest.spec.state_backend.rocksdb.metrics)
    if missing:
        raise InvalidInputError(
            "; ".join(f"{name}: {reason}" for name, reason in missing.items()),
            field="spec.stateBackend.rocksdb.metrics",
            remedy="Remove them; docs/metrics.md lists the available metrics",
        )
