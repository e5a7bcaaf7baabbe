"""Spark's checkpoint location as it is stored: the bundle of a checkpoint and what the batch records since have added."""

from __future__ import annotations

from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.bundle import decode_bundle
from statefulspark.checkpoint.formats.pipeline import SourceId
from statefulspark.checkpoint.lineage.resumed import Lineage
from statefulspark.checkpoint.spark.source_offsets import realign


def location_files(lineage: Lineage) -> tuple[dict[str, bytes], tuple[SourceId, ...] | None]:
    """All stored files of Spark's location, and the sources that they are in order of; None if those are not stored."""
    files: dict[str, bytes] = {}
    sources: tuple[SourceId, ...] | None = None
    base = lineage.base
    if base is not None and base.metadata.spark_location is not None:
        key = paths.resolve_reference(base.key, base.metadata.spark_location.path)
        files = decode_bundle(base.store.get(key), path=f"{base.url}/{base.metadata.spark_location.path}")
        sources = base.metadata.pipeline.sources if base.metadata.pipeline is not None else None
    for record in lineage.records:
        if record.pipeline is not None:
            files = realign(files, sources, record.pipeline.sources, accepted=True)
            sources = record.pipeline.sources
        files |= decode_bundle(record.files, path=f"batch record {record.batch}")
    return files, sources
