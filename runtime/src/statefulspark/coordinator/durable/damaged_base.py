"""Errors for a checkpoint that cannot be restored: the reason and the remedy. Pure but for looking at what else is stored."""

from __future__ import annotations

from collections.abc import Iterable

from statefulspark.checkpoint.catalog import OpenStore, StoredCheckpoint, checkpoint_before
from statefulspark.checkpoint.formats import paths
from statefulspark.errors import CorruptDataError


def refusal(error: CorruptDataError, base: StoredCheckpoint | None, open_store: OpenStore) -> CorruptDataError:
    """Return the error of a job that has nothing left to fall back to.

    Args:
        error: What a slot has reported.
        base: The checkpoint that it could not restore; None for empty state.
        open_store: Opens the store of any URL.
    """
    if base is None:
        return error
    if is_changelog(error):
        remedy = f"Go back to the checkpoint before that batch with --from {base.url}; the rows after it are processed again"
    elif (before := checkpoint_before(base.url, open_store)) is not None:
        remedy = f"An earlier checkpoint is available: start with --from {before}"
    else:
        remedy = "No older checkpoint is retained: start from a savepoint with --from PATH"
    return CorruptDataError(f"{base.url} cannot be restored: {error}. {remedy}", path=error.path)


def run_again(error: CorruptDataError, base: StoredCheckpoint, stored: Iterable[int]) -> CorruptDataError:
    """Return the error of a driver that has marked its base checkpoint as damaged: the next one passes it over.

    Args:
        error: Why it cannot be restored.
        base: The checkpoint.
        stored: Numbers of all checkpoints of the job.
    """
    others = [number for number in stored if number < base.metadata.checkpoint_id]
    remedy = (
        f"Run the job again: it resumes from checkpoint {max(others)} and replays all later batches"
        if others
        else "No older checkpoint is retained: start from a savepoint with --from PATH"
    )
    return CorruptDataError(f"{base.url} cannot be restored: {error}. {remedy}", path=error.path)


def is_changelog(error: CorruptDataError) -> bool:
    """True if what is damaged is a changelog, which older checkpoints need too."""
    return f"/{paths.CHANGELOG_PREFIX}" in f"/{error.path}"
