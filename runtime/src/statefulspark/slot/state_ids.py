"""State ids, as slots see them: numbered job-wide by the coordinator, remembered here."""

from __future__ import annotations

from typing import Any

from statefulspark.rpc.flight import FlightPeer
from statefulspark.rpc.messages.slots import RegisterState
from statefulspark.state.encoding.layout import StateInfo


class CoordinatorStateIds:
    """Asks the coordinator for the id of a state once."""

    def __init__(self, coordinator: FlightPeer) -> None:
        self._coordinator = coordinator
        self._known: dict[tuple[str, str], StateInfo] = {}

    def register(self, uid: str, name: str, kind: str, description: dict[str, Any]) -> StateInfo:
        """The id of a state; NotRestorableError when restored state has another kind or type."""
        key = (uid, name)
        if key not in self._known:
            request = RegisterState(uid=uid, name=name, kind=kind, description=description)
            self._known[key] = self._coordinator.call(request).state
        return self._known[key]

    def known(self, uid: str) -> list[dict[str, Any]]:
        """The states of ``uid`` registered here, for the changelog's header."""
        return [info.to_json() for (owner, _), info in self._known.items() if owner == uid]
