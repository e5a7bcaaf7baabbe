"""A new driver goes on from exactly what the old one left, and an old one cannot add anything any more."""

from __future__ import annotations

from pathlib import Path

import pytest
from runtime.tests.checkpoint.dict_store import DictStore
from runtime.tests.checkpoint.miniature import Miniature

from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.lineage.fencing import claim_attempt, is_fenced
from statefulspark.checkpoint.lineage.identity import ensure_job
from statefulspark.errors import ConflictError, CorruptDataError, FencedError, NotRestorableError
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.local.store import LocalStore


@pytest.fixture
def mini(job: ObjectStore, tmp_path: Path) -> Miniature:
    """A job that has not started."""
    (tmp_path / "local").mkdir()
    return Miniature(job, tmp_path / "local", DictStore)


def _run(mini: Miniature, first: int, last: int) -> None:
    for batch in range(first, last + 1):
        mini.begin(batch)
        mini.run(batch, [(bytes([0, 1, 0, 1]), bytes([batch]))])


def test_a_new_job_starts_empty(mini: Miniature) -> None:
    """No checkpoint, no records, nothing committed."""
    assert mini.start(1) == -1
    assert mini.lineage is not None
    assert (mini.lineage.attempt, mini.lineage.base, mini.lineage.records) == (1, None, ())


def test_the_last_record_runs_again_with_its_watermark_and_time(mini: Miniature) -> None:
    """Without a checkpoint: all batches before the last record are committed, the last one is to be repeated."""
    mini.start(1)
    _run(mini, 0, 2)
    mini.start(1)
    assert mini.lineage is not None
    assert (mini.lineage.committed_batch, mini.lineage.uncommitted_batch) == (1, 2)
    assert (mini.lineage.records[-1].watermarks, mini.lineage.records[-1].processing_time_ms) == ({"u": 2}, 2_000)
    assert [ref.batch for ref in mini.lineage.changelogs] == [0, 1]


def test_a_checkpoint_replaces_the_changelogs_before_it(mini: Miniature) -> None:
    """Only the batches after the checkpoint are replayed."""
    mini.start(1)
    _run(mini, 0, 2)
    mini.checkpoint(2)
    _run(mini, 3, 5)
    lineage = mini.lineage_now()
    assert lineage.base is not None
    assert (lineage.base.metadata.batch, [ref.batch for ref in lineage.changelogs], lineage.uncommitted_batch) == (2, [3, 4], 5)


def test_lineage_goes_through_several_attempts(mini: Miniature) -> None:
    """Records of earlier attempts stay part of it until a checkpoint makes them unnecessary."""
    for attempt in range(4):
        mini.start(1)
        _run(mini, attempt, attempt + 1)
    assert mini.start(1) == 3
    assert mini.contents() == {bytes([0, 1, 0, 1]): bytes([3])}


def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(mini: Miniature, job: ObjectStore) -> None:
    """The changelogs since the older checkpoint lead to the same state; the reason is told."""
    mini.start(1)
    _run(mini, 0, 1)
    mini.checkpoint(1)
    _run(mini, 2, 3)
    mini.checkpoint(3)
    _run(mini, 4, 5)
    expected = {bytes([0, 1, 0, 1]): bytes([4])}
    job.put("chk-2/_metadata", job.get("chk-2/_metadata").replace(b'"batch":3', b'"batch":4'))
    assert mini.start(1) == 4
    assert mini.contents() == expected
    assert mini.lineage is not None
    assert mini.lineage.base is not None
    assert mini.lineage.base.folder == "chk-1"
    assert "chk-2" in mini.lineage.problems[0]


def test_a_checkpoint_that_failed_to_restore_can_be_passed_over(mini: Miniature, job: ObjectStore) -> None:
    """Damage inside a file shows only when slots read it; the driver then names the checkpoint and gets the one before."""
    mini.start(1)
    _run(mini, 0, 0)
    mini.checkpoint(0)
    _run(mini, 1, 1)
    mini.checkpoint(1)
    _run(mini, 2, 2)
    assert mini.start(1, damaged=(f"{job.url}/chk-2",)) == 1
    assert mini.lineage is not None
    assert mini.lineage.base is not None
    assert mini.lineage.base.folder == "chk-1"
    assert mini.contents() == {bytes([0, 1, 0, 1]): bytes([1])}


def test_nothing_is_restored_when_the_way_from_the_checkpoint_is_broken(mini: Miniature, job: ObjectStore) -> None:
    """A missing record, or only damaged checkpoints, is an error and never an empty state."""
    mini.start(1)
    _run(mini, 0, 1)
    mini.checkpoint(1)
    _run(mini, 2, 4)
    record = paths.batch_key(1, 3)
    kept = job.get(record)
    job.delete([record])
    with pytest.raises(CorruptDataError, match="some batch records after batch 1 are missing"):
        mini.lineage_now()
    job.put(record, kept)
    job.delete([paths.batch_key(1, 0)])
    job.put("chk-1/_metadata", b"{}")
    with pytest.raises(CorruptDataError, match="format_version"):
        mini.lineage_now()


def test_all_damaged_and_no_records_is_not_an_empty_job(mini: Miniature, job: ObjectStore) -> None:
    """A job whose only checkpoint is damaged must not silently begin again with nothing."""
    mini.start(1)
    mini.checkpoint(-1)
    job.put("chk-1/_metadata", b"")
    with pytest.raises(CorruptDataError, match="not a JSON document"):
        mini.start(1)


def test_an_old_driver_is_fenced_by_the_claim(mini: Miniature, job: ObjectStore) -> None:
    """Its record is refused; had it been written just before the claim, the new driver would see it."""
    mini.start(1)
    _run(mini, 0, 0)
    assert mini.lineage is not None
    assert (first := mini.lineage.claim) is not None
    assert not is_fenced(job, first)
    assert claim_attempt(job, now_ms=0).attempt == 2
    assert is_fenced(job, first)
    with pytest.raises(FencedError):
        mini.begin(1)


def test_an_attempt_that_died_before_its_start_is_skipped(mini: Miniature, job: ObjectStore) -> None:
    """A claim alone changes nothing about what the state is made of."""
    mini.start(1)
    _run(mini, 0, 1)
    claim_attempt(job, now_ms=0)
    mini.start(1)
    assert mini.attempt == 3
    assert mini.contents() == {bytes([0, 1, 0, 1]): bytes([0])}


def test_a_lost_race_for_a_number_takes_the_next(job: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two drivers that see the same claims get different numbers."""
    claim_attempt(job, now_ms=0)
    monkeypatch.setattr(LocalStore, "list", lambda _store, _prefix: [])
    assert claim_attempt(job, now_ms=0).attempt == 2


def test_a_number_is_never_endlessly_sought(job: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search is bounded."""

    def refuse(self: LocalStore, key: str, data: bytes) -> None:
        raise ConflictError(key)

    monkeypatch.setattr(LocalStore, "put_if_absent", refuse)
    with pytest.raises(ConflictError, match="lost the race for an attempt number"):
        claim_attempt(job, now_ms=0)


def test_going_back_to_an_older_checkpoint_leaves_the_newer_batches_behind(mini: Miniature, job: ObjectStore) -> None:
    """The lineage begins anew at the named checkpoint, above the numbers that were used; later restarts stay on it."""
    mini.start(1)
    _run(mini, 0, 0)
    mini.checkpoint(0)
    _run(mini, 1, 3)
    mini.checkpoint(3)
    assert mini.start(1, origin=f"{job.url}/chk-1") == 0
    assert mini.lineage is not None
    assert mini.lineage.last_committed_in_spark == 3
    mini.begin(4)
    mini.run(4, [(bytes([0, 1, 0, 1]), b"other")])
    mini.begin(5)
    assert mini.start(1) == 4
    assert mini.contents() == {bytes([0, 1, 0, 1]): b"other"}


def test_another_jobs_folder_is_refused(job: ObjectStore) -> None:
    """Name and number of key groups are fixed; the same again is fine."""
    ensure_job(job, "flights", 128)
    ensure_job(job, "flights", 128)
    with pytest.raises(NotRestorableError, match="belongs to the job 'flights'"):
        ensure_job(job, "trains", 128)
    with pytest.raises(NotRestorableError, match="Set maxParallelism to 128"):
        ensure_job(job, "flights", 256)
