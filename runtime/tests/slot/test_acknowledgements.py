"""A slot between the end of a batch and the coordinator's answer to its acknowledgement."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from statefulspark.checkpoint.formats.records import ChangelogRef
from statefulspark.errors import FencedError, StatefulSparkError, UnavailableError
from statefulspark.rpc.messages.batches import Acknowledge
from statefulspark.rpc.messages.slot_control import Undo

from .one_slot import UID, Coordinator, Slot, stored_counts


@pytest.mark.parametrize("call", ["undo", "snapshot"])
def test_the_coordinator_may_call_a_slot_before_it_takes_its_acknowledgement(
    make_slot: Callable[[int], Slot], coordinator: Coordinator, call: str
) -> None:
    """It holds its lock during these calls, and needs it for the acknowledgement: a slot that waits for one with the other waits for ever."""
    slot = make_slot(1 << 20)
    slot.run(0, [1])
    called = threading.Event()
    arrived = threading.Event()

    def ack(_: Acknowledge) -> None:
        arrived.set()
        assert called.wait(5), f"{call} did not return"
        raise FencedError("batch 1 is over")

    coordinator.ack = ack
    errors: list[StatefulSparkError] = []

    def run() -> None:
        try:
            slot.run(1, [1, 2])
        except StatefulSparkError as error:
            errors.append(error)

    batch = threading.Thread(target=run)
    batch.start()
    assert arrived.wait(5)
    if call == "undo":
        slot.service.undo(Undo(epoch=1, batch=1))
    else:
        with pytest.raises(FencedError):  # the slot is ahead: the checkpoint is tried again
            slot.begin_snapshot(0)
    called.set()
    batch.join(10)
    assert [type(error) for error in errors] == [FencedError]
    coordinator.ack = lambda _: None
    assert slot.run(1, [2]) == [(2, 1)], "nothing is left of the batch that was not taken"


@pytest.mark.parametrize("refusal", [FencedError("batch 1 is over"), UnavailableError("no answer")])
def test_what_the_coordinator_did_not_take_is_dropped(
    make_slot: Callable[[int], Slot], coordinator: Coordinator, refusal: StatefulSparkError
) -> None:
    """Another run's changelog may count, and a function that draws random numbers changed something else there."""
    slot = make_slot(1 << 20)
    slot.run(0, [1])
    taken: list[ChangelogRef] = []

    def take(ack: Acknowledge) -> None:
        assert ack.changelog is not None
        taken.append(ack.changelog)

    coordinator.ack = take
    slot.run(1, [1, 1])

    def refuse(_: Acknowledge) -> None:
        raise refusal

    coordinator.ack = refuse
    with pytest.raises(type(refusal)):
        slot.run(1, [5, 5, 5])
    coordinator.ack = lambda _: None
    coordinator.changelogs = taken[:1]
    assert slot.run(2, [1, 5]) == [(1, 4), (5, 1)]
    slot.settle(2)
    assert stored_counts(slot.store) == [1, 4]
    assert slot.service.keyed_steps[UID].backend.batch == 2
