"""Reads the settings of a pipeline's DataStreamWriter: trigger, options, sink. PySpark has no public API for them."""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from statefulspark.errors import InvalidInputError
from statefulspark.job.spark.session import PROTOCOL_SETTINGS

_SUPPORTED = {"ProcessingTimeTrigger": "processingTime", "AvailableNowTrigger$": "availableNow"}
_REFUSED = {
    "OneTimeTrigger$": ("once", "Use trigger(availableNow=True), which processes all there is and ends too"),
    "ContinuousTrigger": ("continuous", "Use trigger(processingTime=...): keyed steps run in micro-batches"),
    "RealTimeTrigger": ("realTime", "Use trigger(processingTime=...): keyed steps run in micro-batches"),
}
_ASYNC_PROGRESS = ("asyncprogresstracking", "_asyncprogresstracking")


def writer_setting(writer: DataStreamWriter, name: str) -> Any:
    """Return a private field of Spark's DataStreamWriter (Spark 4.3): ``source``, ``outputMode``, ``trigger``, ``extraOptions``."""
    found: Any = writer._jwrite  # noqa: SLF001  neither PySpark nor Spark has a public API for a writer's settings
    field = found.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(found)


def reset_options(writer: DataStreamWriter, options: Any) -> None:
    """Give a writer the options back that ``writer_setting(writer, "extraOptions")`` has returned, so that it can be started again."""
    found: Any = writer._jwrite  # noqa: SLF001  see above
    field = found.getClass().getDeclaredField("extraOptions")
    field.setAccessible(True)
    field.set(found, options)


def ends_by_itself(writer: DataStreamWriter) -> bool:
    """True if the query processes what is available and ends: ``trigger(availableNow=True)``."""
    return _trigger(writer) == "AvailableNowTrigger$"


def check_writer(spark: SparkSession, writer: DataStreamWriter) -> None:
    """Raise when a trigger, an option or a setting made in the pipeline's code would break the batch protocol.

    Args:
        spark: The session that built the query.
        writer: The query.

    Raises:
        InvalidInputError: names it and what to do.
    """
    trigger = _trigger(writer)
    if trigger not in _SUPPORTED:
        name, remedy = _REFUSED.get(trigger, (trigger, "Use trigger(processingTime=...) or trigger(availableNow=True)"))
        raise InvalidInputError("is not supported", field=f"trigger({name}=...)", remedy=remedy)
    for option in _options(writer):
        if option.lower().startswith(_ASYNC_PROGRESS):
            raise InvalidInputError(
                "Spark would commit batches late or not at all, and every batch must be committed before the next one begins",
                field=f"option({option!r})",
                remedy="Remove it",
            )
        if option.lower() == "checkpointlocation":
            raise InvalidInputError(
                "the job stores Spark's offsets in its own checkpoints",
                field=f"option({option!r})",
                remedy="Remove it; set spec.checkpointing.dir",
            )
    for key, needed in PROTOCOL_SETTINGS.items():
        if (found := str(spark.conf.get(key))).lower() != needed:
            raise InvalidInputError(f"must be {needed!r}, but the pipeline sets it to {found!r}", field=key, remedy="Remove it")


def _trigger(writer: DataStreamWriter) -> str:
    return str(writer_setting(writer, "trigger").getClass().getSimpleName())


def _options(writer: DataStreamWriter) -> list[str]:
    options = writer_setting(writer, "extraOptions").originalMap().keysIterator()
    found = []
    while options.hasNext():
        found.append(str(options.next()))
    return found


def named(writer: DataStreamWriter, job: str) -> DataStreamWriter:
    """The query under the name that the pipeline gave it, else that of the job. Spark's memory sink makes a view of that name."""
    if writer_setting(writer, "extraOptions").get("queryName").isDefined():
        return writer
    is_view = str(writer_setting(writer, "source")).lower() == "memory"
    return writer.queryName(re.sub(r"\W", "_", job) if is_view else job)


def without_sink(writer: DataStreamWriter) -> DataStreamWriter:
    """The same query, with its output mode, without a sink."""
    return writer.format("noop")
