"""The history of a state's declarations: appends a declaration that has changed, and merges what different objects in storage know. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from statefulspark.errors import CorruptDataError, NotRestorableError
from statefulspark.state.encoding.layout import Schema, StateInfo
from statefulspark.state.evolution.compatibility import compare, without_defaults
from statefulspark.state.evolution.schema_reader import SCHEMAS_MAX

_MAPS: Final = frozenset({"map", "operator-broadcast"})


def evolved(known: StateInfo, wanted: StateInfo, *, since_ms: int, may_rename: bool) -> tuple[StateInfo, list[str]]:
    """Return a state as it is declared now, with the schemas that it has had, and the fields that the declaration removes.

    Args:
        known: The state as it was, of the same kind and key types.
        wanted: The same state as it is declared, without schemas.
        since_ms: Processing time of the last committed batch.
        may_rename: True to remove and add fields of one row at once.

    Raises:
        NotRestorableError: Stored values cannot become what is declared; the text shows both types side by side.
    """
    current = known.schemas[-1] if known.schemas else Schema(known.type, known.ttl_ms, 0)
    history = [schema.type for schema in known.schemas]
    found = compare(current.type, wanted.type, history, may_rename=may_rename, keeps_keys=known.kind in _MAPS)
    switched = (current.ttl_ms is None) != (wanted.ttl_ms is None)
    if found.same and not switched:
        return replace(wanted, schemas=known.schemas), []
    field = f"state {known.name!r} of uid {known.uid!r}"
    if found.problem is not None:
        shown = "\n".join(found.table())
        raise NotRestorableError(f"the stored type does not fit the declared one\n{shown}\n{found.remedy()}", field=field)
    schemas = known.schemas or (current,)
    if len(schemas) == SCHEMAS_MAX:
        raise NotRestorableError(f"it has been declared in {SCHEMAS_MAX} ways", field=field, remedy="Use a new state name")
    return replace(wanted, schemas=(*schemas, Schema(wanted.type, wanted.ttl_ms, since_ms))), found.removed


def longer(known: StateInfo, other: StateInfo) -> StateInfo | None:
    """Return the description of a state that knows more of its history, the first one of equals; None if they contradict each other."""
    long, short = (other, known) if len(other.schemas) > len(known.schemas) else (known, other)
    if short.schemas:
        return long if long.schemas[: len(short.schemas)] == short.schemas else None
    first = long.schemas[0] if long.schemas else Schema(long.type, long.ttl_ms, 0)
    fits = without_defaults(first.type) == without_defaults(short.type) and (first.ttl_ms is None) == (short.ttl_ms is None)
    return long if fits else None


def merge_newer(found: dict[int, StateInfo], infos: Iterable[StateInfo], *, where: str) -> None:
    """Add descriptions by state id. Of two of one state the one with the longer history counts, of equals the later one.

    Args:
        found: What is known; changed in place.
        infos: Descriptions that are as new as those, or newer.
        where: Object that they were read from, for the error text.

    Raises:
        CorruptDataError: Two histories of one state contradict each other.
    """
    for info in infos:
        known = found.get(info.state_id)
        if known is not None and (known.uid, known.name, known.kind) == (info.uid, info.name, info.kind):
            merged = longer(info, known)
            if merged is None:
                raise contradicting(info, where)
            # A slot without long lists describes the state as it was before another slot had some.
            found[info.state_id] = replace(merged, segmented=known.segmented or info.segmented)
        else:
            found[info.state_id] = info


def contradicting(info: StateInfo, where: str) -> CorruptDataError:
    """Build the error of a state that has been declared in two different orders."""
    return CorruptDataError(f"the schemas of state {info.name!r} of uid {info.uid!r} contradict those that are known", path=where)
