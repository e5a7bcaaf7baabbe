"""MergedStates: the descriptions of a job's states, merged from a checkpoint and the changelogs after it.

State ids are assigned once for the whole job, so descriptions from different slots and batches can be merged without renaming.
The merge verifies this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from statefulspark.errors import CorruptDataError
from statefulspark.state.encoding.layout import StateInfo
from statefulspark.state.evolution.histories import contradicting, longer


class MergedStates:
    """States by id, as ``StateInfo`` in JSON."""

    def __init__(self) -> None:
        self._by_id: dict[int, dict[str, Any]] = {}
        self._ids: dict[tuple[str, str], int] = {}

    @property
    def states(self) -> tuple[dict[str, Any], ...]:
        """All states, by id."""
        return tuple(self._by_id[state_id] for state_id in sorted(self._by_id))

    def uids(self) -> set[str]:
        """Keyed steps that have a state."""
        return {uid for uid, _ in self._ids}

    @staticmethod
    def _merged(known: Mapping[str, Any], state: Mapping[str, Any], where: str) -> dict[str, Any]:
        before, after = StateInfo.from_json(known), StateInfo.from_json(state)
        merged = longer(before, after)
        if merged is None:
            raise contradicting(after, where)
        return merged.to_json()

    def add(self, states: Iterable[Mapping[str, Any]], *, where: str) -> None:
        """Merge the descriptions of one checkpoint or changelog.

        Args:
            states: ``StateInfo`` in JSON.
            where: Object they were read from, for the error text.

        Raises:
            CorruptDataError: An id or a name already means something else, or a state's schemas contradict each other.
        """
        for state in states:
            try:
                state_id, name = int(state["state_id"]), (str(state["uid"]), str(state["name"]))
            except (KeyError, ValueError, TypeError) as exc:
                raise CorruptDataError("a state's description is damaged", path=where) from exc
            known = self._by_id.setdefault(state_id, dict(state))
            if known.get("schemas") != state.get("schemas"):
                known = self._by_id[state_id] = self._merged(known, state, where)
            if self._ids.setdefault(name, state_id) != state_id or (known["uid"], known["name"], known.get("kind")) != (
                *name,
                state.get("kind"),
            ):
                raise CorruptDataError(
                    f"state {name[1]!r} of uid {name[0]!r} has different ids in different slots",
                    path=where,
                    expected=f"{known['name']!r} of {known['uid']!r} for id {state_id}",
                    found=f"id {self._ids[name]}",
                )
