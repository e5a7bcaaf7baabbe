"""Reads keyed steps and streaming sources out of Spark's logical plans."""

from __future__ import annotations

from typing import Any

from statefulspark.checkpoint.formats.pipeline import TICKS

__all__ = ["children_of", "name_of", "options_of", "step_of"]


def children_of(plan: Any) -> list[Any]:
    """The nodes below a node of a plan."""
    return [plan.children().apply(index) for index in range(plan.children().size())]


def step_of(plan: Any) -> str | None:
    """The uid of the keyed step whose rows and ticks a node of a plan unites; None if it is another node."""
    # Spark makes one union of those of two inputs and of the tick source.
    return _ticked(children_of(plan)[-1]) if str(plan.nodeName()) == "Union" else None


def _ticked(plan: Any) -> str | None:
    """The uid whose tick source is all that a plan reads; None if it reads something else."""
    while plan.children().size() == 1:
        plan = plan.children().apply(0)
    if plan.children().size() or name_of(plan) != "StreamingRelationV2" or str(plan.sourceName()) != TICKS:
        return None
    return options_of(plan)["uid"]


def name_of(plan: Any) -> str:
    """The name of the class of a node."""
    return str(plan.getClass().getSimpleName())


def options_of(relation: Any) -> dict[str, str]:
    """The options that a source is read with."""
    if name_of(relation) == "StreamingRelation":
        found = {}
        entries = relation.dataSource().options().iterator()
        while entries.hasNext():
            entry = entries.next()
            found[str(entry._1())] = str(entry._2())  # noqa: SLF001  a Scala tuple
        return found
    if name_of(relation) == "StreamingRelationV2":
        options = {str(name): str(value) for name, value in relation.extraOptions().asCaseSensitiveMap().items()}
        if relation.identifier().isDefined():
            options["identifier"] = str(relation.identifier().get().toString())
        return options
    return {}
