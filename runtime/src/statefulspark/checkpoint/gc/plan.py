"""Decides which objects of a job's folder are garbage.

The plan is pure: it is computed from what was read of the folder. An object is garbage if all of the following hold:

* Its name is one that this release gives. Objects with other names belong to a user or another release.
* Nothing references it: no checkpoint, no savepoint, no batch record of the lineage.
* No driver uses it. The changelogs and packs of the last batch belong to no record until the next one begins, which may take
  days; until then, records of earlier attempts at this batch tell which of its changelogs count. A driver that has claimed an
  attempt is copying the checkpoint that it starts from. Claims, starts and the job's
  history always stay.
* It is old. A checkpoint in progress references its uploads only when it is complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.metadata import CheckpointMetadata
from statefulspark.checkpoint.formats.records import BatchRecord
from statefulspark.errors import InvalidInputError
from statefulspark.storage.base import ObjectInfo

OLDER_THAN_MIN_S = 3600.0
"""Shortest age of garbage in seconds. A checkpoint in progress has younger files that nothing references yet."""

Verdict = Literal["unreferenced", "referenced", "in use", "recent", "unknown"]
"""Only unreferenced objects are garbage. Objects that are ``recent`` may become it; those with an ``unknown`` name never do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFolder:
    """Contents of a job's folder. The listing is older than everything else, so what is written meanwhile is not in it."""

    objects: Sequence[ObjectInfo]
    """Listing of the whole folder."""
    snapshots: Mapping[str, CheckpointMetadata]
    """Complete checkpoints and savepoints by the key of their ``_metadata``."""
    records: Mapping[str, BatchRecord]
    """Batch records that the lineage consists of, or that the newest start names, by key."""
    attempt: int
    """Newest attempt with a start; 0 for none."""
    since: int
    """The oldest attempt that may have run a batch of the lineage."""
    last_batch: int
    """Last batch of the lineage, which may not be committed; -1 for none."""


@dataclass(frozen=True, slots=True)
class Garbage:
    """One object that nothing references."""

    key: str
    kind: paths.ObjectKind
    size_bytes: int
    age_s: float


@dataclass(frozen=True, slots=True)
class Total:
    """Number and size of some objects."""

    objects: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class GcPlan:
    """Garbage of a job's folder, and how much is kept for which reason."""

    garbage: tuple[Garbage, ...]
    """In the order of keys."""
    totals: Mapping[Verdict, Total]


def references(folder: JobFolder) -> dict[str, str]:
    """Keys that a checkpoint, savepoint or batch record references, each with the key of one that does."""
    found: dict[str, str] = {}
    for key, record in folder.records.items():
        found |= {ack.key: key for ack in record.acks} | {pack.key: key for pack in record.spark_state}
    for key, metadata in folder.snapshots.items():
        found |= {paths.resolve_reference(key, file.path): key for file in metadata.files()}
    return found


def check_age(older_than_s: float) -> None:
    """Check that garbage is old enough.

    Args:
        older_than_s: Age in seconds that garbage exceeds.

    Raises:
        InvalidInputError: It is below `OLDER_THAN_MIN_S`.
    """
    if older_than_s < OLDER_THAN_MIN_S:
        raise InvalidInputError(
            "is too short: a running job may still need objects that are younger than one hour",
            field="--older-than",
            remedy="Use 1h or more, and more than checkpointing.timeout.",
        )


def plan_gc(folder: JobFolder, *, now_s: float, older_than_s: float) -> GcPlan:
    """Return the garbage of a job's folder.

    Args:
        folder: Contents of the job's folder.
        now_s: Current time, seconds since the epoch.
        older_than_s: Age in seconds that garbage exceeds, at least `OLDER_THAN_MIN_S`; longer than a checkpoint may take.

    Raises:
        InvalidInputError: ``older_than_s`` is too short.
    """
    check_age(older_than_s)
    judge = _Judge(folder, now_s - older_than_s)
    garbage: list[Garbage] = []
    objects: Counter[Verdict] = Counter()
    size_bytes: Counter[Verdict] = Counter()
    for info in folder.objects:
        kind = paths.kind_of(info.key)
        verdict: Verdict = judge.verdict(info, kind)
        objects[verdict] += 1
        size_bytes[verdict] += info.size_bytes
        if verdict == "unreferenced" and kind is not None:
            garbage.append(Garbage(info.key, kind, info.size_bytes, now_s - info.modified_s))
    return GcPlan(tuple(garbage), {verdict: Total(count, size_bytes[verdict]) for verdict, count in objects.items()})


class _Judge:
    """Tells for each object whether it is garbage, and why not.

    Args:
        folder: Contents of the job's folder.
        before_s: Garbage was written before this time, seconds since the epoch.
    """

    def __init__(self, folder: JobFolder, before_s: float) -> None:
        self._folder = folder
        self._before_s = before_s
        self._references = references(folder)
        self._complete = {key.partition("/")[0] for key in folder.snapshots}
        self._unknown = {info.key.partition("/")[0] for info in folder.objects if paths.kind_of(info.key) is None}
        self._claimed_s = _claimed_s(folder)

    def verdict(self, info: ObjectInfo, kind: paths.ObjectKind | None) -> Verdict:
        if info.key in self._references or kind in ("job", "attempt", "history") or self._is_part_of_checkpoint(info.key):
            return "referenced"
        if kind == "batch record" and info.key in self._folder.records:
            return "referenced"
        if kind is None:
            return "unknown"
        if kind in ("checkpoint file", "savepoint file") and self._is_of_other_release(info.key):
            return "unknown"
        if self._is_in_use(info):
            return "in use"
        return "unreferenced" if info.modified_s < self._before_s else "recent"

    def _is_part_of_checkpoint(self, key: str) -> bool:
        folder = key.partition("/")[0]
        return folder in self._complete and key in (paths.metadata_key(folder), paths.damaged_key(folder))

    def _is_of_other_release(self, key: str) -> bool:
        """True if the folder is no complete checkpoint, but has an object that only another release or a user may have put there."""
        folder = key.partition("/")[0]
        return folder not in self._complete and folder in self._unknown

    def _is_in_use(self, info: ObjectInfo) -> bool:
        if self._claimed_s is not None and info.modified_s >= self._claimed_s:
            return True
        position = paths.attempt_and_batch(info.key) or paths.spark_state_position(info.key)
        if position is None:
            return False
        attempt, batch = position
        # The last batch may have run in any of these attempts. If the sink has it, a driver adopts the changelogs of one of them, by its record.
        may_be_adopted = attempt >= self._folder.since and batch >= self._folder.last_batch
        return may_be_adopted or attempt > self._folder.attempt


def _claimed_s(folder: JobFolder) -> float | None:
    """When the attempts that have not started yet were claimed, None if there are none. They copy what they start from, however long it takes."""
    claims = ((paths.attempt_of(info.key), info.modified_s) for info in folder.objects)
    return min((at_s for found, at_s in claims if found is not None and found[0] > folder.attempt), default=None)
