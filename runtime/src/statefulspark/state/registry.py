"""StateRegistry: assigns state ids, and rejects declarations that would misread stored state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from difflib import get_close_matches
from threading import Lock
from typing import Any, Final

from statefulspark.errors import InvalidInputError, NotRestorableError
from statefulspark.state.encoding.layout import STATE_ID_MAX, StateInfo
from statefulspark.state.operator.entries import RAW_OPERATOR
from statefulspark.state.tables.raw_keyed import RAW_KEYED
from statefulspark.state.timers import TIMER_KINDS

LAZY_STATE_PREFIX: Final = "_window."
"""Begins the names of states that windows declare when they first need them, part of the format of checkpoints. So it means nothing that such
a state is new, or that a restored one is not declared yet."""
_LAZY_KINDS: Final = frozenset({*TIMER_KINDS, RAW_KEYED, RAW_OPERATOR})
"""Kinds without a name of the user's: they exist once they are used."""


class StateRegistry:
    """All states of a job, thread-safe. Numbers are never used again, also not those of states that the code no longer has.

    A function declares its states when it is opened, so which restored states it no longer has is known once every slot has opened it
    (`all_opened`). A state that is new while a restored one of the same step is missing has probably been renamed, and is refused.

    Args:
        states: The states of the checkpoint the job starts from.
        allow_non_restored: The manifest's ``allowNonRestoredState``: leave behind what is missing.
    """

    def __init__(self, states: Iterable[StateInfo] = (), *, allow_non_restored: bool = False) -> None:
        self._lock = Lock()
        self._allow_non_restored = allow_non_restored
        self._opened = False
        self._new: set[tuple[str, str]] = set()
        self._states = {(state.uid, state.name): state for state in states}
        self._missing = {key for key, state in self._states.items() if _is_declared_in_open(state)}
        self._next = max((state.state_id for state in self._states.values()), default=0) + 1

    def register(self, uid: str, name: str, kind: str, description: dict[str, Any]) -> StateInfo:
        """Return the state of this name, numbered now or earlier; see `layout.StateIds`.

        Raises:
            NotRestorableError: The name is taken by a state of another kind or type, or the state appears after `all_opened` while
                a restored one is missing.
            InvalidInputError: All 65,535 numbers are used up.
        """
        with self._lock:
            known = self._states.get((uid, name))
            if known is None:
                if self._next > STATE_ID_MAX:
                    raise InvalidInputError(f"a job has at most {STATE_ID_MAX} states", field="state")
                wanted = StateInfo(self._next, uid, name, kind, **description)
                if _is_declared_in_open(wanted):
                    if self._opened:
                        self._refuse_renamed([(uid, name)])
                    self._new.add((uid, name))
                self._next += 1
            else:
                wanted = StateInfo(known.state_id, uid, name, kind, **description)
                check_restorable(known, wanted)
                wanted = replace(wanted, segmented=known.segmented or wanted.segmented)
                self._missing.discard((uid, name))
            # A changed time to live is taken over, so that what is written down is what the code says now.
            self._states[uid, name] = wanted
            return wanted

    def take_over(self, states: Iterable[StateInfo]) -> bool:
        """Add the states of a batch that another attempt has processed, under the numbers that this attempt gave them.

        Returns:
            False if they do not fit: a number or a name means something else here. Nothing was added then.
        """
        found = list(states)
        with self._lock:
            by_id = {state.state_id: state for state in self._states.values()}
            for state in found:
                named, numbered = self._states.get((state.uid, state.name)), by_id.get(state.state_id)
                if named is None and numbered is None:
                    continue
                if named is None or numbered is not named or not _reads(named, state):
                    return False
            for state in found:
                key = (state.uid, state.name)
                if (known := self._states.get(key)) is not None:
                    self._states[key] = replace(known, segmented=known.segmented or state.segmented)
                else:
                    self._states[key] = state
                    if _is_declared_in_open(state):
                        self._missing.add(key)
            self._next = max(self._next, *(state.state_id + 1 for state in found)) if found else self._next
            return True

    @property
    def in_doubt(self) -> bool:
        """True while a new state may turn out to be a renamed one: no batch may run before `all_opened`."""
        with self._lock:
            return not self._opened and bool({uid for uid, _ in self._new} & {uid for uid, _ in self._missing})

    def all_opened(self) -> list[StateInfo]:
        """Handle that every slot has opened its functions.

        Returns:
            Restored states that the steps of the job no longer declare and that stay behind; empty after the first call.

        Raises:
            NotRestorableError: Such a state has probably been renamed; names both.
        """
        with self._lock:
            if self._opened:
                return []
            self._refuse_renamed(sorted(self._new))
            self._opened = True
            return [self._states[key] for key in sorted(self._missing)]

    def _refuse_renamed(self, new: list[tuple[str, str]]) -> None:
        if self._allow_non_restored:
            return
        for uid, name in new:
            missing = sorted(other for owner, other in self._missing if owner == uid)
            if missing:
                raise _renamed(uid, name, missing)

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
        raise NotRestorableError(f"it was stored as {stored.kind}, but the job declares {wanted.kind}", field=field, remedy=remedy)
    if stored.key_type != wanted.key_type:
        raise NotRestorableError(
            f"it was stored for keys of type {_names(stored.key_type)}, but the job's keys are {_names(wanted.key_type)}",
            field=field,
            remedy="Key by columns of the same types as before, or use a new uid.",
        )
    if stored.type != wanted.type:
        raise NotRestorableError(
            f"it was stored as {_name(stored.type)}, but the job declares {_name(wanted.type)}", field=field, remedy=remedy
        )
    if (stored.ttl_ms is None) != (wanted.ttl_ms is None):
        switched = "off" if wanted.ttl_ms is None else "on"
        raise NotRestorableError(
            f"time to live cannot be switched {switched} for a state that already has values", field=field, remedy=remedy
        )


def _is_declared_in_open(state: StateInfo) -> bool:
    return state.kind not in _LAZY_KINDS and not state.name.startswith(LAZY_STATE_PREFIX)


def _reads(stored: StateInfo, wanted: StateInfo) -> bool:
    try:
        check_restorable(stored, wanted)
    except NotRestorableError:
        return False
    return True


def _renamed(uid: str, name: str, missing: list[str]) -> NotRestorableError:
    closest = get_close_matches(name, missing, n=1, cutoff=0)[0]
    held = ", ".join(map(repr, missing))
    return NotRestorableError(
        f"it is new and would start empty, and the restored state {held} is no longer declared",
        field=f"state {name!r} of uid {uid!r}",
        remedy=f"Declare it as {closest!r} to keep its values (in open(), if it is declared later), or set spec.allowNonRestoredState: true "
        f"to discard {held}",
    )


def _names(types: list[dict[str, Any]]) -> str:
    return ", ".join(_name(each) for each in types)


def _name(type_: dict[str, Any]) -> str:
    """Write a type's JSON description as its declaration reads."""
    parts = [_name(type_[part]) for part in ("key", "value", "element") if part in type_]
    parts += [_name(field) for field in type_.get("fields", ())]
    name = str(type_.get("type", "nothing"))
    return f"{name}({', '.join(parts)})" if parts else name
