"""Looks at a query's logical plan before it starts: which of Spark's own stateful steps it has, and whether their state can be kept.

Spark's executors write that state into the checkpoint location as into a shared file system. Where they share the driver's disk, or a
folder that is mounted in all of them, the driver carries it to durable storage. Elsewhere refusing is better than a job that
cannot be restored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import DataFrame

from statefulspark.errors import InvalidInputError

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
    return tuple(dict.fromkeys(_stateful(plan)))


def check_spark_state(steps: tuple[str, ...], settings: Mapping[str, str], shared: str | None) -> None:
    """Raise unless the state of Spark's own steps can be carried to durable storage and back.

    Args:
        steps: What `spark_state_steps` found.
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
            "could not go on with its state",
            field="spec.job",
            remedy="Do the work in a keyed step (job.key_by(...).process(...))",
        )
    master = settings["spark.master"]
    if settings.get(_FORMAT, "1") != "1":
        raise InvalidInputError(
            f"with a streaming {steps[0]} it must be 1: commits of the other format name the state that the batch made, and a batch that a "
            "file sink knows from before a restart makes none",
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
    """Whether executors of this master run on the driver's machine."""
    return master.startswith("local") or _LOOPBACK.match(master) is not None


def shared_folder(url: str) -> Path:
    """The local path of a ``file:///`` URL."""
    return Path(unquote(urlsplit(url).path))


def _stateful(plan: Any) -> list[str]:
    if not plan.isStreaming():
        return []
    name = str(plan.nodeName())
    children = [plan.children().apply(index) for index in range(plan.children().size())]
    found = [_STATEFUL[name]] if name in _STATEFUL else []
    if name == "Join" and sum(bool(child.isStreaming()) for child in children) > 1:
        found.append("join of two streams")
    return [*found, *(step for child in children for step in _stateful(child))]
