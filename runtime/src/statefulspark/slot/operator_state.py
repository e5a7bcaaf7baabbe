"""A slot's initial operator state: the lists that the coordinator sends or, once they are in storage, that the slot reads there; and broadcast state."""

from __future__ import annotations

from collections.abc import Collection

from statefulspark.checkpoint.formats.operator_state import decode_operator_file
from statefulspark.checkpoint.restore.broadcast_state import StoredBroadcastState
from statefulspark.checkpoint.restore.operator_state import StoredOperatorState
from statefulspark.checkpoint.restore.slot import RestoresOperatorState
from statefulspark.rpc.messages.slots import OperatorRestore
from statefulspark.state.operator.backend import StepOperatorState
from statefulspark.state.operator.entries import OperatorEntry, lists_of


class RestoredOperatorState:
    """The operator state of one incarnation of a slot.

    Args:
        slot: Number of the slot.
        sent: What the coordinator has sent; None if no step of the job has operator state that is distributed.
        batch: The last committed batch, which the slot restores.

    Attributes:
        restores: Must be filled from the checkpoint and the changelogs that the slot restores.
    """

    def __init__(self, slot: int, sent: OperatorRestore | None, batch: int) -> None:
        self._slot = slot
        self._sent = sent
        self._batch = batch
        first = sent.first if sent is not None else None
        self._stored = StoredOperatorState(slot=slot, first=first) if first is not None else None
        self._broadcast = StoredBroadcastState(slot)
        self.restores: list[RestoresOperatorState] = [self._broadcast] if self._stored is None else [self._broadcast, self._stored]

    def of(self, uid: str) -> StepOperatorState:
        """Return a step's initial operator state.

        Raises:
            CorruptDataError: What was sent is damaged.
        """
        part = self._sent.parts.get(uid) if self._sent is not None else None
        broadcast, broadcast_states = self._broadcast.entries(uid), tuple(self._broadcast.states(uid))
        if part is None:
            return StepOperatorState(states=broadcast_states, batch=self._batch, broadcast=broadcast)
        if self._stored is not None:
            lists, states = self._stored.lists(uid).get(self._slot, {}), tuple(self._stored.states(uid))
        else:
            where = "operator state from the coordinator"
            lists, states = lists_of(decode_operator_file(part.lists, path=where), self._slot, where=where), part.states
        return StepOperatorState(lists, (*states, *broadcast_states), part.restored, self._batch, broadcast)

    def left_by(self, uids: Collection[str]) -> list[OperatorEntry]:
        """Return the broadcast state of steps that the job no longer has; see `StoredBroadcastState.left_by`."""
        return self._broadcast.left_by(uids)

    def report_ms(self, uid: str) -> int | None:
        """Return the timestamp of the snapshot that the step's function must take before the slot is ready; None if it must take none."""
        part = self._sent.parts.get(uid) if self._sent is not None else None
        return self._sent.processing_time_ms if self._sent is not None and part is not None and part.assigned else None
