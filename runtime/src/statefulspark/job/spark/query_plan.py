"""Inspects a query's logical plan before it starts: which of Spark's own stateful steps it has, and whether their state can be preserved.

Spark's executors write that state into the checkpoint location as into a shared file system. If they share the driver's disk, or a
folder that is mounted in all of them, the driver copies the state to durable storage. Otherwise the job is rejected, because it
could not be restored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import DataFrame

from statefulspark.checkpoint.formats.pipeline import SparkStep
from statefulspark.errors import InvalidInputError
from statefulspark.job.spark.sources import source_labels

_STATEFUL = {
    "Aggregate": "groupBy(...).agg(...)",
    "Deduplicate": "dropDuplicates",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark",
    "Distinct": "distinct",
    "FlatMapGroupsWithState": "flatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState",
    "TransformWithState": "transformWithState",
    "TransformWithStateInPySpark": "transformWithState",
    "TransformWithStateInPandas": "transformWithStateInPandas",
    "GlobalLimit": "limit",
}
_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_LOOPBACK = re.compile(r"^spark://(?:localhost|127\.\d+\.\d+\.\d+|\[::1\]):\d+$")


def spark_state_steps(df: DataFrame) -> tuple[str, ...]:
    """The streaming steps of a query for which Spark keeps state of its own, each once, by the names that users write."""
    plan = df._jdf.queryExecution().analyzed()  # noqa: SLF001  PySpark has no public way to a plan
    return tuple(dict.fromkeys(name for name, _ in _stateful(plan)))


def stateful_steps(df: DataFrame) -> tuple[SparkStep, ...]:
    """Every stateful step of Spark's own in a query, from the sink back, with the sources that it reads."""
    plan = df._jdf.queryExecution().analyzed()  # noqa: SLF001  see above
    return tuple(SparkStep(name=name, reads=source_labels(node)) for name, node in _stateful(plan))


def check_spark_state(steps: tuple[str, ...], settings: Mapping[str, str], shared: str | None) -> None:
    """Raise unless the state of Spark's own steps can be carried to durable storage and back.

    Args:
        steps: Result of `spark_state_steps`.
        settings: Spark's configuration.
        shared: The manifest's ``checkpointing.sparkLocation``.

    Raises:
        InvalidInputError: names the step and what to do.
    """
    if not steps:
        return
    if own := next((step for step in steps if step.startswith("transformWithState")), None):
        raise InvalidInputError(
            f"Spark's metadata of {own} names its schema files by their full path in one driver's checkpoint location, so another driver "
            "could not resume from its state",
            field="spec.job",
            remedy="Do the work in a keyed step (job.key_by(...).process(...))",
        )
    master = settings["spark.master"]
    if settings.get(_FORMAT, "1") != "1":
        raise InvalidInputError(
            f"with a streaming {steps[0]} it must be 1: commits of the other format refer to state that the batch wrote, and a batch that a "
            "file sink skips after a restart writes none",
            field=f"spec.sparkConf[{_FORMAT}]",
            remedy="Remove it",
        )
    if shared is None and not shares_disk(master):
        raise InvalidInputError(
            f"the query has a streaming {steps[0]}, whose state Spark's executors keep in files, and executors of {master.split(':', maxsplit=1)[0]} "
            "do not share the driver's disk",
            field="spec.checkpointing.sparkLocation",
            remedy="Set it to a folder that is mounted in the driver and all executors (file:///mnt/shared), or do the work in a keyed "
            "step (job.key_by(...).process(...)), in foreachBatch or in a job of its own",
        )


def shares_disk(master: str) -> bool:
    """True if executors of this master run on the driver's machine."""
    return master.startswith("local") or _LOOPBACK.match(master) is not None


def shared_folder(url: str) -> Path:
    """The local path of a ``file:///`` URL."""
    return Path(unquote(urlsplit(url).path))


def _stateful(plan: Any) -> list[tuple[str, Any]]:
    if not plan.isStreaming():
        return []
    name = str(plan.nodeName())
    children = [plan.children().apply(index) for index in range(plan.children().size())]
    found = [(_STATEFUL[name], plan)] if name in _STATEFUL else []
    if name == "Join" and sum(bool(child.isStreaming()) for child in children) > 1:
        found.append(("join of two streams", plan))
    return [*found, *(step for child in children for step in _stateful(child))]
