"""Looks at a query's logical plan before it starts: Spark's own stateful steps are refused.

Spark keeps their state beside its offsets, in the local checkpoint location, which dies with the driver's disk; only our own state is
carried to durable storage. Refusing is better than a job that cannot be restored.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from statefulspark.errors import InvalidInputError

_STATEFUL = {
    "Aggregate": "groupBy(...).agg(...)",
    "Deduplicate": "dropDuplicates",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark",
    "FlatMapGroupsWithState": "flatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState",
    "TransformWithState": "transformWithState",
    "TransformWithStateInPySpark": "transformWithState",
    "TransformWithStateInPandas": "transformWithStateInPandas",
    "GlobalLimit": "limit",
}


def refuse_spark_state(df: DataFrame) -> None:
    """Raise unless the streaming part of the query keeps no state of Spark's own.

    Raises:
        InvalidInputError: names the step and what to use instead.
    """
    plan = df._jdf.queryExecution().analyzed()  # noqa: SLF001  PySpark has no public way to a plan
    found = _first_stateful(plan)
    if found is not None:
        raise InvalidInputError(
            f"the query has a streaming {found}, whose state Spark keeps on the driver's disk, where it cannot be restored from",
            field="spec.job",
            remedy="Do it in a keyed step (job.key_by(...).process(...)), or in foreachBatch, or in a job of its own",
        )


def _first_stateful(plan: Any) -> str | None:
    if not plan.isStreaming():
        return None
    name = str(plan.nodeName())
    children = [plan.children().apply(index) for index in range(plan.children().size())]
    if name in _STATEFUL:
        return _STATEFUL[name]
    if name == "Join" and sum(bool(child.isStreaming()) for child in children) > 1:
        return "join of two streams"
    return next((found for child in children if (found := _first_stateful(child)) is not None), None)
