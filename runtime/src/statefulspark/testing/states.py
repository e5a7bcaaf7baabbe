"""LocalStateIds: numbers states in the process, where a job asks its coordinator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from statefulspark.state.layout import StateInfo, check_restorable

__all__ = ["LocalStateIds"]


class LocalStateIds:
    """Gives out state ids in order of registration.

    Args:
        states: those that exist already.
    """

    def __init__(self, states: Iterable[StateInfo] = ()) -> None:
        self._states = {(state.uid, state.name): state for state in states}

    @property
    def states(self) -> tuple[StateInfo, ...]:
        """All registered states, by id."""
        return tuple(sorted(self._states.values(), key=lambda state: state.state_id))

    def register(self, uid: str, name: str, kind: str, description: dict[str, Any]) -> StateInfo:
        """Return the state, numbered now or earlier.

        Raises:
            NotRestorableError: the state exists with another kind or type.
        """
        found = self._states.get((uid, name))
        if found is not None:
            check_restorable(found, kind, description)
            return found
        info = StateInfo(state_id=len(self._states), uid=uid, name=name, kind=kind, **description)
        self._states[uid, name] = info
        return info
