"""A slot that catches up with another incarnation's batch, and whose function cannot be opened at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statefulspark import RuntimeContext
from statefulspark.errors import StatefulSparkError, UnavailableError
from statefulspark.rpc.messages.batches import Acknowledge
from statefulspark.rpc.messages.slots import Reopened

from .one_slot import UID, Coordinator, Count, Slot, stored_counts


class OpensLater(Count):
    """Its second copy in a process cannot be opened the first time."""

    copies = 0

    def open(self, runtime_context: RuntimeContext) -> None:
        type(self).copies += 1
        if type(self).copies == 3:  # the first slot's, this slot's, and the one after catching up
            raise OSError("no connection")
        super().open(runtime_context)


class LosesAnAnswer:
    """A coordinator that does not answer the first request for an attempt number."""

    def __init__(self, coordinator: Any) -> None:
        self._coordinator = coordinator
        self._lost = False

    def call(self, message: Any, **given: Any) -> Any:
        if isinstance(message, Reopened) and not self._lost:
            self._lost = True
            raise UnavailableError("no answer")
        return self._coordinator.call(message, **given)


@pytest.mark.parametrize("failure", ["open", "answer"])
def test_state_is_not_lost_when_the_function_cannot_be_opened_after_catching_up(tmp_path: Path, failure: str) -> None:
    """The retry runs on the state that the slot has caught up with, and what it changes there is stored."""
    coordinator = Coordinator()
    acks: list[Acknowledge] = []
    coordinator.ack = acks.append
    OpensLater.copies = 0
    function = OpensLater() if failure == "open" else Count()
    folders = tmp_path / "a", tmp_path / "b"
    for folder in folders:
        folder.mkdir()
    earlier = Slot(folders[0], coordinator, 1 << 20, function)
    assert earlier.run(0, [1, 2]) == [(1, 1), (2, 1)]
    slot = Slot(folders[1], coordinator, 1 << 20, function)
    step: Any = slot.service.keyed_steps[UID]
    object.__setattr__(step._config, "store", earlier.job)
    assert acks[0].changelog is not None
    coordinator.changelogs = [acks[0].changelog]
    if failure == "answer":
        step._coordinator = LosesAnAnswer(step._coordinator)
    with pytest.raises(StatefulSparkError):
        slot.run(1, [1, 2])
    assert slot.run(1, [1, 2]) == [(1, 2), (2, 2)]
    assert slot.run(2, [1]) == [(1, 3)]
    slot.settle(2)
    assert stored_counts(slot.store) == [2, 3]
