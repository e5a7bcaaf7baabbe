"""Whether RocksDB can give the native metrics that a manifest names, before anything starts."""

from __future__ import annotations

from statefulspark.config.job import StatefulSparkJob
from statefulspark.errors import InvalidInputError
from statefulspark.state.native_metrics import unavailable_native_metrics


def check_native_metrics(manifest: StatefulSparkJob) -> None:
    """Refuse native metrics that the installed RocksDB cannot give: they would never appear, and nobody would know why.

    Raises:
        InvalidInputError: names each with the reason.
    """
    missing = unavailable_native_metrics(manifest.spec.state_backend.rocksdb.metrics)
    if missing:
        raise InvalidInputError(
            "; ".join(f"{name}: {reason}" for name, reason in missing.items()),
            field="spec.stateBackend.rocksdb.metrics",
            remedy="Remove them; docs/metrics.md lists what can be named",
        )
