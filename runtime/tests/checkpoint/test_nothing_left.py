"""A job folder without checkpoints and batch records: lost state is refused, and litter that proves nothing does not keep a job from starting."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from runtime.tests.checkpoint.bucket import DAY_S, Bucket
from runtime.tests.checkpoint.dict_store import DictStore
from runtime.tests.checkpoint.miniature import Miniature

from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.bundle import encode_bundle
from statefulspark.checkpoint.gc.collecting import collect_garbage
from statefulspark.checkpoint.lineage.fencing import ATTEMPTS_KEPT, claim_attempt
from statefulspark.checkpoint.write.publish import publish
from statefulspark.checkpoint.write.removal import remove_state
from statefulspark.errors import CorruptDataError
from statefulspark.storage.base import ObjectStore

URL = "mem://bucket/checkpoints/flights"
SHARED = "shared/0000000001-" + "a" * 32


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
def mini(bucket: Bucket, tmp_path: Path) -> Miniature:
    """A job that has not started."""
    return Miniature(bucket.open(URL), tmp_path, DictStore, open_store=bucket.open)


def live(mini: Miniature, *, publish_it: bool = True) -> None:
    """Run two batches and take a checkpoint."""
    mini.start(2)
    for batch in range(2):
        mini.begin(batch)
        mini.run(batch, [(bytes([0, key_group, 0, 1]), b"1") for key_group in range(8)])
    mini.checkpoint(1, publish_it=publish_it)


def cancel(mini: Miniature) -> None:
    """Remove the job's state, as ``onCancellation: DELETE`` does."""
    assert mini.lineage is not None
    assert mini.lineage.claim is not None
    remove_state(mini.job, mini.lineage.claim, now_ms=0)


def test_a_checkpoint_that_was_abandoned_before_the_first_batch(mini: Miniature) -> None:
    """Its driver died before it was published. The job starts again, also after that driver had put the bundle."""
    mini.start(2)
    mini.checkpoint(-1, publish_it=False)
    assert mini.job.list("chk-1/")
    assert mini.start(2) == -1
    assert mini.start(1) == -1


@pytest.mark.parametrize("late_s", [1, 3000])
def test_an_upload_that_ends_after_the_state_was_removed(bucket: Bucket, mini: Miniature, late_s: int) -> None:
    """A slot was presumed dead. The job starts empty, however often, and garbage collection deletes the upload."""
    live(mini)
    cancel(mini)
    bucket.clock_s += late_s
    mini.job.put(SHARED, b"late")
    mini.job.put("chk-9/slot-0-aaaaaaaa/entries", b"late")
    assert mini.start(2) == -1
    mini.job.put(SHARED.replace("a", "b"), b"later")
    assert mini.start(2) == -1
    bucket.clock_s += 7 * DAY_S
    collect_garbage(URL, open_store=bucket.open, now_s=bucket.clock_s, older_than_s=DAY_S, dry_run=False)
    assert not mini.job.list("shared/")
    assert not mini.job.list("chk-")
    assert mini.start(2) == -1


def test_a_checkpoint_that_is_published_after_the_state_was_removed(bucket: Bucket, mini: Miniature) -> None:
    """Its driver was frozen before the write. It is of an attempt before the removal, so the job starts empty."""
    live(mini)
    metadata = mini.checkpoint(1, publish_it=False)
    kept = {info.key: mini.job.get(info.key) for info in (*mini.job.list("chk-2/"), *mini.job.list("shared/"))}
    cancel(mini)
    for key, data in kept.items():
        mini.job.put(key, data)
    publish(mini.job, metadata)
    assert mini.start(2) == -1


def test_the_copy_of_a_driver_that_died_before_its_start(mini: Miniature) -> None:
    """It was to go on from elsewhere. The job goes on without state, as before."""
    mini.start(1)
    claim_attempt(mini.job, now_ms=0)
    mini.job.put(SHARED, b"copied")
    mini.job.put("chk-1/spark-location-aaaaaaaa", encode_bundle({"offsets/7": b"{}", "commits/7": b"{}"}))
    assert mini.start(1) == -1


def _without_records_and_checkpoints(job: ObjectStore) -> None:
    job.delete([info.key for info in job.list("") if info.key.startswith(("batches/", "chk-", "changelog/"))])


def _without_records_and_metadata(job: ObjectStore) -> None:
    shared = [info.key for info in job.list("") if info.key.startswith(("batches/", "shared/", "changelog/"))]
    job.delete([*shared, "chk-1/_metadata"])


@pytest.mark.parametrize("lose", [_without_records_and_checkpoints, _without_records_and_metadata])
@pytest.mark.parametrize("after", ["its first start", "the removal of earlier state", "many attempts"])
def test_lost_state_is_refused(bucket: Bucket, mini: Miniature, lose: Callable[[ObjectStore], None], after: str) -> None:
    """Files of a checkpoint of a batch are left: an empty start would drop the state silently."""
    if after == "the removal of earlier state":
        live(mini)
        cancel(mini)
        bucket.clock_s += DAY_S
    if after == "many attempts":
        for _ in range(2):
            mini.start(1)
        mini.job.delete([paths.attempt_key(1), paths.attempt_start_key(1)])
        claims = [claim_attempt(mini.job, now_ms=0) for _ in range(ATTEMPTS_KEPT - 2)]
        assert claims[-1].attempt == ATTEMPTS_KEPT
    live(mini)
    mini.job.put(SHARED, b"of the checkpoint")
    lose(mini.job)
    with pytest.raises(CorruptDataError, match="shows that the job had state, but neither a checkpoint nor a batch record exists"):
        mini.start(2)
