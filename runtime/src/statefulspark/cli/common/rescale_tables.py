"""The plan and the result of a rescale for people; every table fits a terminal of 80 columns."""

from __future__ import annotations

from statefulspark.api_server.models.rescale import RescaleModel, RescalePlanModel, SlotPlanModel
from statefulspark.cli.common.job_tables import duration, size
from statefulspark.cli.common.output import TableView


def plan_line(plan: RescalePlanModel) -> str:
    """Return the plan as one line."""
    if plan.from_parallelism == plan.to_parallelism:
        return f"the job already runs with {plan.to_parallelism} slots"
    moved = f"plan: {plan.moved_key_groups} of {plan.max_parallelism} key groups change slot"
    if plan.checkpoint is None:
        return f"{moved}; their size is not known before the first checkpoint"
    return (
        f"{moved}; slots fetch {size(plan.fetch_bytes)}, delete about {size(plan.cut_bytes)} and copy about {size(plan.merged_bytes)} of it "
        f"(checkpoint {plan.checkpoint})"
    )


def plan_tables(plan: RescalePlanModel) -> list[TableView]:
    """Return the table of ``statefulspark rescale --dry-run``: one row per slot, and their sum."""
    rows = [_slot_row(slot) for slot in plan.slots]
    if rows:
        cut, merged = (sum(getattr(slot, name) for slot in plan.slots) for name in ("cut_key_groups", "merged_key_groups"))
        rows.append(("all", None, None, size(plan.fetch_bytes), _part(cut, plan.cut_bytes), _part(merged, plan.merged_bytes)))
    columns = ("slot", "key groups", "opens", "fetches", "deletes", "copies")
    title = f"from {plan.from_parallelism} to {plan.to_parallelism} slots: {plan.moved_key_groups} of {plan.max_parallelism} key groups change slot"
    return [TableView(title if rows else plan_line(plan), columns, rows, right=columns)]


def rescale_tables(done: RescaleModel | None) -> list[TableView]:
    """Return the table of a rescale; none if nothing was rescaled."""
    if done is None:
        return []
    facts = [
        ("paused", duration(done.pause_ms) if done.pause_ms is not None else "no batch has been committed since"),
        ("key groups moved", done.moved_key_groups),
        ("files of the slots", size(done.fetch_bytes)),
        ("deleted", f"about {size(done.cut_bytes)}"),
        ("copied", f"about {size(done.merged_bytes)}"),
    ]
    return [TableView(f"rescaled from {done.from_parallelism} to {done.to_parallelism} slots", ("fact", "value"), facts)]


def _slot_row(slot: SlotPlanModel) -> tuple[object, ...]:
    opens = None if slot.opened is None else f"slot {slot.opened}"
    cut, merged = _part(slot.cut_key_groups, slot.cut_bytes), _part(slot.merged_key_groups, slot.merged_bytes)
    return (str(slot.slot), f"{slot.first}-{slot.last}", opens, size(slot.fetch_bytes), cut, merged)


def _part(key_groups: int, size_bytes: int) -> str | None:
    return f"{key_groups}: {size(size_bytes)}" if key_groups else None
