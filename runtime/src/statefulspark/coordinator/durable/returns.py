"""Sentences about a job that goes back to an earlier checkpoint, for its history. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from statefulspark.checkpoint.lineage.resumed import Lineage
from statefulspark.errors import CorruptDataError, StatefulSparkError

Told = Callable[[str, StatefulSparkError | None], None]
"""Takes a sentence, and the error that is the reason, if there is one."""
_PROBLEM_MAX: Final = 300


def went_back(lineage: Lineage, *, until: int, why: str) -> str:
    """Say that a running job has gone back, because a slot has lost the state after batches without changelogs.

    Args:
        lineage: What the job resumes from.
        until: The last batch that was committed.
        why: What made it necessary.
    """
    return f"{why}: the job went back to {_state(lineage)}{_repeated(lineage.committed_batch, until)}"


def passed_over(damaged: str | None, base: str | None, problem: StatefulSparkError) -> str:
    """Say that slots restore an earlier checkpoint and the batches since, because the newest is damaged."""
    return (
        f"{damaged or 'a checkpoint'} cannot be restored: {str(problem)[:_PROBLEM_MAX]}. Slots restore {base or 'empty state'} and the "
        "changelogs of the batches since"
    )


def returns_at_start(lineage: Lineage) -> Iterator[tuple[str, StatefulSparkError | None]]:
    """Yield what a driver that starts has to say of this, with the reason.

    Args:
        lineage: What its attempt starts from.
    """
    for problem in lineage.problems:
        url = lineage.base.url if lineage.base is not None else ""
        yield f"skipped a checkpoint: {problem[:_PROBLEM_MAX]}", CorruptDataError(problem[:_PROBLEM_MAX], path=url)
    if not lineage.ends_with_jump or lineage.records[-1].attempt != lineage.attempt:
        return
    start = f"attempt {lineage.attempt} of the driver was started from {lineage.copied_from}" if lineage.copied_from is not None else ""
    why = start or f"batches without changelogs had run before attempt {lineage.attempt} of the driver"
    yield went_back(lineage, until=lineage.records[-1].batch - (not start), why=why), None


def _state(lineage: Lineage) -> str:
    base = lineage.base.url if lineage.base is not None else "empty state"
    return f"batch {lineage.committed_batch}, from {base}" if lineage.committed_batch >= 0 else base


def _repeated(kept: int, until: int) -> str:
    if until <= kept:
        return ""
    which = f"batch {until}" if until == kept + 1 else f"batches {kept + 1} to {until}"
    return f". The rows of {which} are processed again under new numbers"
