"""decide: returns the next state of the core, and the actions that an event asks for. Pure.

A batch that Spark has committed counts only once every key group of every keyed step has processed it, because Spark commits a batch when its
sink returns, whatever the sink has read of it:

* every slot acknowledged the batch or had no rows, in this attempt; else
* another attempt processed it completely (its sink commit landed late, so that this attempt's query skipped the batch or ended within it), with
  state ids that mean the same here: its changelogs are adopted, and none of this attempt's. If the sink has read a part of the batch in this
  query, only an attempt with the same steps counts; else
* the batch makes a dry run: its commit is taken back, and the same pipeline runs it with its recorded offsets and watermarks into nothing. Spark's
  own stateful steps make the state that they lack, and slots take the batch as a retry. Then the real query goes on. A batch that is not
  complete even then fails the job, because its query leaves rows out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from statefulspark.coordinator.core import actions as do
from statefulspark.coordinator.core import events
from statefulspark.coordinator.core.life import (
    Adopting,
    Checkpointing,
    DryRun,
    Ending,
    GoingBackwards,
    Life,
    Running,
    Spark,
    Step,
    Writing,
)

Decision: TypeAlias = tuple[Life, tuple[do.Action, ...]]


def decide(life: Life, event: events.Event) -> Decision:
    """Return the next state and the actions, in the order in which they must be carried out; an event that comes too late changes nothing."""
    if isinstance(event, events.Result) and (life.step is None or life.step.number != event.number):
        return life, ()
    return _DECISIONS[type(event)](life, event)


# -- a batch begins --------------------------------------------------------------------------------------------------------


def _asked(life: Life, event: events.Asked) -> Decision:
    batch, running = event.batch, life.running
    if life.accepts(batch):
        return life, ()
    if batch <= life.committed or (running is not None and batch < running.batch):
        return life, (do.Refuse(batch),)
    if life.step is not None:
        return life, (do.Wait(),)
    if batch != life.dry.batch and (life.again is None or batch != life.again.batch):  # a pause waits for the end of these
        life, actions = _ended(life, event.spark, before=batch)
        if actions and not isinstance(actions[0], do.PlanDryRun | do.Fail):
            return life, actions
        if actions:
            return life, (*actions, do.Wait())
        if life.uncommitted is not None or life.dry.batch is not None or event.paused:
            return life, (do.Wait(),)
    parameters = None
    if life.written is not None and life.written.batch == batch:
        parameters = life.written  # its record may be stored already
    elif life.again is not None and life.again.batch == batch:
        parameters = replace(life.again, with_changelogs=event.with_changelogs)
    life = _with_step(life, Writing)
    return life, (do.WriteRecord(life.steps, batch, parameters),)


def _record_written(life: Life, event: events.RecordWritten) -> Decision:
    life = replace(life, written=event.parameters)
    if not event.is_certain:
        return replace(life, step=None), ()
    if event.checkpoint and life.committed >= 0:
        return replace(life, step=Writing(event.number, event.parameters)), (do.StartCheckpoint(event.number),)
    return _begun(replace(life, step=Writing(event.number, event.parameters)))


def _checkpoint_started(life: Life, _: events.CheckpointStarted) -> Decision:
    return _begun(life) if isinstance(life.step, Writing) else (replace(life, step=None), ())


def _begun(life: Life) -> Decision:
    if not isinstance(life.step, Writing) or life.step.parameters is None:
        return life, ()
    running = Running(parameters=life.step.parameters, grouped=life.group_changelogs and life.again is None)
    return replace(life, running=running, again=None, step=None), (do.Begin(running.parameters),)


def _checkpoint_due(life: Life, _: events.CheckpointDue) -> Decision:
    if life.step is not None or life.uncommitted is not None or life.dry.batch is not None:
        return life, ()
    life = _with_step(life, Checkpointing)
    return life, (do.StartCheckpoint(life.steps),)


# -- what is reported of the running batch ---------------------------------------------------------------------------------


def _partition_begun(life: Life, event: events.PartitionBegun) -> Decision:
    if (running := life.running) is None:
        return life, ()
    empty = running.empty.with_begun(*event.part)
    return replace(life, running=replace(running, computed=True, empty=empty, rowless=running.rowless - {event.part})), ()


def _partition_empty(life: Life, event: events.PartitionEmpty) -> Decision:
    running = _of(life, event.batch)
    if running is None:
        return life, ()
    empty = running.empty.with_report(event.uid, event.run)
    return _left_to_store(replace(life, running=replace(running, computed=True, empty=empty)), event.uid, event.batch)


def _acknowledged(life: Life, event: events.Acknowledged) -> Decision:
    running, part = _of(life, event.batch), frozenset({event.part})
    if running is None:
        return life, (do.Refuse(event.batch),)
    unstored = running.unstored - part if event.is_stored else running.unstored | part
    running = replace(running, acknowledged=running.acknowledged | part, unstored=unstored)
    return _left_to_store(replace(life, running=running), event.part[0], event.batch)


def _orders_compared(life: Life, event: events.OrdersCompared) -> Decision:
    if (running := life.running) is None:
        return life, ()
    others = frozenset(part for part in running.acknowledged if part[0] == event.uid) - event.acknowledged
    acknowledged, unstored = running.acknowledged - others, running.unstored - others
    disputed = running.disputed or event.is_disputed
    return replace(life, running=replace(running, disputed=disputed, acknowledged=acknowledged, unstored=unstored)), ()


def _unproven(life: Life, event: events.Unproven) -> Decision:
    return _left_to_store(life, event.uid, event.batch)


def _left_to_store(life: Life, uid: str, batch: int) -> Decision:
    running, slots = _of(life, batch), life.open_slots(uid)
    if running is None:
        return life, ()
    if slots and running.empty.account_for(uid, slots):
        if running.parameters.with_changelogs:
            return life, (do.KeepProofs(batch, uid, slots, running.grouped),)
        return replace(life, running=replace(running, rowless=running.rowless | {(uid, slot) for slot in slots})), ()
    if running.unstored and not life.open_steps:
        return life, (do.StoreGroup(batch),)
    return life, ()


def _proofs_kept(life: Life, event: events.ProofsKept) -> Decision:
    running = _of(life, event.batch)
    if running is None or not running.empty.account_for(event.uid, event.slots):
        return life, ()
    rowless = running.rowless | {(event.uid, slot) for slot in event.slots}
    life = replace(life, running=replace(running, rowless=rowless, unstored=running.unstored | event.unstored))
    return _left_to_store(life, event.uid, event.batch)


def _group_stored(life: Life, event: events.GroupStored) -> Decision:
    running = _of(life, event.batch)
    return (life if running is None else replace(life, running=replace(running, unstored=event.unstored))), ()


# -- a batch ends ----------------------------------------------------------------------------------------------------------


def _looked(life: Life, event: events.Looked) -> Decision:
    return _ended(life, event.spark)


def _ended(life: Life, spark: Spark, *, before: int | None = None) -> Decision:
    """Commit the batch that runs if Spark has committed it and it is complete; ``before`` is a batch that proves that Spark has."""
    if life.step is not None or life.dry.batch is not None or life.failed:
        return life, ()
    last, open_batch = max(spark.committed, -1 if before is None else before - 1), life.uncommitted
    if open_batch is None:
        # The first batch never begins here if the sink has read nothing of it.
        planned = spark.planned if before is None else before - 1
        return _not_complete(life, planned) if life.committed < planned <= spark.committed else (life, ())
    batch = open_batch.batch
    if last < batch:
        return life, ()
    if life.again is not None and spark.committed >= batch and not spark.has_state:
        return replace(life, dry=replace(life.dry, batch=batch)), ()  # the sink had the batch already, and has skipped it
    running = life.running
    if running is not None and not life.open_steps:
        if not running.unstored:
            return _committed(life)
        life = _with_step(life, Ending)
        return life, (do.StoreLeftovers(life.steps, batch),)
    if running is not None and running.disputed:  # its changelogs do not belong together
        return _not_complete(life, batch)
    life = _with_step(life, Ending)
    return life, (do.Search(life.steps, batch),)


def _leftovers_stored(life: Life, event: events.LeftoversStored) -> Decision:
    if life.running is None:
        return life, ()
    life = replace(life, step=None, running=replace(life.running, unstored=event.unstored))
    return (life, ()) if event.unstored or life.open_steps else _committed(life)


def _committed(life: Life) -> Decision:
    if life.running is None:
        return life, ()
    batch = life.running.batch
    return replace(life, committed=batch, running=None, again=None, step=None), (do.Commit(batch),)


def _searched(life: Life, event: events.Searched) -> Decision:
    found, running = life.uncommitted, life.running
    if found is None:
        return life, ()
    if running is not None and not life.open_steps:
        return replace(life, step=None), ()  # completed meanwhile
    if event.steps is None or (running is not None and running.computed and event.steps != life.uids):
        # The sink has not skipped a batch that was computed: it has read a part of it, of other steps than the other attempt had.
        return _not_complete(replace(life, step=None), found.batch)
    life = _with_step(life, Adopting)
    return life, (do.Adopt(life.steps, found, running is not None),)


def _adopted(life: Life, event: events.Adopted) -> Decision:
    if (adopted := life.uncommitted) is None:
        return life, ()
    if not event.is_done:
        return _not_complete(replace(life, step=None), adopted.batch)
    return replace(life, committed=adopted.batch, running=None, again=None, step=None), ()


def _not_complete(life: Life, batch: int) -> Decision:
    """Ask for a dry run of a batch that Spark has committed, once."""
    uids = tuple(life.open_steps)
    if life.dry.last == batch:
        return replace(life, failed=True), (do.Fail(batch, uids),)
    return replace(life, dry=replace(life.dry, batch=batch)), (do.PlanDryRun(batch, uids, life.again is not None),)


# -- queries, slots, and the way back --------------------------------------------------------------------------------------


def _query_starts(life: Life, event: events.QueryStarts) -> Decision:
    spark, running, again, dry = event.spark, life.running, life.again, life.dry
    actions: list[do.Action] = []
    if running is not None and spark.committed < running.batch:
        # Usually Spark runs the batch again. If a replaced driver commits it to the sink first, Spark does not, and the slots of this driver have
        # acknowledged only a part of it.
        again = running.parameters
    if running is not None and dry.batch is None:
        running = replace(running, computed=False)
    if life.dry_run_due(spark) and dry.batch is not None:
        if not dry.running:
            actions.append(do.ForgetCommit(dry.batch))
        dry = DryRun(last=dry.batch) if dry.running else replace(dry, running=True)
    known = [each.batch for each in (running, again, life.written, dry) if each is not None and each.batch is not None]
    actions.append(do.ForgetPlans(max(life.committed, *known, -1)))
    return replace(life, running=running, again=again, dry=dry, queries=life.queries + 1), tuple(actions)


def _must_go_back(life: Life, event: events.MustGoBack) -> Decision:
    if life.step is not None:
        return life, (do.Wait(),)
    life = _with_step(life, GoingBackwards)
    known = [each.batch for each in (life.running, life.written) if each is not None]
    used = max(life.committed, event.planned, *known, -1)
    return life, (do.GoBack(life.steps, used),)


def _went_back(life: Life, event: events.WentBack) -> Decision:
    return replace(life, committed=event.committed, again=event.again, written=None, running=None, dry=DryRun(), step=None), ()


def _rescaled(life: Life, event: events.Rescaled) -> Decision:
    return replace(life, parallelism=event.parallelism), ()


def _step_failed(life: Life, _: events.StepFailed) -> Decision:
    return replace(life, step=None), ()


def _of(life: Life, batch: int) -> Running | None:
    """The running batch if it has this number and can still be reported about."""
    return life.running if life.accepts(batch) else None


def _with_step(life: Life, kind: Callable[[int], Step]) -> Life:
    """Begin a step, under the next number."""
    number = life.steps + 1
    return replace(life, steps=number, step=kind(number))


_DECISIONS: Mapping[type[events.Event], Callable[[Life, Any], Decision]] = {
    events.Asked: _asked,
    events.Looked: _looked,
    events.CheckpointDue: _checkpoint_due,
    events.RecordWritten: _record_written,
    events.CheckpointStarted: _checkpoint_started,
    events.StepFailed: _step_failed,
    events.LeftoversStored: _leftovers_stored,
    events.Searched: _searched,
    events.Adopted: _adopted,
    events.PartitionBegun: _partition_begun,
    events.PartitionEmpty: _partition_empty,
    events.Acknowledged: _acknowledged,
    events.OrdersCompared: _orders_compared,
    events.Unproven: _unproven,
    events.ProofsKept: _proofs_kept,
    events.GroupStored: _group_stored,
    events.QueryStarts: _query_starts,
    events.MustGoBack: _must_go_back,
    events.WentBack: _went_back,
    events.Rescaled: _rescaled,
}
