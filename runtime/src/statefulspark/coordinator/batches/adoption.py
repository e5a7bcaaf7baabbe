"""Adoption: takes over a batch that another attempt has processed completely."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from statefulspark.checkpoint.formats import paths
from statefulspark.coordinator.batches.changelogs import BatchChangelogs, Complete, Done
from statefulspark.coordinator.batches.log import Adopted, BatchLog
from statefulspark.coordinator.core.life import BatchParameters
from statefulspark.coordinator.slots.calls import SlotCalls
from statefulspark.coordinator.slots.operator_states import OperatorDistribution
from statefulspark.coordinator.slots.state import LOST, READY
from statefulspark.coordinator.slots.table import SlotTable
from statefulspark.errors import StatefulSparkError
from statefulspark.keygroups import KeyGroupRange
from statefulspark.state.registry import StateRegistry

_log = structlog.get_logger("statefulspark.coordinator")


class Adoption:
    """Finds such attempts and applies what they left.

    Args:
        changelogs: Of batches, in storage.
        batches: The job's batches, guarded by the inbox.
        states: State ids.
        operator_states: The distribution of operator state to the present slots, guarded by the inbox.
        slots: Returns the table of now, which a rescale replaces.
        calls: Calls slots.
        key_groups: Returns the key groups of a slot.
    """

    def __init__(
        self,
        *,
        changelogs: BatchChangelogs,
        batches: BatchLog,
        states: StateRegistry,
        operator_states: OperatorDistribution,
        slots: Callable[[], SlotTable],
        calls: SlotCalls,
        key_groups: Callable[[int], KeyGroupRange],
    ) -> None:
        self.search = changelogs.complete
        self._changelogs = changelogs
        self._batches = batches
        self._states = states
        self._operator_states = operator_states
        self._slots = slots
        self._calls = calls
        self._key_groups = key_groups

    def take_over_states(self, batch: int, found: Complete) -> bool:
        """Take over the state ids of a batch. False if they mean something else here: that attempt completed the batch after this one had started."""
        if self._states.take_over(found.states):
            return True
        _log.warning(
            "not adopting the batch that another attempt completed: its state ids conflict with those of this attempt",
            batch=batch,
        )
        return False

    def undo(self, batch: int) -> None:
        """Let slots drop what they changed in ``batch``: the changelogs of another attempt count, perhaps of other code."""
        for slot in self._slots().all():
            if slot.state == READY:
                try:
                    self._calls.undo(slot, batch)
                except StatefulSparkError as error:
                    _log.info("slot did not roll back the batch, restarting it", slot=slot.index, error=str(error)[:200])
                    self._slots().retire(slot.index, slot.epoch)
            elif slot.state == LOST:
                self._slots().retire(slot.index, slot.epoch)

    def apply(self, parameters: BatchParameters, found: Complete) -> None:
        """Count the batch as committed, as that attempt has left it. The caller holds the lock of the inbox."""
        slots = self._slots().all()
        done = [adopted(each) for each in found.done]
        self._batches.adopt(parameters, done, [self._key_groups(slot.index) for slot in slots])
        is_of_other_steps = not {ref.uid for ref in found.refs} <= set(self._batches.delays_ms)
        if self._is_of_other_distribution(parameters.batch, found) or is_of_other_steps:
            # Only by restoring it do slots get operator state, and does the kept state of steps that the job no longer has get the batch: a slot
            # catches up with batches step by step, for the steps that it runs.
            for slot in slots:
                self._slots().retire(slot.index, slot.epoch)
        _log.info("adopted the changelogs of another attempt", batch=parameters.batch)

    def _is_of_other_distribution(self, batch: int, found: Complete) -> bool:
        """True if another attempt has distributed operator state for ``batch`` in another way than this one, also to slots without rows."""
        attempts = {paths.attempt_and_batch(ref.key) for ref in found.refs}
        if attempts == {(self._changelogs.attempt, batch)}:
            self._operator_states.committed(batch)
            return False
        return bool(attempts) and self._operator_states.forget()


def adopted(done: Done) -> Adopted:
    """Return the stand-in for the acknowledgement of a changelog."""
    first_ms, second_ms = done.event_times_ms
    return Adopted(
        changelog=done.ref,
        max_event_time_ms=first_ms,
        second_max_event_time_ms=second_ms,
        event_times_by_value=done.event_times_by_value,
    )
