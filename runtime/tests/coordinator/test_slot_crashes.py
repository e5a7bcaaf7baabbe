"""A slot that dies again and again at the same rows is told from machines that come and go."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.coordinator.slots.crashes import DEATHS_MAX, CrashWatch
from statefulspark.errors import SlotCrashedError


class Slot:
    """One slot under the watch."""

    def __init__(self) -> None:
        self.failures: list[SlotCrashedError] = []
        self.watch = CrashWatch()
        self.watch.on_failure(self.failures.append)
        self.epoch = 1

    def die(self, batch: int, *, committed: int, rows: int = 0, executor: str = "e-1", then: str = "e-1") -> None:
        """It gets rows, dies, and starts again; the job has processed ``rows`` before."""
        self.watch.began(3, batch, uid="count", epoch=self.epoch, executor=executor)
        self.watch.ended(3, then, epoch=self.epoch, committed=committed, position=(rows, 0 if rows else committed))
        self.epoch += 1


def test_the_same_batch_again_and_again_is_a_named_failure() -> None:
    """Batch, slot and remedy; once, since the restart strategy may go on."""
    slot = Slot()
    for _ in range(DEATHS_MAX - 1):
        slot.die(7, committed=6)
    assert not slot.failures
    slot.die(7, committed=6)
    (failure,) = slot.failures
    for text in (f"slot 3 died {DEATHS_MAX} times at the same rows", "batch 7", "uid 'count'", "spec.executor.memory"):
        assert text in str(failure)
    slot.die(7, committed=6)
    assert len(slot.failures) == 1


@given(committed=st.lists(st.booleans(), min_size=60, max_size=60))
def test_a_job_that_gets_on_never_fails(committed: list[bool]) -> None:
    """Whatever dies how often: a committed batch forgives, as long as no batch has too many deaths."""
    slot, batch, deaths = Slot(), 0, 0
    for done in committed:
        if done or deaths == DEATHS_MAX - 1:
            batch, deaths = batch + 1, 0
        slot.die(batch, committed=batch - 1)
        deaths += 1
    assert not slot.failures


def test_deaths_in_different_batches_of_a_job_that_goes_back_are_no_failure() -> None:
    """Ten batches more each time, and no checkpoint: the rows of the death before did not kill it again."""
    slot = Slot()
    for number in range(8 * DEATHS_MAX):
        slot.die(10 * number, committed=10 * number - 1, rows=100 * number)
        slot.watch.replaced(rescaled=False)
    assert not slot.failures


@pytest.mark.parametrize("seed", range(20))
def test_a_deadly_row_is_found_although_the_job_goes_back_to_other_checkpoints(seed: int) -> None:
    """Batches have other numbers each time, and may be cut differently; the job never processes more rows than those before the deadly one."""
    slot, chance, batch, deaths = Slot(), Random(seed), 0, 0
    while not slot.failures:
        batch, deaths = batch + chance.randint(1, 5), deaths + 1
        slot.die(batch, committed=batch - 1, rows=chance.choice([90, 100]))
        slot.watch.replaced(rescaled=False)
    assert deaths <= 2 * DEATHS_MAX


def test_executors_that_are_lost_count_half() -> None:
    """Nodes are drained; still, no batch kills executors for ever."""
    slot = Slot()
    for number in range(2 * DEATHS_MAX - 1):
        slot.die(7, committed=6, executor=f"e-{number}", then=f"e-{number + 1}")
    assert not slot.failures
    slot.die(7, committed=6, executor="e-98", then="e-99")
    assert len(slot.failures) == 1


def test_what_died_after_its_batch_or_before_it_had_rows_does_not_count() -> None:
    """Neither a slot that waits for rows, nor one whose batch is committed, dies of a row."""
    slot = Slot()
    for _ in range(50):
        slot.die(7, committed=7)
        slot.watch.ended(3, "e-1", epoch=slot.epoch, committed=6, position=(0, 6))
        slot.epoch += 1
    assert not slot.failures
    for _ in range(DEATHS_MAX - 1):
        slot.die(8, committed=7)
    slot.watch.replaced(rescaled=True)
    slot.die(8, committed=7)
    assert not slot.failures
