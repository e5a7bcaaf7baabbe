"""What a slot starts with: the operator state that the coordinator sends, or, once it is in storage, what the slot finds there itself."""

from __future__ import annotations

from statefulspark.checkpoint.formats.operator_state import decode_operator_file
from statefulspark.checkpoint.restore.operator_state import StoredOperatorState
from statefulspark.rpc.messages.slots import OperatorRestore
from statefulspark.state.operator.backend import StepOperatorState
from statefulspark.state.operator.entries import lists_of


class RestoredOperatorState:
    """The operator state of one incarnation of a slot.

    Args:
        slot: Number of the slot.
        sent: What the coordinator has sent; None if no step of the job has operator state.
        batch: The last committed batch, which the slot restores.

    Attributes:
        stored: Must be filled from the checkpoint and the changelogs that the slot restores; None if the coordinator has sent everything.
    """

    def __init__(self, slot: int, sent: OperatorRestore | None, batch: int) -> None:
        self._slot = slot
        self._sent = sent
        self._batch = batch
        first = sent.first if sent is not None else None
        self.stored = StoredOperatorState(slot=slot, first=first) if first is not None else None

    def of(self, uid: str) -> StepOperatorState:
        """Return what a step starts with.

        Raises:
            CorruptDataError: What was sent is damaged.
        """
        part = self._sent.parts.get(uid) if self._sent is not None else None
        if part is None:
            return StepOperatorState(batch=self._batch)
        if self.stored is not None:
            lists, states = self.stored.lists(uid).get(self._slot, {}), tuple(self.stored.states(uid))
        else:
            where = "operator state from the coordinator"
            lists, states = lists_of(decode_operator_file(part.lists, path=where), self._slot, where=where), part.states
        return StepOperatorState(lists, states, part.restored, self._batch)

    def report_ms(self, uid: str) -> int | None:
        """Return the timestamp of the snapshot that the step's function must take before the slot is ready; None if it must take none."""
        part = self._sent.parts.get(uid) if self._sent is not None else None
        return self._sent.processing_time_ms if self._sent is not None and part is not None and part.assigned else None
