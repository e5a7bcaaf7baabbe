"""StateRegistry: assigns state ids, and rejects declarations that would misread stored state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from threading import Lock
from typing import Any, Final

import structlog

from statefulspark.errors import InvalidInputError, NotRestorableError
from statefulspark.state.api.names import is_reserved
from statefulspark.state.encoding.layout import STATE_ID_MAX, StateInfo
from statefulspark.state.encoding.runtime_states import is_of_late_declaration, is_of_windows
from statefulspark.state.evolution.histories import evolved, longer
from statefulspark.state.operator.entries import RAW_OPERATOR
from statefulspark.state.tables.raw_keyed import RAW_KEYED
from statefulspark.state.timers import TIMER_KINDS

_log = structlog.get_logger("statefulspark.state")
_LAZY_KINDS: Final = frozenset({*TIMER_KINDS, RAW_KEYED, RAW_OPERATOR})
"""Kinds without a name of the user's: they exist once they are used."""


class StateRegistry:
    """All states of a job, thread-safe. Numbers are never used again, also not those of states that the code no longer has.

    A function declares its states when it is opened, so which restored states it no longer has is known once every slot has opened it
    (`all_opened`). A state that is new while a restored one of the same step is missing has probably been renamed, and is refused.

    Args:
        states: The states of the checkpoint the job starts from.
        allow_non_restored: The manifest's ``allowNonRestoredState``: leave behind what is missing.

    Attributes:
        reached_ms: Processing time of the last committed batch. The coordinator moves it.
    """

    def __init__(self, states: Iterable[StateInfo] = (), *, allow_non_restored: bool = False, reached_ms: int = 0) -> None:
        self._lock = Lock()
        self.reached_ms = reached_ms
        self._declared: set[tuple[str, str]] = set()
        self._described: set[tuple[str, str]] = set()
        """States of which this attempt may have tables: declared, or remembered by a window."""
        self._allow_non_restored = allow_non_restored
        self._opened = False
        self._new: set[tuple[str, str]] = set()
        self._states = {(state.uid, state.name): state for state in states}
        self._missing = {key for key, state in self._states.items() if _is_declared_in_open(state)}
        self._next = max((state.state_id for state in self._states.values()), default=0) + 1

    def register(self, uid: str, name: str, kind: str, description: dict[str, Any]) -> StateInfo:
        """Return the state of this name, numbered now or earlier; see `layout.StateIds`.

        Raises:
            NotRestorableError: The name is taken by a state of another kind, or of a type that cannot become the declared one, or the
                state appears after `all_opened` while a restored one is missing.
            InvalidInputError: All 65,535 numbers are used up.
        """
        fields = {field: value for field, value in description.items() if field != "remembered"}
        remembered = bool(description.get("remembered"))
        with self._lock:
            known = self._states.get((uid, name))
            if known is None:
                if self._next > STATE_ID_MAX:
                    raise InvalidInputError(f"a job has at most {STATE_ID_MAX} states", field="state")
                wanted = StateInfo(self._next, uid, name, kind, **fields)
                if _is_declared_in_open(wanted):
                    if self._opened:
                        self._refuse_renamed([(uid, name)])
                    self._new.add((uid, name))
                self._next += 1
            elif remembered:
                check_restorable(known, StateInfo(known.state_id, uid, name, kind, **fields))
                wanted = known
            else:
                wanted = self._evolved(known, StateInfo(known.state_id, uid, name, kind, **fields))
                wanted = replace(wanted, segmented=known.segmented or wanted.segmented)
                self._missing.discard((uid, name))
            # A changed length of the time to live is taken over, so that what is written down is what the code says now.
            self._states[uid, name] = wanted
            self._described.add((uid, name))
            if not remembered:
                self._declared.add((uid, name))
            return wanted

    def _evolved(self, known: StateInfo, wanted: StateInfo) -> StateInfo:
        check_restorable(known, wanted)
        if (known.uid, known.name) in self._declared and longer(replace(known, schemas=()), wanted) is None:
            # One attempt runs one version of the code, so this is no evolution: each slot would undo the other's.
            raise NotRestorableError(
                f"it is declared as {_name(wanted.type)} with {_ttl(wanted)}, and elsewhere in the job as {_name(known.type)} with {_ttl(known)}",
                field=f"state {known.name!r} of uid {known.uid!r}",
                remedy="Declare it in the same way in all slots",
            )
        state, removed = evolved(known, wanted, since_ms=self.reached_ms, may_rename=self._allow_non_restored)
        if len(state.schemas) > len(known.schemas):
            _log.info("stored state evolves to the declared type", uid=state.uid, state=state.name, schema=len(state.schemas) - 1)
        if removed:
            _log.warning(
                "fields of stored state are no longer declared; their values are dropped", uid=state.uid, state=state.name, fields=removed
            )
        return state

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
                if named is None or numbered is not named or not self._covers(named, state):
                    return False
            for state in found:
                key = (state.uid, state.name)
                known = self._states.get(key)
                if known is None:
                    self._states[key] = state
                    if _is_declared_in_open(state):
                        self._missing.add(key)
                else:
                    self._states[key] = replace(longer(known, state) or known, segmented=known.segmented or state.segmented)
            self._next = max(self._next, *(state.state_id + 1 for state in found)) if found else self._next
            return True

    def _covers(self, named: StateInfo, state: StateInfo) -> bool:
        """True if code that declares a state as ``named`` reads what was written as ``state``."""
        if named.kind != state.kind or named.key_type != state.key_type:
            return False
        merged = longer(named, state)
        # The tables of this attempt are made once: they do not learn of a schema that another attempt has appended.
        return merged is named or (merged is not None and (named.uid, named.name) not in self._described)

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
            missing = {other: self._states[owner, other] for owner, other in sorted(self._missing) if owner == uid}
            if missing:
                raise _renamed(uid, name, missing)

    def states(self) -> list[StateInfo]:
        """Return all states by number."""
        with self._lock:
            return sorted(self._states.values(), key=lambda state: state.state_id)


def check_restorable(stored: StateInfo, wanted: StateInfo) -> None:
    """Check that a state is still of the same kind and has the same keys.

    Raises:
        NotRestorableError: It is not; the text says what differs.
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


def _is_declared_in_open(state: StateInfo) -> bool:
    return state.kind not in _LAZY_KINDS and not is_of_late_declaration(state)


def _ttl(state: StateInfo) -> str:
    return "no time to live" if state.ttl_ms is None else "a time to live"


def _renamed(uid: str, name: str, missing: Mapping[str, StateInfo]) -> NotRestorableError:
    closest = get_close_matches(name, missing, n=1, cutoff=0)[0]
    held = ", ".join(map(repr, missing))
    keep = f"Declare it as {closest!r} to keep its values (in open(), if it is declared later)"
    if is_reserved(closest) and not is_reserved(name):
        # No function may declare that name.
        keep = f"Rename {closest!r} in the snapshot to keep its values (statefulspark rewrite PATH DIRECTORY --rename-state UID:OLD=NEW)"
        if is_of_windows(missing[closest]):
            keep = f"Keep the windows of the step to keep {closest!r}"
    return NotRestorableError(
        f"it is new and would start empty, and the restored state {held} is no longer declared",
        field=f"state {name!r} of uid {uid!r}",
        remedy=f"{keep}, or set spec.allowNonRestoredState: true to discard {held}",
    )


def _names(types: list[dict[str, Any]]) -> str:
    return ", ".join(_name(each) for each in types)


def _name(type_: dict[str, Any]) -> str:
    """Write a type's JSON description as its declaration reads."""
    parts = [_name(type_[part]) for part in ("key", "value", "element") if part in type_]
    parts += [_name(field) for field in type_.get("fields", ())]
    name = str(type_.get("type", "nothing"))
    return f"{name}({', '.join(parts)})" if parts else name
