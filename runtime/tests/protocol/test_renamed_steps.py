"""A keyed step whose uid changes: the state under the old uid is not lost unless the manifest allows it."""

from __future__ import annotations

import pytest

from statefulspark.errors import NotRestorableError
from statefulspark.job.start.preflight import RestorableState, check_uids, restorable_state
from statefulspark.storage.open import open_store

from .changing import ChangingDriver, ChangingWorld
from .conftest import StartChanging


def found(world: ChangingWorld) -> RestorableState:
    return restorable_state(world.store, None, open_store)


def run(driver: ChangingDriver, *, deliver: bool = True, commit: bool = True) -> int:
    batch = driver.plan(6)
    assert batch is not None
    driver.run(batch, deliver=deliver, commit=commit)
    return batch


def test_the_first_batch_that_only_the_sink_has(changing: ChangingWorld, begin: StartChanging) -> None:
    """No record lists its changelogs yet. The next driver adopts them, so it must have their step."""
    assert run(begin("a"), commit=False) == 0
    assert found(changing).uids == {"a"}
    with pytest.raises(NotRestorableError, match=r"'a', but the pipeline has only 'renamed'"):
        check_uids(found(changing), {"renamed"}, allow_non_restored=False)
    check_uids(found(changing), {"renamed"}, allow_non_restored=True)
    check_uids(found(changing), {"a", "renamed"}, allow_non_restored=False)


def test_a_batch_that_no_slot_has_processed_leaves_no_state(changing: ChangingWorld, begin: StartChanging) -> None:
    """Its rows run again, and the renamed step gets them."""
    driver = begin("a")
    assert driver.plan(6) == 0
    driver.begin()
    assert found(changing).uids == frozenset()


def test_a_batch_that_was_processed_in_part_leaves_no_state(changing: ChangingWorld, begin: StartChanging) -> None:
    """Nobody can have committed it, so it runs again with all of its rows."""
    driver = begin("a")
    assert driver.plan(6) == 0
    driver.run(0, reads=1, commit=False)
    assert found(changing).uids == frozenset()


@pytest.mark.parametrize("deaths", range(3))
def test_a_step_that_was_added_since_the_last_committed_batch(changing: ChangingWorld, begin: StartChanging, deaths: int) -> None:
    """Also if drivers without the step have died since, which only recorded the batch again."""
    run(begin("a"))
    second = begin("a", "b")
    assert run(second) == 0
    assert run(second, commit=False) == 1
    for _ in range(deaths):
        driver = begin("a")
        assert driver.plan(6) == 1
        driver.begin()
    assert found(changing).uids == {"a", "b"}


def test_a_renamed_step_that_is_allowed_to_begin_anew_does_so_after_the_batch(changing: ChangingWorld, begin: StartChanging) -> None:
    """What the refusal protects: the batch is adopted, so its rows never reach the renamed step."""
    assert run(begin("a"), commit=False) == 0
    driver = begin("renamed")
    while (batch := driver.plan(9)) is not None:
        driver.run(batch)
    driver.checkpoint()
    changing.check("renamed")
    assert changing.steps_of[0] == ("a",)
