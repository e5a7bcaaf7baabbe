"""Deletes the garbage of a job's folder.

Everything is read and decided before the first object is deleted. Garbage stays garbage, so a crash or an error in between leaves less of
it, and the next run finds the rest. The one exception is a checkpoint that took longer than garbage is old. It references its uploads as soon
as it is published, so checkpoints are read again before each request.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from statefulspark.checkpoint.catalog import OpenStore
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.metadata import CheckpointMetadata
from statefulspark.checkpoint.gc.plan import GcPlan, check_age, plan_gc
from statefulspark.checkpoint.gc.reading import check_versions, read_folder, read_snapshots
from statefulspark.checkpoint.write.retention import KEYS_PER_REQUEST
from statefulspark.errors import ConflictError, CorruptDataError, InvalidInputError, UnavailableError
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.keys import probe_key


@dataclass(frozen=True, slots=True, kw_only=True)
class GcResult:
    """Garbage of a job's folder, as of before it was deleted."""

    url: str
    """The job's folder."""
    plan: GcPlan
    missing: Mapping[str, str]
    """Keys of missing objects that a restore needs, each with the key of an object that references it."""


def collect_garbage(
    url: str,
    *,
    open_store: OpenStore,
    now_s: float | None = None,
    older_than_s: float,
    dry_run: bool,
    progress: Callable[[int], None] = lambda _: None,
) -> GcResult:
    """Find the objects of a job's folder that nothing references, and delete them.

    The job may run meanwhile.

    Args:
        url: The job's folder.
        open_store: Opens the store of a URL.
        now_s: Current time, seconds since the epoch. Defaults to this machine's time, or to storage's if that is behind: a clock that is set
            forward would make the uploads of a checkpoint in progress old. A dry run writes nothing, so it does not ask storage, and this
            machine's time counts if storage is full or may not be written.
        older_than_s: Age in seconds that garbage exceeds, at least an hour; longer than a checkpoint may take.
        dry_run: True to delete nothing.
        progress: Called with the number of objects that have been deleted, after each request.

    Raises:
        InvalidInputError: It is no job's folder, or ``older_than_s`` is too short.
        IncompatibleFormatError: A later release wrote an object that names others; nothing was deleted.
        CorruptDataError: An object that names others is damaged, or one that a restore needs is missing; nothing was deleted.
        ConflictError: A checkpoint was published that references garbage, or the folder changes too fast; the rest was left.
        UnavailableError: Storage did not answer; the text says how much has been deleted.
    """
    check_age(older_than_s)
    store = open_store(url)
    found = read_folder(store, open_store=open_store)
    if now_s is None:
        now_s = time.time() if dry_run else min(time.time(), _storage_time_s(store))
    plan = plan_gc(found.contents, now_s=now_s, older_than_s=older_than_s)
    check_versions(store, [each.key for each in plan.garbage if each.kind == "batch record"])
    if not dry_run:
        if found.missing:
            raise _refusal(store, found.missing)
        _delete(store, [each.key for each in plan.garbage], dict(found.contents.snapshots), progress)
    return GcResult(url=store.url, plan=plan, missing=found.missing)


def _storage_time_s(store: ObjectStore) -> float:
    """Return the time of the clock that dates objects, seconds since the epoch, by writing one. Infinite if storage is full or refuses it."""
    key = probe_key()
    try:
        store.put(key, b"")
    except (UnavailableError, InvalidInputError):
        return math.inf  # garbage must go all the more
    try:
        written = store.head(key)
    finally:
        store.delete([key])
    return written.modified_s if written is not None else math.inf


def _refusal(store: ObjectStore, missing: Mapping[str, str]) -> CorruptDataError:
    key, referrer = next(iter(missing.items()))
    others = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
    return CorruptDataError(
        f"the object is missing{others}, but {referrer} references it. Nothing was deleted. Restore the object, or delete the "
        "checkpoint or savepoint that references it if you do not need it",
        path=paths.url_of(store.url, key),
    )


def _delete(store: ObjectStore, keys: Sequence[str], known: dict[str, CheckpointMetadata], progress: Callable[[int], None]) -> None:
    for done in range(0, len(keys), KEYS_PER_REQUEST):
        part = keys[done : done + KEYS_PER_REQUEST]
        try:
            _refuse_referenced(store, set(part), known)
            store.delete(part)
        except UnavailableError as error:
            raise UnavailableError(
                f"{error}. At least {done} of {len(keys)} objects were deleted. Run the command again to delete the rest"
            ) from error
        progress(done + len(part))


def _refuse_referenced(store: ObjectStore, keys: set[str], known: dict[str, CheckpointMetadata]) -> None:
    """Raise if a checkpoint that was published since the plan references an object that is about to be deleted."""
    before = set(known)
    for key, metadata in read_snapshots(store, known).items():
        if key in before:
            continue
        for file in metadata.files():
            if (target := paths.resolve_reference(key, file.path)) in keys:
                raise ConflictError(
                    f"{paths.url_of(store.url, key)} references {target}, which it uploaded longer ago than --older-than. "
                    "Use more than checkpointing.timeout"
                )
