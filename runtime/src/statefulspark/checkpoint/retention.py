"""Retention: which objects of a job folder nobody can need any more.

The plan is pure: from what is stored and what is going on it says which keys to delete. What it never deletes:

* the newest checkpoints that are not known to be damaged, as many as are to be retained, both of the folder and of the job's lineage, and pinned ones
  (the base of a checkpoint that is being taken);
* files in ``shared/`` that one of those names, or that belong to a checkpoint that is being taken;
* packs of Spark's own state that one of those names, or that the running attempt has in use;
* batch records, changelogs and packs from the oldest of those in the lineage on, so that a damaged checkpoint can be replaced by the
  one before it without losing a batch;
* what may be another driver's work in progress: whatever no complete checkpoint accounts for must first grow old.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from statefulspark.checkpoint import paths
from statefulspark.checkpoint.catalog import load
from statefulspark.checkpoint.lineage import Lineage
from statefulspark.checkpoint.metadata import METADATA_NAME, CheckpointMetadata
from statefulspark.errors import CorruptDataError, InvalidInputError
from statefulspark.storage.base import ObjectInfo, ObjectStore

ORPHAN_AGE_S = 24 * 3600.0
"""Default age in seconds after which an object that no complete checkpoint accounts for counts as left behind."""

_PREFIXES = (paths.SHARED_PREFIX, paths.CHANGELOG_PREFIX, paths.BATCHES_PREFIX, paths.ATTEMPTS_PREFIX, paths.SPARK_STATE_PREFIX)
"""What a job writes beside its checkpoints."""

_ATTEMPTS_KEPT = 100
"""Claims and starts of this many latest attempts stay: `lineage.is_fenced` looks for the next number only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What is stored and what is going on."""

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
    """What to delete."""

    checkpoints: tuple[int, ...]
    """Numbers of the complete checkpoints that go."""
    first: tuple[str, ...]
    """Keys to delete first: without its ``_metadata`` a checkpoint does not exist, so a crash leaves no half of one."""
    rest: tuple[str, ...]
    """Keys to delete afterwards."""


def plan_retention(situation: Situation, *, retained: int, orphan_age_s: float = ORPHAN_AGE_S) -> RetentionPlan:
    """Say what can go.

    Args:
        situation: What is stored and what is going on.
        retained: Number of complete checkpoints to keep, at least 1.
        orphan_age_s: Age in seconds from which left-behind objects are deleted; more than a checkpoint may take.

    Raises:
        InvalidInputError: ``retained`` is below 1.
    """
    if retained < 1:
        raise InvalidInputError(f"{retained} checkpoints cannot be retained", field="checkpointing.retained", remedy="Use 1 or more.")
    intact = _kept(situation, retained)
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
            return found[0] <= situation.lineage.attempt - _ATTEMPTS_KEPT
        return False

    keys = [info.key for info in situation.objects if can_go(info)]
    return RetentionPlan(
        checkpoints=gone,
        first=tuple(key for key in keys if key.endswith(f"/{METADATA_NAME}")),
        rest=tuple(key for key in keys if not key.endswith(f"/{METADATA_NAME}")),
    )


def plan_removal(objects: Iterable[ObjectInfo]) -> RetentionPlan:
    """Say what to delete when a cancelled job's checkpoints are not retained: everything except savepoints and foreign objects."""
    keys = [
        info.key
        for info in objects
        if info.key.startswith(_PREFIXES) or paths.checkpoint_id_of(info.key.partition("/")[0]) is not None or info.key == paths.JOB_KEY
    ]
    metadata = [key for key in keys if key.endswith(f"/{METADATA_NAME}")]
    checkpoints = [number for key in metadata if (number := paths.checkpoint_id_of(key.partition("/")[0])) is not None]
    return RetentionPlan(tuple(sorted(checkpoints)), tuple(metadata), tuple(sorted(set(keys) - set(metadata))))


def carry_out(store: ObjectStore, plan: RetentionPlan) -> None:
    """Delete what a plan says; what could not be deleted is found again by the next plan.

    Raises:
        UnavailableError: Storage did not answer.
    """
    store.delete(plan.first)
    store.delete(plan.rest)


class Retention:
    """Observes a job folder, plans and deletes; remembers ``_metadata`` that it has read, which never changes.

    Args:
        store: Opened at the job folder.
        retained: Number of complete checkpoints to keep, at least 1.
        orphan_age_s: Age in seconds from which left-behind objects are deleted.
    """

    def __init__(self, store: ObjectStore, *, retained: int, orphan_age_s: float = ORPHAN_AGE_S) -> None:
        self._store = store
        self._retained = retained
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
    ) -> RetentionPlan:
        """Delete what can go and return what was deleted. Call it only after `lineage.is_fenced` said no.

        Args:
            lineage: Of the running attempt.
            now_s: Current time, seconds since the epoch.
            in_flight: Numbers of the checkpoints that are being taken.
            pins: Numbers of checkpoints to keep, such as the bases of those in flight.
            packs_in_use: Asked, after the listing, for the keys of the packs of Spark's state that the running attempt needs.

        Raises:
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
        plan = plan_retention(situation, retained=self._retained, orphan_age_s=self._orphan_age_s)
        carry_out(self._store, plan)
        self._known = {number: metadata for number, metadata in readable.items() if number not in plan.checkpoints}
        return plan

    @property
    def retained(self) -> Mapping[int, CheckpointMetadata]:
        """Checkpoints of the folder by number, whoever took them, as the last `run` has left them."""
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
                readable[number] = self._known[number] if number in self._known else load(self._store, info.key)
            except CorruptDataError:
                unreadable.add(number)
            except InvalidInputError:
                continue  # Deleted between the listing and now.
        self._known |= readable
        return readable, unreadable


def _kept(situation: Situation, retained: int) -> set[int]:
    """Numbers of the complete checkpoints that stay, without damaged ones that are only not old enough to go."""
    newest = sorted(set(situation.checkpoints).difference(situation.damaged), reverse=True)
    in_lineage = [number for number in newest if _in_lineage(situation, number)]
    return {*newest[:retained], *in_lineage[:retained], *(number for number in situation.pins if number in situation.checkpoints)}


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
