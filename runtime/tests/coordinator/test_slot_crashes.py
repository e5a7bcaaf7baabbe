"""A slot that dies again and again in one batch is told from machines that come and go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from statefulspark.coordinator.slot_crashes import DEATHS_MAX, CrashWatch
from statefulspark.errors import UserFunctionError


class Slot:
    """One slot under the watch."""

    def __init__(self) -> None:
        self.failures: list[UserFunctionError] = []
        self.watch = CrashWatch()
        self.watch.on_failure(self.failures.append)
        self.epoch = 1

    def die(self, batch: int, *, committed: int, executor: str = "e-1", then: str = "e-1") -> None:
        """It gets rows, dies, and starts again."""
        self.watch.began(3, batch, uid="count", epoch=self.epoch, executor=executor)
        self.watch.registered(3, then, before=self.epoch, committed=committed)
        self.epoch += 1


def test_the_same_batch_again_and_again_is_a_named_failure() -> None:
    """Batch, slot and remedy; once, since the restart strategy may go on."""
    slot = Slot()
    for _ in range(DEATHS_MAX - 1):
        slot.die(7, committed=6)
    assert not slot.failures
    slot.die(7, committed=6)
    (failure,) = slot.failures
    for text in (f"slot 3 crashed {DEATHS_MAX} times in batch 7", "uid 'count'", "spec.executor.memory"):
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
        slot.watch.registered(3, "e-1", before=slot.epoch, committed=6)
        slot.epoch += 1
    assert not slot.failures
    for _ in range(DEATHS_MAX - 1):
        slot.die(8, committed=7)
    slot.watch.forget()
    slot.die(8, committed=7)
    assert not slot.failures
