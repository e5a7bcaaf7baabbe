"""Random edits, crashes and lost drivers: in the end the job is as its spec says, with one driver at a time."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime.tests.depth import examples

from tests.manifests import defaults, manifest
from tests.reconcile.job.plan.world import OperatorDiedError, World

__all__ = ["defaults"]

pytestmark = pytest.mark.usefixtures("defaults")


CHANGES: tuple[dict[str, Any], ...] = (
    {"image": "shop/counts:2"},
    {"parallelism": 4},
    {"state": "suspended"},
    {"state": "running"},
    {"image": "bad"},
    {"image": "failing"},
    {"restartNonce": 1},
    {"upgradeMode": "savepoint"},
    {"upgradeMode": "stateless"},
    {"parallelism": 0},
    {"parallelism": 90},
    {"restartStrategy": {}},
)


@settings(max_examples=examples(20, 200), deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(range(len(CHANGES))),
            st.integers(0, 12),
            st.one_of(st.none(), st.integers(0, 6)),
            st.booleans(),
        ),
        max_size=8,
    )
)
def test_whatever_is_asked_for_and_whoever_dies_the_job_ends_as_the_spec_says(
    steps: list[tuple[int, int, int | None, bool]],
) -> None:
    """Random edits, operators that die after any number of writes, drivers that are lost. In the end: the spec as asked, one driver."""
    world = World(manifest(), broken_images=frozenset({"bad"}), failing_images=frozenset({"failing"}))
    for change, rounds, die_after, lose in steps:
        world.change(**CHANGES[change])
        world.die_after = die_after
        for _ in range(rounds):
            with contextlib.suppress(OperatorDiedError):
                world.reconcile()
            world.tick()
        if lose:
            world.kill_driver()
    world.die_after = None
    world.change(image="shop/counts:9", parallelism=3, state="running", upgradeMode="last-state")
    world.settle(rounds=700)
    assert not world.two_drivers
    assert world.process is not None
    assert (world.process.image, world.process.parallelism) == ("shop/counts:9", 3)
    assert world.status.lifecycle_state == "STABLE"
    assert world.status.transition is None
    world.change(state="suspended")
    world.settle(rounds=100)
    assert world.pod is None
    world.deleting = True
    world.settle(rounds=20)
    assert world.gone
