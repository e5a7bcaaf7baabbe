"""Retention: decides which objects of a job folder are no longer needed.

The plan is pure: given the stored objects and the operations in progress, it returns the keys to delete. It never deletes:

* the newest checkpoint that is not known to be damaged, however old it is, and those before it, as many as are retained and as long as they do not
  exceed the maximum age, both of the folder and of the job's lineage, and pinned checkpoints (the base of a pending checkpoint);
* files in ``shared/`` that one of those checkpoints references, or that belong to a pending checkpoint;
* packs of Spark's own state that one of those checkpoints references, or that the running attempt uses;
* batch records, changelogs and packs since the oldest of those checkpoints in the lineage, so that a damaged checkpoint can be replaced by
  the previous one without losing a batch;
* possible work in progress of another driver: objects that no complete checkpoint references must first reach a minimum age.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from statefulspark.checkpoint.catalog import load
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.metadata import METADATA_NAME, CheckpointMetadata
from statefulspark.checkpoint.lineage.fencing import ATTEMPTS_KEPT, delete_claims
from statefulspark.checkpoint.lineage.lineage import Lineage
from statefulspark.errors import CorruptDataError, InvalidInputError
from statefulspark.storage.base import ObjectInfo, ObjectStore

ORPHAN_AGE_S = 24 * 3600.0
"""Default age in seconds after which an object that no complete checkpoint accounts for counts as left behind."""

_PREFIXES = (
    paths.SHARED_PREFIX,
    paths.CHANGELOG_PREFIX,
    paths.BATCHES_PREFIX,
    paths.ATTEMPTS_PREFIX,
    paths.SPARK_STATE_PREFIX,
    paths.HISTORY_PREFIX,
)
"""Prefixes of the other objects that a job writes."""

KEYS_PER_REQUEST = 1000
"""As many as S3 deletes at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Stored objects and operations in progress."""

    checkpoints: Mapping[int, CheckpointMetadata]
    """Readable checkpoints of the folder by number."""
    unreadable: Collection[int] = ()
    """Numbers of checkpoints whose ``_metadata`` is damaged or of another version; what they name is not known."""
    damaged: Collection[int] = ()
    """Numbers of checkpoints that could not be restored. They do not count among the retained ones."""
    objects: Sequence[ObjectInfo]
    """Listing of the whole job folder."""
    lineage: Lineage
    """Of the running attempt."""
    in_flight: Collection[int] = ()
    """Numbers of the checkpoints that are being taken."""
    pins: Collection[int] = ()
    """Numbers of checkpoints to keep, such as the bases of those in flight."""
    packs_in_use: Collection[str] = ()
    """Keys of the packs of Spark's state that the running attempt needs."""
    now_s: float
    """Current time, seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """Keys to delete."""

    checkpoints: tuple[int, ...]
    """Numbers of the complete checkpoints that go."""
    first: tuple[str, ...]
    """Keys to delete first: without its ``_metadata`` a checkpoint does not exist, so a crash leaves no half of one."""
    rest: tuple[str, ...]
    """Keys to delete afterwards."""
    claims: tuple[str, ...] = ()
    """Keys of the claims to delete, one by one in ascending order; see `fencing`."""


def plan_retention(
    situation: Situation, *, retained: int, max_age_s: float | None = None, orphan_age_s: float = ORPHAN_AGE_S
) -> RetentionPlan:
    """Return the keys that can be deleted.

    Args:
        situation: Stored objects and operations in progress.
        retained: Number of complete checkpoints to keep, at least 1.
        max_age_s: Seconds since its completion after which a checkpoint is not kept, unless it is the newest one. None for no limit.
        orphan_age_s: Age in seconds from which left-behind objects are deleted; more than a checkpoint may take.

    Raises:
        InvalidInputError: ``retained`` is below 1.
    """
    if retained < 1:
        raise InvalidInputError(f"cannot retain {retained} checkpoints", field="checkpointing.retained", remedy="Use 1 or more.")
    intact = _kept(situation, retained, max_age_s)
    kept = intact | {number for number in situation.damaged if number in situation.checkpoints and number > min(intact, default=-1)}
    gone = tuple(sorted(set(situation.checkpoints) - kept))
    unreadable_kept = {number for number in situation.unreadable if number > min(intact, default=-1)}
    needed_files = {file for number in kept for file in _shared_keys(situation.checkpoints[number])} | set(situation.packs_in_use)
    oldest_batch = _oldest_batch(situation, intact)
    oldest_attempt = _oldest_attempt(situation.lineage)

    def old(info: ObjectInfo) -> bool:
        return situation.now_s - info.modified_s > orphan_age_s

    def can_go(info: ObjectInfo) -> bool:
        key = info.key
        folder, _, _ = key.partition("/")
        if (number := paths.checkpoint_id_of(folder)) is not None:
            if number in situation.checkpoints:
                return number not in kept
            if number in situation.unreadable:
                return number not in unreadable_kept
            return number not in situation.in_flight and old(info)
        if (number := paths.shared_checkpoint_id(key)) is not None:
            if key in needed_files or number in situation.in_flight or number <= max(unreadable_kept, default=-1):
                return False
            return number in situation.checkpoints or old(info)
        if paths.spark_state_position(key) is not None and (key in needed_files or unreadable_kept):
            return False
        if (position := paths.attempt_and_batch(key) or paths.spark_state_position(key)) is not None:
            attempt, batch = position
            return attempt < oldest_attempt or (oldest_batch is not None and batch <= oldest_batch)
        if (found := paths.attempt_of(key)) is not None:
            return found[0] <= situation.lineage.attempt - ATTEMPTS_KEPT
        return False

    return _plan(gone, [info.key for info in situation.objects if can_go(info)])


def plan_removal(objects: Iterable[ObjectInfo], attempt: int) -> RetentionPlan:
    """Return the keys to delete if a cancelled job's checkpoints are not retained.

    Args:
        objects: Listing of the whole job folder.
        attempt: The last attempt, which starts from nothing; its claim and start stay, as do the job's identity, savepoints and foreign objects.
    """
    stays = (paths.attempt_key(attempt), paths.attempt_start_key(attempt))
    keys = [
        info.key
        for info in objects
        if info.key not in stays and (info.key.startswith(_PREFIXES) or paths.checkpoint_id_of(info.key.partition("/")[0]) is not None)
    ]
    checkpoints = {number for key in keys if (number := paths.checkpoint_id_of(key.partition("/")[0])) is not None}
    return _plan(tuple(sorted(checkpoints)), keys)


def _plan(checkpoints: tuple[int, ...], keys: Iterable[str]) -> RetentionPlan:
    first: list[str] = []
    rest: list[str] = []
    claims: list[str] = []
    for key in keys:
        attempt = paths.attempt_of(key)
        is_claim = attempt is not None and not attempt[1]
        (first if key.endswith(f"/{METADATA_NAME}") else claims if is_claim else rest).append(key)
    return RetentionPlan(checkpoints, tuple(first), tuple(rest), tuple(sorted(claims)))


def carry_out(store: ObjectStore, plan: RetentionPlan, check_fence: Callable[[], None]) -> None:
    """Delete what a plan says; what could not be deleted is found again by the next plan.

    A newer attempt may be claimed at any moment, and this driver be paused at any step. What the newer attempt writes is not in the plan,
    which was made of a listing from before the check. What it found in a checkpoint's ``_metadata`` stays: it was claimed before it read
    that, and the files go only after the ``_metadata`` is gone and the fence was checked once more.

    Args:
        store: Opened at the job folder.
        plan: Keys to delete.
        check_fence: Called before each request, because a driver may be paused for long in between; raises if a newer attempt was claimed.

    Raises:
        FencedError: A newer attempt was claimed; the rest was left.
        UnavailableError: Storage did not answer.
    """
    for keys in (*_parts(plan.first), *_parts(plan.rest)):
        check_fence()
        store.delete(keys)
    if plan.claims:
        check_fence()
        delete_claims(store, plan.claims)


def _parts(keys: Sequence[str]) -> Iterable[Sequence[str]]:
    return (keys[first : first + KEYS_PER_REQUEST] for first in range(0, len(keys), KEYS_PER_REQUEST))


class Retention:
    """Observes a job folder, plans and deletes; remembers ``_metadata`` that it has read, which never changes.

    Args:
        store: Opened at the job folder.
        retained: Number of complete checkpoints to keep, at least 1.
        max_age_s: See `plan_retention`.
        orphan_age_s: Age in seconds from which left-behind objects are deleted.
    """

    def __init__(self, store: ObjectStore, *, retained: int, max_age_s: float | None = None, orphan_age_s: float = ORPHAN_AGE_S) -> None:
        self._store = store
        self._retained = retained
        self._max_age_s = max_age_s
        self._orphan_age_s = orphan_age_s
        self._known: dict[int, CheckpointMetadata] = {}

    def run(
        self,
        lineage: Lineage,
        *,
        now_s: float,
        in_flight: Collection[int] = (),
        pins: Collection[int] = (),
        packs_in_use: Callable[[], Collection[str]] = tuple,
        check_fence: Callable[[], None],
    ) -> RetentionPlan:
        """Delete what can go and return what was deleted.

        Args:
            lineage: Of the running attempt.
            now_s: Current time, seconds since the epoch.
            in_flight: Numbers of the checkpoints that are being taken.
            pins: Numbers of checkpoints to keep, such as the bases of those in flight.
            packs_in_use: Asked, after the listing, for the keys of the packs of Spark's state that the running attempt needs.
            check_fence: Raises if a newer attempt was claimed; called between the listing and each deletion.

        Raises:
            FencedError: A newer attempt was claimed.
            UnavailableError: Storage did not answer; run again later.
        """
        objects = self._store.list("")
        readable, unreadable = self._read(objects)
        situation = Situation(
            checkpoints=readable,
            unreadable=unreadable,
            damaged={number for info in objects if (number := _damaged_number(info.key)) is not None},
            objects=objects,
            lineage=lineage,
            in_flight=in_flight,
            pins=pins,
            packs_in_use=packs_in_use(),
            now_s=now_s,
        )
        plan = plan_retention(situation, retained=self._retained, max_age_s=self._max_age_s, orphan_age_s=self._orphan_age_s)
        carry_out(self._store, plan, check_fence)
        self._known = {number: metadata for number, metadata in readable.items() if number not in plan.checkpoints}
        return plan

    @property
    def retained(self) -> Mapping[int, CheckpointMetadata]:
        """Checkpoints of the folder by number, from all attempts, as of the last `run`; without the bytes of inline entries."""
        return self._known

    def _read(self, objects: Iterable[ObjectInfo]) -> tuple[dict[int, CheckpointMetadata], set[int]]:
        readable: dict[int, CheckpointMetadata] = {}
        unreadable: set[int] = set()
        for info in objects:
            folder, _, name = info.key.partition("/")
            number = paths.checkpoint_id_of(folder)
            if number is None or name != METADATA_NAME:
                continue
            try:
                readable[number] = self._known[number] if number in self._known else load(self._store, info.key).with_inline_of(None)
            except CorruptDataError:
                unreadable.add(number)
            except InvalidInputError:
                continue  # Deleted between the listing and now.
        self._known |= readable
        return readable, unreadable


def _kept(situation: Situation, retained: int, max_age_s: float | None) -> set[int]:
    """Numbers of the complete checkpoints that stay, without damaged ones that are only not old enough to go."""
    newest = sorted(set(situation.checkpoints).difference(situation.damaged), reverse=True)
    in_lineage = [number for number in newest if _in_lineage(situation, number)]

    def within_limits(numbers: list[int]) -> list[int]:
        older = (number for number in numbers[1:retained] if max_age_s is None or _age_s(situation, number) <= max_age_s)
        return [*numbers[:1], *older]

    return {*within_limits(newest), *within_limits(in_lineage), *(number for number in situation.pins if number in situation.checkpoints)}


def _age_s(situation: Situation, number: int) -> float:
    metadata = situation.checkpoints[number]
    return situation.now_s - (metadata.created_ms + metadata.duration_ms) / 1000


def _damaged_number(key: str) -> int | None:
    folder = key.partition("/")[0]
    return paths.checkpoint_id_of(folder) if key == paths.damaged_key(folder) else None


def _in_lineage(situation: Situation, number: int) -> bool:
    key = paths.metadata_key(paths.checkpoint_folder(number))
    return situation.checkpoints[number].attempt == situation.lineage.attempt or key in situation.lineage.checkpoints


def _shared_keys(metadata: CheckpointMetadata) -> Iterable[str]:
    key = paths.metadata_key(paths.checkpoint_folder(metadata.checkpoint_id))
    shared = (file for slot in metadata.slots for file in slot.shared)
    return (paths.resolve_reference(key, file.path) for file in (*shared, *metadata.spark_state))


def _oldest_batch(situation: Situation, kept: Collection[int]) -> int | None:
    """The batch up to which every checkpoint that may become the base contains everything; None when there is no such one."""
    return min((situation.checkpoints[number].replay_after for number in kept if _in_lineage(situation, number)), default=None)


def _oldest_attempt(lineage: Lineage) -> int:
    """Records and changelogs of older attempts are not part of the lineage.

    The attempts whose records are left are not all: a changelog of the batch that runs again may be of an earlier attempt at it.
    """
    positions = (paths.attempt_and_batch(key) for key in lineage.record_keys)
    return min([lineage.since, *(position[0] for position in positions if position is not None)])
