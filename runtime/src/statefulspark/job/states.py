"""The job-wide registry of states: gives each (uid, state name) its id and refuses a state that changed its kind or type."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from statefulspark.errors import InvalidInputError, NotRestorableError

_IDS_MAX = 65536


class StateRegistry:
    """Ids are never used again, so a key in any store of the job means one state for ever."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_name: dict[tuple[str, str], dict[str, Any]] = {}

    def restore(self, states: Iterable[Mapping[str, Any]]) -> None:
        """Take over what a checkpoint or changelog knows."""
        with self._lock:
            for info in states:
                self._by_name[(info["uid"], info["name"])] = dict(info)

    def register(self, uid: str, name: str, kind: str, description: Mapping[str, Any]) -> dict[str, Any]:
        """Return the JSON form of the state's StateInfo.

        Raises:
            NotRestorableError: the state exists with another kind, key type, type or TTL switch.
            InvalidInputError: more than 65,536 states.
        """
        with self._lock:
            known = self._by_name.get((uid, name))
            if known is None:
                taken = {info["state_id"] for info in self._by_name.values()}
                state_id = max(taken, default=0) + 1
                if state_id >= _IDS_MAX:
                    raise InvalidInputError(f"a job has at most {_IDS_MAX - 1} states", field=f"{uid}.{name}")
                known = {"state_id": state_id, "uid": uid, "name": name, "kind": kind, **description}
                self._by_name[(uid, name)] = known
                return known
            _check(known, uid, name, kind, description)
            return known

    def uids(self) -> set[str]:
        """Operators that have state."""
        with self._lock:
            return {uid for uid, _ in self._by_name}

    def all(self) -> list[dict[str, Any]]:
        """Every state, by id."""
        with self._lock:
            return sorted((dict(info) for info in self._by_name.values()), key=lambda info: int(info["state_id"]))


def _check(known: Mapping[str, Any], uid: str, name: str, kind: str, description: Mapping[str, Any]) -> None:
    remedy = "Give the state a new name, or restore the function that wrote it"
    if known["kind"] != kind:
        raise NotRestorableError(f"restored as {known['kind']} state, now declared as {kind}", field=f"{uid}.{name}", remedy=remedy)
    for part, value in description.items():
        before = known.get(part)
        if part == "ttl_ms":
            if (before is None) != (value is None):
                raise NotRestorableError(
                    "time-to-live cannot be switched on or off for a state that exists", field=f"{uid}.{name}", remedy=remedy
                )
        elif before != value:
            raise NotRestorableError(f"restored with {part} {before}, now declared with {value}", field=f"{uid}.{name}", remedy=remedy)
