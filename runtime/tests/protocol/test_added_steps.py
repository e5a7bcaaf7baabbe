"""A step that is added while a batch of the driver before is not known to be committed."""

from __future__ import annotations

import pytest

from .conftest import Start
from .world import UID, World


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_a_batch_from_before_a_step_was_added_is_taken_over(world: World, start: Start) -> None:
    """The sink has the batch and skips it. The steps that processed it are complete; the new one begins after it, not in a dry run of it."""
    world.input = [(f"k{number}", 10 * number) for number in range(6)]
    first = start(2)
    for commit in (True, False):
        batch = first.plan(2)
        assert batch is not None
        first.run(batch, commit=commit)
    first.close()
    world.steps = (UID, "added")
    second = start(2)
    assert second.plan(2) == 1
    second.run(1)
    second.coordinator.poll()
    assert second.coordinator.view().dry_run is None
    assert second.coordinator.view().committed == 1
