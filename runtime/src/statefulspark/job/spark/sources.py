"""Reads a query's streaming sources from its logical plan, in the order in which Spark numbers them.

Source: ``MicroBatchExecution.logicalPlan`` of Spark. It traverses the analyzed plan from the top, gives each distinct relation the next number,
and writes an offset for each occurrence.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import structlog
from pyspark.sql import DataFrame

from statefulspark.checkpoint.formats.pipeline import TICKS, SourceId, tick_label
from statefulspark.config.values.secret_names import is_secret_option
from statefulspark.pipeline.streaming_plan import children_of, name_of, options_of, step_of

_FILES = frozenset({"avro", "binaryfile", "csv", "json", "orc", "parquet", "text", "xml"})
_PASSING = frozenset({"socket", "textsocket"})
"""Sources that keep nothing of what they have sent."""
_TELLING = {"kafka": ("assign", "subscribe", "subscribepattern")}
"""Options that tell where a source reads; for files it is the path, for sources that are not listed every option but secrets."""

_log = structlog.get_logger("statefulspark.pipeline")


def source_ids(df: DataFrame) -> tuple[SourceId, ...]:
    """The sources of a streaming query, one for each place in its plan."""
    seen: list[Any] = []
    return tuple(_source(relation, feeds, seen) for relation, feeds in _relations(df._jdf.queryExecution().analyzed(), ""))  # noqa: SLF001


def deleting_sources(df: DataFrame) -> tuple[str, ...]:
    """Labels of the sources of a streaming query that delete or move what Spark has committed (``cleanSource``), so that it cannot be read again."""
    found = []
    for relation, _ in _relations(df._jdf.queryExecution().analyzed(), ""):  # noqa: SLF001  PySpark has no public way to a plan
        options = {name.lower(): value.lower() for name, value in options_of(relation).items()}
        if options.get("cleansource", "off") != "off":
            found.append(_source(relation, "", []).label)
    return tuple(found)


def warn_of_passing_sources(df: DataFrame) -> None:
    """Log, by name, the sources of a streaming query that cannot be read again after a failure."""
    for relation, _ in _relations(df._jdf.queryExecution().analyzed(), ""):  # noqa: SLF001  PySpark has no public way to a plan
        if _provider(relation) in _PASSING:
            where = {name.lower(): value for name, value in options_of(relation).items()}
            _log.warning(
                "the source cannot be read again: rows that are on their way are lost when the driver or a batch fails. Use it for trials, and "
                "Kafka or files for data",
                source=f"{_provider(relation)} {where.get('host', '')}:{where.get('port', '')}",
            )


def source_labels(plan: Any) -> tuple[str, ...]:
    """Labels of the sources below a node of a logical plan, each once and sorted; alike ones are told apart by their identity."""
    found = (_source(relation, feeds, []) for relation, feeds in _relations(plan, ""))
    return tuple(sorted({each.label if each.provider == TICKS else f"{each.label} ({each.identity[:8]})" for each in found}))


def _relations(plan: Any, feeds: str) -> Iterator[tuple[Any, str]]:
    """Streaming relations below a node, with the keyed step that each feeds."""
    if not plan.isStreaming():
        return
    children = children_of(plan)
    if not children:
        yield plan, feeds
        return
    uid = step_of(plan)
    for child in children:
        yield from _relations(child, feeds if uid is None else uid)


def _source(relation: Any, feeds: str, seen: list[Any]) -> SourceId:
    number = next((index for index, other in enumerate(seen) if other.equals(relation)), None)
    if number is None:
        number = len(seen)
        seen.append(relation)
    provider, options = _provider(relation), options_of(relation)
    if provider == TICKS:
        return SourceId(provider=provider, identity=options["uid"], label=tick_label(options["uid"]), feeds=feeds, number=number)
    where = telling(provider, options)
    return SourceId(provider=provider, identity=_digest(provider, where), label=_label(provider, where), feeds=feeds, number=number)


def telling(provider: str, options: Mapping[str, str]) -> dict[str, str]:
    """The options that tell where a source reads; none of them is a secret.

    Args:
        provider: Its short name, in lower case.
        options: All its options.
    """
    lowered = {name.lower(): value for name, value in options.items()}
    if provider in _FILES:
        return {"path": lowered.get("path", "")}
    if provider in _TELLING:
        return {name: lowered[name] for name in _TELLING[provider] if name in lowered}
    return {name: value for name, value in lowered.items() if not is_secret_option(name)}


def _digest(provider: str, where: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps([provider, sorted(where.items())]).encode()).hexdigest()


def _label(provider: str, where: Mapping[str, str]) -> str:
    """Provider and path or topics; other options are not shown, and no credentials of a URL."""
    shown = next((where[name] for name in ("path", *_TELLING["kafka"], "identifier") if name in where), "")
    credentials = urlsplit(shown).netloc.rpartition("@")[0] if "@" in shown else ""
    return f"{provider} {shown.replace(f'{credentials}@', '') if credentials else shown}".strip()


def _provider(relation: Any) -> str:
    if name_of(relation) == "StreamingRelation":
        return str(relation.dataSource().className()).lower()
    if name_of(relation) == "StreamingRelationV2":
        return str(relation.sourceName()).lower()
    return name_of(relation)
