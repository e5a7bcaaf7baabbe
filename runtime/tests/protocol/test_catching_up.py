"""A slot that catches up reads changelogs as strictly as one that restores."""

from __future__ import annotations

import pytest

from statefulspark.errors import CorruptDataError
from statefulspark.rpc.messages.batches import Planned

from .conftest import Start
from .world import World


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_another_changelog_under_the_name_is_refused(world: World, start: Start) -> None:
    """The file is whole, but not the one that counts: the batch fails and the state stays as it is."""
    world.input = [(f"key-{n}", 10 * n) for n in range(12)]
    first = start(1)
    for commit in (True, False):
        batch = first.plan(4)
        assert batch is not None
        first.run(batch, commit=commit)
    second = start(1)
    assert second.plan(0) == 1
    second.run(1)
    assert second.plan(4) == 2
    second.coordinator._batch_actions.planned(Planned())
    before, adopted = (ref.key for ref in second.coordinator._batches.changelogs)
    world.store.put(adopted, world.store.get(before))
    with pytest.raises(CorruptDataError, match=f"{adopted}: "):
        second.run(2)
