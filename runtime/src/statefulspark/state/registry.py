"""StateRegistry: gives each state of a job its number, and refuses to hand stored state to code that would misread it."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock
from typing import Any

from statefulspark.errors import InvalidInputError, NotRestorableError
from statefulspark.state.layout import STATE_ID_MAX, StateInfo


class StateRegistry:
    """All states of a job, thread-safe. Numbers are never used again, also not those of states that the code no longer has.

    Args:
        states: The states of the checkpoint the job starts from.
    """

    def __init__(self, states: Iterable[StateInfo] = ()) -> None:
        self._lock = Lock()
        self._states = {(state.uid, state.name): state for state in states}
        self._next = max((state.state_id for state in self._states.values()), default=0) + 1

    def register(self, uid: str, name: str, kind: str, description: dict[str, Any]) -> StateInfo:
        """Return the state of this name, numbered now or earlier; see `layout.StateIds`.

        Raises:
            NotRestorableError: The name is taken by a state of another kind or type.
            InvalidInputError: All 65,535 numbers are used up.
        """
        with self._lock:
            known = self._states.get((uid, name))
            if known is None:
                if self._next > STATE_ID_MAX:
                    raise InvalidInputError(f"a job has at most {STATE_ID_MAX} states", field="state")
                wanted = StateInfo(self._next, uid, name, kind, **description)
                self._next += 1
            else:
                wanted = StateInfo(known.state_id, uid, name, kind, **description)
                check_restorable(known, wanted)
            # A changed time to live is taken over, so that what is written down is what the code says now.
            self._states[uid, name] = wanted
            return wanted

    def states(self) -> list[StateInfo]:
        """Return all states by number."""
        with self._lock:
            return sorted(self._states.values(), key=lambda state: state.state_id)


def check_restorable(stored: StateInfo, wanted: StateInfo) -> None:
    """Check that code which declares a state as ``wanted`` can read what was written as ``stored``.

    Raises:
        NotRestorableError: It cannot; the text says what differs.
    """
    field = f"state {stored.name!r} of uid {stored.uid!r}"
    remedy = "Declare it as before, or use a new name."
    if stored.kind != wanted.kind:
        raise NotRestorableError(f"it was stored as {stored.kind}, the job declares {wanted.kind}", field=field, remedy=remedy)
    if stored.key_type != wanted.key_type:
        raise NotRestorableError(
            f"it was stored for keys of {_names(stored.key_type)}, the job's keys are {_names(wanted.key_type)}",
            field=field,
            remedy="Key by columns of the same types as before, or use a new uid.",
        )
    if stored.type != wanted.type:
        raise NotRestorableError(
            f"it was stored as {_name(stored.type)}, the job declares {_name(wanted.type)}", field=field, remedy=remedy
        )
    if (stored.ttl_ms is None) != (wanted.ttl_ms is None):
        switched = "off" if wanted.ttl_ms is None else "on"
        raise NotRestorableError(f"its time to live cannot be switched {switched} once it holds values", field=field, remedy=remedy)


def _names(types: list[dict[str, Any]]) -> str:
    return ", ".join(_name(each) for each in types)


def _name(type_: dict[str, Any]) -> str:
    """Write a type's JSON description as its declaration reads."""
    parts = [_name(type_[part]) for part in ("key", "value", "element") if part in type_]
    parts += [_name(field) for field in type_.get("fields", ())]
    name = str(type_.get("type", "nothing"))
    return f"{name}({', '.join(parts)})" if parts else name
