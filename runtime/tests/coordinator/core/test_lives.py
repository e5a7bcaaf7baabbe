"""Thousands of events in any order: nothing counts before it is durable, nothing counts twice, and all that has begun ends.

Faults of the batch protocol that were mended before, put back into the core, are each found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from statefulspark.coordinator.core import actions as do
from statefulspark.coordinator.core import events
from statefulspark.coordinator.core.decide import Decision, decide
from statefulspark.coordinator.core.life import Adopting, GoingBackwards, Life

from .simulation import Simulation

TURNS = 200
LIVES = 30

Decide = Callable[[Life, events.Event], Decision]


def live(seed: int, decided: Decide = decide) -> Simulation:
    """Let a job live for a while, and then come to rest."""
    dice = Random(seed)
    kind = dice.randrange(3)
    simulation = Simulation(dice, decided, group=kind == 1, goes_back=kind == 2)
    for _ in range(TURNS):
        simulation.turn()
    simulation.calm_down()
    return simulation


@pytest.mark.parametrize("first", [0, LIVES, 2 * LIVES])
def test_whatever_happens_the_invariants_hold(first: int) -> None:
    """Each seed is another life."""
    lives = [live(seed) for seed in range(first, first + LIVES)]
    assert sum(each.events for each in lives) > 3400
    assert sum(len(each.committed_ever) for each in lives) > LIVES


def _counts_partial_reads(life: Life, event: events.Event) -> Decision:
    """A batch is completed although its sink has read only part of it."""
    after, actions = decide(life, event)
    if isinstance(actions[0] if actions else None, do.Search) and after.running is not None:
        return replace(after, committed=after.running.batch, running=None, step=None), (do.Commit(after.running.batch),)
    return after, actions


def _plans_again(life: Life, event: events.Event) -> Decision:
    """A batch whose record could not be written is planned again, or gets a new processing time."""
    after, actions = decide(life, event)
    is_lost = after != life and isinstance(event, events.RecordWritten) and not event.is_certain
    return (replace(after, written=None) if is_lost else after), actions


def _forgets_the_record(life: Life, event: events.Event) -> Decision:
    """A checkpoint that does not start lets the batch get another record."""
    after, actions = decide(life, event)
    return (replace(after, written=None) if isinstance(event, events.StepFailed) else after), actions


def _answers_early(life: Life, event: events.Event) -> Decision:
    """The driver answers the last slot of a batch before it has stored the group of changelogs."""
    after, actions = decide(life, event)
    if after.running is not None:
        after = replace(after, running=replace(after.running, unstored=frozenset()))
    return after, tuple(action for action in actions if not isinstance(action, do.StoreGroup))


def _adopts_other_steps(life: Life, event: events.Event) -> Decision:
    """A batch of which a sink has read a part is adopted from an attempt with other steps."""
    after, actions = decide(life, event)
    if isinstance(event, events.Searched) and event.steps is not None and after != life and isinstance(actions[0], do.PlanDryRun):
        after, actions = decide(replace(life, running=None, again=life.uncommitted), event)
        after = replace(after, running=life.running, again=life.again)
    return after, actions


def _lets_slots_acknowledge(life: Life, event: events.Event) -> Decision:
    """Acknowledgements count although the batch is adopted from another attempt."""
    if isinstance(event, events.Acknowledged) and isinstance(life.step, Adopting):
        after, actions = decide(replace(life, step=None), event)
        return replace(after, step=life.step), actions
    return decide(life, event)


def _takes_late_results(life: Life, event: events.Event) -> Decision:
    """The result of an earlier step counts for the one of now."""
    if life.step is not None and isinstance(event, events.Searched | events.LeftoversStored | events.CheckpointStarted | events.StepFailed):
        event = replace(event, number=life.step.number)
    return decide(life, event)


def _counts_tasks_that_run_again(life: Life, event: events.Event) -> Decision:
    """A partition without rows whose task runs again counts for two slots."""
    if isinstance(event, events.PartitionEmpty):
        event = replace(event, run=replace(event.run, partition=event.run.task))
    return decide(life, event)


def _runs_on_the_way_back(life: Life, event: events.Event) -> Decision:
    """A job that goes back in time begins a batch of before."""
    if isinstance(event, events.Asked) and isinstance(life.step, GoingBackwards):
        return decide(replace(life, step=None), event)
    return decide(life, event)


def _reuses_numbers(life: Life, event: events.Event) -> Decision:
    """A job that goes back in time reuses batch numbers."""
    after, actions = decide(life, event)
    return after, tuple(replace(each, used=life.committed - 1) if isinstance(each, do.GoBack) else each for each in actions)


def _starts_checkpoints_in_batches(life: Life, event: events.Event) -> Decision:
    """A checkpoint starts while a batch runs, so that it has a part of it."""
    if isinstance(event, events.CheckpointDue) and life.step is None:
        after, actions = decide(replace(life, running=None, again=None, dry=replace(life.dry, batch=None)), event)
        return replace(after, running=life.running, again=life.again, dry=life.dry), actions
    return decide(life, event)


FAULTS: list[tuple[Decide, str]] = [
    (_counts_partial_reads, "a batch counts although"),
    (_plans_again, "other parameters|another record"),
    (_forgets_the_record, "another record of the same batch"),
    (_answers_early, "changelogs are not durable"),
    (_adopts_other_steps, "steps that the sink has read get nothing"),
    (_lets_slots_acknowledge, "a slot acknowledges what it must drop"),
    (_takes_late_results, "a late result counts"),
    (_counts_tasks_that_run_again, "a batch counts although"),
    (_runs_on_the_way_back, "a batch runs on the way back"),
    (_reuses_numbers, "a number is used twice"),
    (_starts_checkpoints_in_batches, "in the middle of a batch"),
]


def _live_until_found(fault: Decide) -> int:
    for seed in range(500):
        live(seed, fault)
    return 500


@pytest.mark.parametrize(("fault", "complaint"), FAULTS)
def test_faults_that_are_put_back_are_found(fault: Decide, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        _live_until_found(fault)
