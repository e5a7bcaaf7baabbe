"""Changes: what a new savepoint has under another name, or not at all. Planning only; nothing is read or written here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from statefulspark.errors import InvalidInputError
from statefulspark.keygroups import MAX_PARALLELISM_LIMIT
from statefulspark.state.api.names import check_state_name, check_uid, is_reserved
from statefulspark.state.encoding.layout import StateInfo
from statefulspark.state.encoding.runtime_states import is_of_windows
from statefulspark.state.operator.entries import RAW_OPERATOR
from statefulspark.state.tables.raw_keyed import RAW_KEYED
from statefulspark.state.timers import TIMER_KINDS

State = tuple[str, str]
"""uid and name."""
_NAMELESS_KINDS: Final = frozenset({*TIMER_KINDS, RAW_KEYED, RAW_OPERATOR})
"""A step has at most one state of each; the runtime names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Renamed and removed uids and states. Every name is the one that the origin has, and all changes apply together, so two uids can swap names.

    Attributes:
        uids: New uids by old ones.
        states: New names of states by uid and old name.
        removed_uids: Steps that are left out with everything they have.
        removed_states: States that are left out, by uid and name.
    """

    uids: Mapping[str, str] = field(default_factory=dict)
    states: Mapping[State, str] = field(default_factory=dict)
    removed_uids: frozenset[str] = frozenset()
    removed_states: frozenset[State] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.uids or self.states or self.removed_uids or self.removed_states)

    def uid(self, uid: str) -> str:
        """Return the new uid of a step that stays."""
        return self.uids.get(uid, uid)

    def keeps(self, info: StateInfo) -> bool:
        """True if a state stays."""
        return info.uid not in self.removed_uids and (info.uid, info.name) not in self.removed_states

    def renamed(self, info: StateInfo) -> State:
        """Return the new uid and name of a state that stays."""
        return self.uid(info.uid), self.states.get((info.uid, info.name), info.name)

    def check(self, uids: Collection[str], infos: Iterable[StateInfo]) -> None:
        """Check that the changes can be made and that a pipeline accepts the new names.

        Args:
            uids: All that the origin names.
            infos: Its states.

        Raises:
            InvalidInputError: A name does not exist, is taken, is reserved or is no name; or one change contradicts another.
        """
        states = {(info.uid, info.name): info for info in infos}
        self._check_uids(uids)
        self._check_states(uids, states)
        renamed = Counter(self.renamed(info) for info in states.values() if self.keeps(info))
        for (uid, name), count in renamed.items():
            if count > 1:
                raise InvalidInputError(
                    f"two states of uid {uid!r} would be named {name!r}", field="state", remedy="Rename or remove the other one as well"
                )

    def _check_uids(self, uids: Collection[str]) -> None:
        for uid in (*self.uids, *self.removed_uids):
            _refuse_unknown_uid(uid, uids)
        for new in self.uids.values():
            check_uid(new)
        for uid in self.removed_uids & self.uids.keys():
            raise InvalidInputError(f"{uid!r} is both renamed and removed", field="uid", remedy="Do one of both")
        for uid, count in Counter(self.uid(uid) for uid in uids if uid not in self.removed_uids).items():
            if count > 1:
                raise InvalidInputError(
                    f"two steps would have the uid {uid!r}", field="uid", remedy="Rename or remove the other one as well"
                )

    def _check_states(self, uids: Collection[str], states: Mapping[State, StateInfo]) -> None:
        for uid, name in (*self.states, *self.removed_states):
            _refuse_unknown_uid(uid, uids)
            if (uid, name) not in states:
                known = ", ".join(sorted(each for owner, each in states if owner == uid)) or "none"
                raise InvalidInputError(f"uid {uid!r} has no state {name!r}", field="state", remedy=f"Use one of: {known}")
            if uid in self.removed_uids:
                raise InvalidInputError(f"uid {uid!r} is removed with all its states", field="state", remedy="Name the uid alone")
        for uid, name in self.removed_states & self.states.keys():
            raise InvalidInputError(f"state {name!r} of uid {uid!r} is both renamed and removed", field="state", remedy="Do one of both")
        for state, new in self.states.items():
            _refuse_fixed_name(states[state])
            check_new_name(new)
        for state in self.removed_states:
            _check_removable(states[state], states)


def _refuse_unknown_uid(uid: str, uids: Collection[str]) -> None:
    if uid not in uids:
        raise InvalidInputError(f"there is no uid {uid!r}", field="uid", remedy=f"Use one of: {', '.join(sorted(uids)) or 'none'}")


def check_new_name(new: str) -> None:
    """Raise unless functions may declare a state of this name.

    Raises:
        InvalidInputError: It is empty, too long or reserved.
    """
    if is_reserved(new):
        raise InvalidInputError(f"{new!r} is reserved for the runtime", field="state", remedy="Choose another name")
    check_state_name(new)


def check_max_parallelism(max_parallelism: int) -> None:
    """Raise unless a job may have so many key groups.

    Raises:
        InvalidInputError: It may not.
    """
    if not 1 <= max_parallelism <= MAX_PARALLELISM_LIMIT:
        raise InvalidInputError(
            f"{max_parallelism} is out of range", field="max_parallelism", remedy=f"Choose 1 to {MAX_PARALLELISM_LIMIT}"
        )


def _refuse_fixed_name(info: StateInfo) -> None:
    if info.kind in _NAMELESS_KINDS or is_of_windows(info):
        raise InvalidInputError(
            f"the runtime names {info.name!r} of uid {info.uid!r}", field="state", remedy="Rename the uid, or states that functions declare"
        )


def _check_removable(info: StateInfo, states: Mapping[State, StateInfo]) -> None:
    """Raise if the state belongs to others that the runtime keeps together: the parts of windows, with their timers."""
    parts = [other for other in states.values() if other.uid == info.uid and is_of_windows(other)]
    if is_of_windows(info) or (info.kind in TIMER_KINDS and parts):
        raise InvalidInputError(
            f"{info.name!r} of uid {info.uid!r} is one of several parts that belong together", field="state", remedy="Remove the uid"
        )
