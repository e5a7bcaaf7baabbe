"""Matches each source of a pipeline with the source of the previous pipeline whose position it resumes from.

Tick sources are matched by the uid of their step, other sources by what they read and which keyed step they feed. A source that reads
something new resumes from the one remaining source of its kind, as in Spark; if that is ambiguous, the job is rejected.
"""

from __future__ import annotations

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
    before: Sequence[SourceId], now: Sequence[SourceId], same_position: Callable[[int, int], bool], *, may_drop: bool = False
) -> dict[int, int | None]:
    """Match the relations of two pipelines.

    Args:
        before: Sources of the stored pipeline.
        now: Sources of the present one.
        same_position: True if two stored relations, given by number, have read exactly the same.
        may_drop: True to discard the position of a source that is no longer read.

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
    for relation in (each for each in users if each.number not in found):
        rivals = [each for each in users if each.number not in found and each.provider == relation.provider]
        found[relation.number] = _moved(relation, rivals, [each for each in left if each.provider == relation.provider])
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


def _moved(relation: Relation, rivals: list[Relation], left: list[Relation]) -> int | None:
    """The stored relation that reads elsewhere now; None if the source is new."""
    if not left:
        return None
    if len(left) == len(rivals) == 1:
        return left[0].number
    fed = [each for each in left if each.feeds == relation.feeds]
    if len(fed) == 1 and sum(each.feeds == relation.feeds for each in rivals) == 1:
        return fed[0].number
    raise NotRestorableError(
        f"the stored offsets belong to {', '.join(each.label for each in left)}, and it is ambiguous which of these sources is now "
        f"{relation.label}",
        field="spec.job",
        remedy=_REMEDY,
    )


def _refuse_dropped(dropped: list[Relation], *, may_drop: bool) -> None:
    if dropped and not may_drop:
        raise NotRestorableError(
            f"the pipeline no longer reads {', '.join(each.label for each in dropped)}, whose position is stored",
            field="spec.job",
            remedy="Read it again, or set spec.allowNonRestoredState: true to discard its position",
        )
