"""The manifest of a job: models, value types, loading. Nothing in here touches a running job."""

from __future__ import annotations

from statefulspark.config.durations import Duration, format_duration, parse_duration
from statefulspark.config.job import StatefulSparkJob, StatefulSparkJobSpec
from statefulspark.config.manifest import load_manifest, parse_manifest, validate_job
from statefulspark.config.sizes import ByteSize, format_size, parse_size

__all__ = [
    "ByteSize",
    "Duration",
    "StatefulSparkJob",
    "StatefulSparkJobSpec",
    "format_duration",
    "format_size",
    "load_manifest",
    "parse_duration",
    "parse_manifest",
    "parse_size",
    "validate_job",
]
