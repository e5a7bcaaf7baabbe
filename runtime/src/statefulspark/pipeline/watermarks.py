"""Finds the steps whose watermarks a keyed step waits for: those that the rows of its inputs come from, through any Spark operations between.

A step fires timers behind its watermark, so what it emits then is older than the watermark. In the next step these rows must not be late.
Steps without event time, and those that only order rows by it, emit rows of their inputs in the same batch: their inputs' watermarks pass
through them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark.sql import DataFrame

from statefulspark.pipeline.step_arguments import check_event_time, warn_without_watermark, watermark_delay_ms
from statefulspark.pipeline.streaming_plan import children_of, step_of
from statefulspark.process.adapters.function_adapters import only_orders
from statefulspark.process.rows.step_spec import StepSpec

__all__ = ["InputTimes", "Upstream", "passed_on", "step_watermarks", "upstream_of"]


@dataclass(frozen=True)
class Upstream:
    """The steps before a stream."""

    steps: frozenset[str] = frozenset()
    """Uids of the steps that have a watermark."""
    covered: bool = True
    """True if all its rows come out of such steps."""

    @property
    def has_watermark(self) -> bool:
        """True if the steps give the stream a watermark."""
        return self.covered and bool(self.steps)


class InputTimes(NamedTuple):
    """The arguments about time of one input of a step, and what comes before it."""

    df: DataFrame
    upstream: Upstream
    event_time: str | None
    watermark: str | int | None
    event_time_field: str
    watermark_field: str


def step_watermarks(uid: str, inputs: Sequence[InputTimes]) -> tuple[list[int | None], tuple[str, ...]]:
    """Check the arguments about time of a step.

    Args:
        uid: The step.
        inputs: Its inputs.

    Returns:
        The delay of each input's watermark in milliseconds, None for one that has the watermark of the steps before; and the uids of these steps.

    Raises:
        InvalidInputError: An argument does not fit; names it and the remedy.
    """
    given = [0 if each.watermark is None else each.watermark for each in inputs]
    delays_ms: list[int | None] = [watermark_delay_ms(delay, each.watermark_field) for delay, each in zip(given, inputs, strict=True)]
    after: frozenset[str] = frozenset()
    for number, each in enumerate(inputs):
        if each.event_time is None:
            continue
        check_event_time(each.df, each.event_time, each.event_time_field)
        after |= each.upstream.steps
        if each.watermark is None and each.upstream.has_watermark:
            delays_ms[number] = None
        else:
            warn_without_watermark(uid, given[number], each.watermark_field)
    return delays_ms, tuple(sorted(after))


def passed_on(step: StepSpec, inputs: Iterable[Upstream]) -> Upstream:
    """Return what comes before the result of a step, itself included.

    Args:
        step: The step.
        inputs: What comes before its inputs.
    """
    if step.has_event_time and not only_orders(step.function):
        return Upstream(frozenset({step.uid, *step.after}))
    return _united(inputs)


def upstream_of(df: DataFrame, passed: Mapping[str, Upstream]) -> Upstream:
    """Return what comes before a stream.

    Args:
        df: The stream.
        passed: The same of the results of the steps so far, by uid.
    """
    return _upstream(df._jdf.queryExecution().analyzed(), passed)  # noqa: SLF001  PySpark has no public way to a plan


def _upstream(plan: Any, passed: Mapping[str, Upstream]) -> Upstream:
    if not plan.isStreaming():
        return Upstream()
    if (uid := step_of(plan)) is not None:
        return passed.get(uid, Upstream(covered=False))
    children = children_of(plan)
    return _united(_upstream(child, passed) for child in children) if children else Upstream(covered=False)


def _united(parts: Iterable[Upstream]) -> Upstream:
    every = list(parts)
    return Upstream(frozenset[str]().union(*(each.steps for each in every)), all(each.covered for each in every))
