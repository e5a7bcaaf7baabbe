"""Removes a cancelled job's state. Afterwards the job starts from nothing, and no running driver depends on deleted objects.

The driver that removes the state claims the next attempt and starts it from nothing (`remove_state`). If another driver claimed before,
nothing is deleted; a driver that claims afterwards finds that start and also starts from nothing. The last claim and its start are kept,
so that attempt numbers are never reused: a driver that was paused for long could otherwise find its own number claimed by another.
A crash between any two steps leaves objects that no lineage references.
"""

from __future__ import annotations

from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.documents import encode_document
from statefulspark.checkpoint.formats.records import AttemptClaim, AttemptStart
from statefulspark.checkpoint.lineage.fencing import claim_after, refuse_fenced
from statefulspark.checkpoint.write.retention import carry_out, plan_removal
from statefulspark.storage.base import ObjectStore


def remove_state(store: ObjectStore, claim: AttemptClaim, *, now_ms: int) -> None:
    """Delete everything of the job except its identity, its savepoints and the newest claim.

    Args:
        store: Opened at the job folder.
        claim: Of the driver that cancels the job.
        now_ms: Current time, milliseconds since the epoch.

    Raises:
        FencedError: A newer attempt was claimed, whose state this is; nothing was deleted.
        UnavailableError: Storage did not answer; the job starts from nothing, but some objects may not have been deleted.
    """
    last = claim_after(store, claim, now_ms=now_ms)
    start = AttemptStart(attempt=last.attempt, created_ms=now_ms)
    store.put_if_absent(paths.attempt_start_key(last.attempt), encode_document("attempt-start", start))
    objects = store.list("")
    # A driver that claims after this check finds the start above. Everything that is deleted was listed before it.
    carry_out(store, plan_removal(objects, last.attempt), lambda: refuse_fenced(store, last))
