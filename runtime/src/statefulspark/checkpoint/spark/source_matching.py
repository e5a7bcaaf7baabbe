"""Matches each source of a pipeline with the source of the previous pipeline whose position it resumes from.

Tick sources are matched by the uid of their step, other sources by what they read and which keyed step they feed. A source that reads
something new resumes from the one remaining source of its kind, as in Spark. If that is ambiguous, the job is rejected, also if a source of another
kind may have replaced the remaining one: a source that wrongly takes over a position skips rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from statefulspark.checkpoint.formats.pipeline import TICKS, SourceId
from statefulspark.errors import NotRestorableError

_REMEDY = "Change one source at a time, with a checkpoint between, or start the job without its state under another name"


@dataclass(frozen=True, slots=True)
class Relation:
    """All places of a plan that read one source."""

    number: int
    provider: str
    identity: str
    label: str
    feeds: frozenset[str]


def relations(sources: Iterable[SourceId]) -> list[Relation]:
    """The relations of a plan, by number."""
    places: dict[int, list[SourceId]] = {}
    for source in sources:
        places.setdefault(source.number, []).append(source)
    return [
        Relation(number, at[0].provider, at[0].identity, at[0].label, frozenset(place.feeds for place in at))
        for number, at in sorted(places.items())
    ]


def match(
    before: Sequence[SourceId],
    now: Sequence[SourceId],
    same_position: Callable[[int, int], bool],
    *,
    may_drop: bool = False,
    accepted: bool = False,
) -> dict[int, int | None]:
    """Match the relations of two pipelines.

    Args:
        before: Sources of the stored pipeline.
        now: Sources of the present one.
        same_position: True if two stored relations, given by number, have read exactly the same.
        may_drop: True to discard the position of a source that is no longer read.
        accepted: True if an attempt has started with this match, so that it is repeated even if a job could not start with it today.

    Returns:
        For the number of each present relation that of the stored one, or None where it starts from its beginning.

    Raises:
        NotRestorableError: it is not certain which is which, or a source is missing; names them.
    """
    old = relations(before)
    found: dict[int, int | None] = {}
    for relation in relations(now):
        if relation.provider == TICKS:
            found[relation.number] = next(
                (each.number for each in old if (each.provider, each.identity) == (TICKS, relation.identity)), None
            )
    users = [each for each in relations(now) if each.provider != TICKS]
    kept = [each for each in old if each.provider != TICKS]
    for relation in users:
        known = [each for each in kept if (each.provider, each.identity) == (relation.provider, relation.identity)]
        if known:
            rivals = [each for each in users if (each.provider, each.identity) == (relation.provider, relation.identity)]
            found[relation.number] = _same(relation, rivals, known, same_position)
    read = {(each.provider, each.identity) for each in users}
    left = [each for each in kept if each.number not in found.values() and (each.provider, each.identity) not in read]
    came = [each for each in users if each.number not in found]
    for provider in sorted({each.provider for each in came}):
        origins = _origins([each for each in came if each.provider == provider], [each for each in left if each.provider == provider])
        for relation, origin in origins:
            if origin is not None and not accepted:
                _refuse_doubtful(relation, origin, came, left, _refed(kept, users))
            found[relation.number] = origin.number if origin is not None else None
    _refuse_dropped([each for each in left if each.number not in found.values()], may_drop=may_drop)
    return found


def _same(relation: Relation, rivals: list[Relation], known: list[Relation], same_position: Callable[[int, int], bool]) -> int:
    """The stored relation that reads the same; ``rivals`` are all present ones that do, ``known`` all stored ones."""
    fed = [each for each in known if each.feeds & relation.feeds]
    alike = [each for each in rivals if each.feeds & relation.feeds]
    if len(fed) > 1 and len(fed) == len(alike) and all(each.feeds == relation.feeds for each in (*fed, *alike)):
        return fed[alike.index(relation)].number  # several readers of the same for one step, in the order of the plan
    candidates = fed or known
    first = candidates[0].number
    if not all(same_position(first, each.number) for each in candidates[1:]):
        raise NotRestorableError(
            f"the source {relation.label} was read {len(candidates)} times, each at a different position, and it is ambiguous "
            "which one to resume from",
            field="spec.job",
            remedy=_REMEDY,
        )
    return first


def _origins(came: list[Relation], gone: list[Relation]) -> list[tuple[Relation, Relation | None]]:
    """For each source of one kind that was not read before, the stored one whose position it takes over; None if it is new."""
    coming, going = (Counter(each.feeds for each in many) for many in (came, gone))
    pairs: list[tuple[Relation, Relation | None]] = [
        (now, before) for now in came for before in gone if now.feeds == before.feeds and coming[now.feeds] == going[now.feeds] == 1
    ]
    paired = {id(each) for pair in pairs for each in pair}
    new, left = ([each for each in many if id(each) not in paired] for many in (came, gone))
    if len(new) == len(left) == 1:
        return [*pairs, (new[0], left[0])]
    if left and new:
        raise NotRestorableError(
            f"the stored offsets belong to {_labels(left)}, and it is ambiguous which of these sources is now {new[0].label}",
            field="spec.job",
            remedy=_REMEDY,
        )
    return [*pairs, *((each, None) for each in new)]


def _refed(kept: list[Relation], users: list[Relation]) -> dict[str, set[str]]:
    """By label, the present sources that were read before, but for other steps: the steps that each feeds in one of the two pipelines only."""

    def feeds(many: list[Relation], source: Relation) -> set[str]:
        return {step for each in many if (each.provider, each.identity) == (source.provider, source.identity) for step in each.feeds}

    return {each.label: before ^ feeds(users, each) for each in users if (before := feeds(kept, each)) and before != feeds(users, each)}


def _refuse_doubtful(relation: Relation, origin: Relation, came: list[Relation], gone: list[Relation], refed: dict[str, set[str]]) -> None:
    """Raise if another source may have replaced ``origin``, or ``relation`` another source: then ``relation`` is new.

    If both feed the same step, the other sources of that step count, and as many of each kind may come as go; no source that stays may have begun or
    ceased to feed that step. Otherwise this must be the only change, and no source that stays may feed other steps than before.
    """
    shared = relation.feeds & origin.feeds

    def others(many: list[Relation]) -> list[Relation]:
        beside = [each for each in many if each not in (relation, origin)]
        return [each for each in beside if each.feeds & (relation.feeds | origin.feeds)] if shared else beside

    new, former = others(came), others(gone)
    moved = [label for label, changed in refed.items() if changed & shared or not shared]
    if shared and not moved and Counter(each.provider for each in new) == Counter(each.provider for each in former):
        return
    if new or former or moved:
        changes = [f"{each.label} is new" for each in new] + [f"{each.label} is no longer read" for each in former]
        changes += [f"{label} feeds other steps" for label in moved]
        raise NotRestorableError(
            f"it is ambiguous whether {relation.label} continues from the position of {origin.label} or is new, because {' and '.join(changes)}",
            field="spec.job",
            remedy=_REMEDY,
        )


def _labels(many: list[Relation]) -> str:
    return ", ".join(each.label for each in many)


def _refuse_dropped(dropped: list[Relation], *, may_drop: bool) -> None:
    if dropped and not may_drop:
        raise NotRestorableError(
            f"the pipeline no longer reads {_labels(dropped)}, whose position is stored",
            field="spec.job",
            remedy="Read it again, or set spec.allowNonRestoredState: true to discard its position",
        )
