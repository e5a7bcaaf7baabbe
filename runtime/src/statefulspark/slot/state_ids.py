"""State ids, as slots see them: numbered job-wide by the coordinator, remembered here."""

from __future__ import annotations

from typing import Any

from statefulspark.errors import InvalidInputError
from statefulspark.rpc.flight import FlightPeer
from statefulspark.rpc.messages.slots import RegisterState
from statefulspark.state.encoding.layout import StateInfo, is_segmented


class CoordinatorStateIds:
    """Asks the coordinator for the id of a state once, and once more when a list of it becomes long."""

    def __init__(self, coordinator: FlightPeer) -> None:
        self._coordinator = coordinator
        self._known: dict[tuple[str, str], StateInfo] = {}
        self._of_steps: dict[str, dict[int, StateInfo]] = {}

    def register(self, uid: str, name: str, kind: str, description: dict[str, Any]) -> StateInfo:
        """A state; NotRestorableError when restored state has another kind or type, InvalidInputError when the step's own has."""
        key = (uid, name)
        state = self._known.get(key)
        if state is None or (is_segmented(description) and not state.segmented):
            request = RegisterState(uid=uid, name=name, kind=kind, description=description)
            answer = self._coordinator.call(request)
            state = answer.state
            if not description.get("remembered"):
                self._known[key] = state
            self._of_steps[uid] = {state.state_id: state for state in answer.step_states}
        if state.kind != kind:
            raise InvalidInputError(
                f"declared as {state.kind} before, now as {kind}",
                field=f"state {name!r} of uid {uid!r}",
                remedy="Give each state of a step its own name",
            )
        return state

    def known(self, uid: str) -> list[dict[str, Any]]:
        """The states of ``uid``, for the changelog's header: it may be the only one that names them to the next driver.

        Those that no function has declared here are as they were when one was last declared. Other slots' headers name those since then.
        """
        states = self._of_steps.get(uid, {}) | {info.state_id: info for (owner, _), info in self._known.items() if owner == uid}
        return [states[number].to_json() for number in sorted(states)]
