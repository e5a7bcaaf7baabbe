"""What one attempt writes is enough for the next, however many drivers die in a row."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from statefulspark.checkpoint.formats.bundle import decode_bundle
from statefulspark.checkpoint.formats.changelog import ChangelogHeader, ChangelogWriter, read_changelog
from statefulspark.checkpoint.formats.metadata import SlotState
from statefulspark.checkpoint.formats.paths import changelog_key
from statefulspark.checkpoint.formats.records import ChangelogRef
from statefulspark.checkpoint.lineage.identity import ensure_job
from statefulspark.checkpoint.lineage.lineage import Lineage, begin_attempt
from statefulspark.checkpoint.spark.location import LocationFiles
from statefulspark.checkpoint.spark.state_uploader import SparkStateUploader
from statefulspark.coordinator.batches.adoption import adopted
from statefulspark.coordinator.batches.log import BatchLog
from statefulspark.coordinator.core.life import BatchParameters
from statefulspark.coordinator.durable.durable_job import DurableJob
from statefulspark.coordinator.durable.recovery import batch_log, recovered_batch, restore_location
from statefulspark.coordinator.snapshots.pending import PendingCheckpoint
from statefulspark.errors import FencedError, InvalidInputError
from statefulspark.keygroups import KeyGroupRange
from statefulspark.rpc.messages.batches import Acknowledge, RunMetrics
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.open import open_store

UID = "count"


def _acknowledgement(batch: int) -> Acknowledge:
    changelog = ChangelogRef(
        uid=UID,
        slot=0,
        first=0,
        last=31,
        batch=batch,
        epoch=1,
        key=f"changelog/00000001/{batch}/x",
        size_bytes=1,
        checksum="sha256:" + "0" * 64,
    )
    return Acknowledge(
        uid=UID,
        slot=0,
        epoch=1,
        batch=batch,
        changelog=changelog,
        max_event_time_ms=7,
        event_timer_ms=None,
        processing_timer_ms=None,
        rows_in=1,
        rows_out=1,
        metrics=RunMetrics(timers_fired=0, timers_registered=0, seconds={}, exchange_seconds={}),
    )


def _plan(location: Path, batch: int) -> None:
    """Write what Spark writes before it starts a batch, and the commit of the one before."""
    for folder, number in (("offsets", batch), ("sources/0", batch), ("commits", batch - 1)):
        if number >= 0:
            (location / folder).mkdir(parents=True, exist_ok=True)
            (location / folder / str(number)).write_text(f"{folder} {number}")


def _durable(
    store: ObjectStore, lineage: Lineage, *, savepoint_dir: str | None = None, savepoint_places: list[str] | None = None
) -> DurableJob:
    return DurableJob(
        store=store,
        open_store=open_store,
        job_id="job",
        name="job",
        max_parallelism=32,
        backend="memory",
        lineage=lineage,
        savepoint_dir=savepoint_dir,
        savepoint_places=savepoint_places,
        retained=1,
    )


@pytest.mark.parametrize(
    "target",
    [
        "file:///a/../../etc/x", "file:///a/%2e%2e/etc", "file:///a/b%2f..%2f..%2fetc", "/a/../etc", "hdfs://169.254.169.254:80/x",
        "hdfs://0xa9fea9fe/x", "hdfs://metadata.google.internal/x", "s3://a:b@bucket/x", "ftp://host/x", "relative", "",
    ],
)  # fmt: skip
def test_a_target_that_is_no_location_is_refused_before_anything_is_asked_for(tmp_path: Path, target: str) -> None:
    """Wherever it was written, each slot tried again until the time limit, and no other snapshot was taken meanwhile."""
    store = open_store(f"file://{tmp_path}/job")
    ensure_job(store, "job", 32)
    durable = _durable(store, begin_attempt(store, now_ms=1, open_store=open_store))
    with pytest.raises(InvalidInputError, match=r"^target: "):
        durable.savepoint_target(target)


def test_targets_are_limited_to_the_places_of_the_operator_and_of_the_job(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/jobs/job")
    ensure_job(store, "job", 32)
    lineage = begin_attempt(store, now_ms=1, open_store=open_store)
    durable = _durable(store, lineage, savepoint_dir="s3://saved/shop", savepoint_places=["s3://team/shop"])
    for allowed in ("s3://saved/shop/x", "s3://team/shop", f"{tmp_path}/jobs/x"):
        assert durable.savepoint_target(allowed).endswith(allowed)
    assert durable.savepoint_target(None) == "s3://saved/shop"
    for refused in ("s3://team/shopping", "s3://other/x", f"file://{tmp_path}/elsewhere"):
        with pytest.raises(InvalidInputError, match="target: is not among the locations that this job may use"):
            durable.savepoint_target(refused)


def _attempt(store: ObjectStore, location: Path) -> tuple[DurableJob, LocationFiles, BatchLog, Lineage]:
    lineage = begin_attempt(store, now_ms=1, open_store=open_store)
    files = LocationFiles(location)
    restore_location(files, lineage)
    return _durable(store, lineage), files, batch_log(lineage, {UID: (0,)}), lineage


@pytest.mark.parametrize("deaths", [1, 2, 3])
def test_drivers_that_die_while_they_run_the_same_batch_again(tmp_path: Path, deaths: int) -> None:
    """The record of a batch that runs again keeps the changelogs of the batch before it, and Spark's plan."""
    store = open_store(f"file://{tmp_path}/job")
    ensure_job(store, "job", 32)
    durable, files, log, _ = _attempt(store, tmp_path / "location-0")
    for batch in range(3):
        _plan(tmp_path / "location-0", batch)
        log.commit_current()
        parameters = log.next_parameters(batch, 1000 + batch)
        durable.write_record(parameters, files, SparkStateUploader(tmp_path / "location-0"), log)
        log.begin(parameters)
        assert log.acknowledge(_acknowledgement(batch))
    for death in range(1, deaths + 1):
        location = tmp_path / f"location-{death}"
        durable, files, log, lineage = _attempt(store, location)
        again = recovered_batch(lineage, log)
        assert again == BatchParameters(batch=2, watermarks={UID: 7}, processing_time_ms=1002)
        assert [ref.batch for ref in lineage.changelogs] == [0, 1]
        assert log.committed_time_ms == 1001, "batch 2 may not be committed, and nothing that expires at 1002 may go"
        assert sorted(path.name for path in (location / "offsets").iterdir()) == ["0", "1", "2"]
        assert sorted(path.name for path in (location / "commits").iterdir()) == ["0", "1"]
        durable.write_record(again, files, SparkStateUploader(location), log)
    last = begin_attempt(store, now_ms=1, open_store=open_store)
    assert [ref.batch for ref in last.changelogs] == [0, 1]
    assert last.records[-1].epochs == ()
    assert "offsets/2" in decode_bundle(last.records[-1].files, path="record")


def _changelog(store: ObjectStore, folder: Path, attempt: int, batch: int, content: bytes) -> None:
    """What the slot of an attempt makes durable for a batch."""
    path = folder / f"changelog-{attempt}-{batch}"
    header = ChangelogHeader(uid=UID, slot=0, batch=batch, epoch=1, first_key_group=0, last_key_group=31, max_event_time_ms=7, states=())
    writer = ChangelogWriter(path, header)
    writer.append([(b"\x00\x01k", content)])
    writer.close()
    store.put_file(changelog_key(attempt, batch, UID, 0, 1), path)


@pytest.mark.parametrize("deaths", [1, 2, 3])
def test_a_sink_commit_of_a_driver_that_was_cut_off_lands_late(tmp_path: Path, deaths: int) -> None:
    """Its batch is complete although later attempts began it again and died: the changelogs of the first attempt are found."""
    store = open_store(f"file://{tmp_path}/job")
    ensure_job(store, "job", 32)
    cut_off, files, log, _ = _attempt(store, tmp_path / "location-0")
    _plan(tmp_path / "location-0", 0)
    parameters = log.next_parameters(0, 1000)
    cut_off.write_record(parameters, files, SparkStateUploader(tmp_path / "location-0"), log)
    log.begin(parameters)
    _changelog(store, tmp_path, 1, 0, b"of the batch")
    for death in range(1, deaths + 1):
        durable, files, log, lineage = _attempt(store, tmp_path / f"location-{death}")
        again = recovered_batch(lineage, log)
        assert again is not None
        durable.write_record(again, files, SparkStateUploader(tmp_path / f"location-{death}"), log)
    # Now the first driver commits its sink, and nobody runs the batch again: the sink skips it.
    last, _, log, lineage = _attempt(store, tmp_path / "location-last")
    recovered = recovered_batch(lineage, log)
    assert recovered is not None
    found = last.changelogs.complete(0)
    assert found is not None
    log.adopt(recovered, [adopted(done) for done in found.done], [KeyGroupRange(0, 31)])
    assert [ref.batch for ref in log.changelogs] == [0]
    store.get_file(log.changelogs[0].key, tmp_path / "found")
    assert list(read_changelog(tmp_path / "found")[1]) == [(b"\x00\x01k", b"of the batch")]
    assert (log.committed, log.expected_batch(UID, 0), log.event_times.of_input(0)) == (0, 0, {UID: 7})


def test_changelogs_of_another_past_are_not_found(tmp_path: Path) -> None:
    """A job that began anew from a checkpoint has nothing to do with what the same batches once were."""
    store = open_store(f"file://{tmp_path}/job")
    ensure_job(store, "job", 32)
    _attempt(store, tmp_path / "location-0")
    durable, files, log, _ = _attempt(store, tmp_path / "location-1")
    _changelog(store, tmp_path, 1, 0, b"of the past")
    durable.write_record(log.next_parameters(0, 1000), files, SparkStateUploader(tmp_path / "location-1"), log)
    _changelog(store, tmp_path, 2, 0, b"of the batch")
    last, _, _, lineage = _attempt(store, tmp_path / "location-2")
    assert lineage.since == 2
    found = last.changelogs.complete(0)
    assert found is not None
    assert [ref.key for ref in found.refs] == [info.key for info in store.list("changelog/00000002/")]


def _pending(files: LocationFiles) -> PendingCheckpoint:
    """A checkpoint whose slots have all answered, with what the metadata says besides."""
    return PendingCheckpoint(
        checkpoint_id=1,
        batch=0,
        request=None,
        started_s=time.monotonic(),
        created_ms=1,
        frame={
            "files": files.all_files(batch=0),
            "spark_state": (),
            "watermarks": {},
            "second_watermarks": {},
            "event_times_by_value": {},
            "batch_watermarks": {},
            "processing_time_ms": 0,
            "parallelism": 1,
        },
        savepoint_folder=None,
        base_checkpoint_id=None,
        full=False,
        waiting=set(),
        epochs={},
    )


def test_a_checkpoint_that_is_published_while_the_state_is_deleted_goes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that publishes lives on when the job is cancelled. It must not write ``_metadata`` after the files are gone."""
    store = open_store((tmp_path / "storage").as_uri())
    ensure_job(store, "job", 32)
    durable, files, _, _ = _attempt(store, tmp_path / "location")
    _plan(tmp_path / "location", 0)
    slot = SlotState(slot=0, first=0, last=31, backend="memory")
    checked, deleted = threading.Event(), threading.Event()

    def check_presence(*_: object) -> None:
        checked.set()
        deleted.wait(0.3)

    monkeypatch.setattr("statefulspark.checkpoint.write.publish.check_presence", check_presence)
    with ThreadPoolExecutor(1) as pool:
        published = pool.submit(durable.publish, _pending(files), (slot,), [])
        assert checked.wait(10)
        durable.delete_checkpoints()
        deleted.set()
        published.result()
    assert store.list("chk-") == []
    with pytest.raises(FencedError):
        durable.publish(_pending(files), (slot,), [])
    assert store.list("chk-") == []
