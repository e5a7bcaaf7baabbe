"""Garbage collection: what it refuses, what it keeps however old it is, and what the command prints."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from runtime.tests.checkpoint.bucket import DAY_S, Bucket
from runtime.tests.checkpoint.dict_store import DictStore
from runtime.tests.checkpoint.miniature import Miniature
from runtime.tests.s3_server import ACCESS_KEY, s3_server
from typer.testing import CliRunner

from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.metadata import FileRef
from statefulspark.checkpoint.formats.records import PackRef
from statefulspark.checkpoint.gc.collecting import GcResult, collect_garbage
from statefulspark.checkpoint.gc.plan import plan_gc
from statefulspark.checkpoint.gc.reading import read_folder
from statefulspark.checkpoint.lineage.fencing import claim_attempt
from statefulspark.checkpoint.write.publish import publish
from statefulspark.cli import main
from statefulspark.errors import ConflictError, CorruptDataError, IncompatibleFormatError, InvalidInputError
from statefulspark.state.store.base import Change
from statefulspark.storage.base import ObjectInfo, ObjectStore
from statefulspark.storage.open import open_store
from statefulspark.storage.storage_settings import StorageSettings

HOUR_S = 3600.0
URL = "mem://bucket/checkpoints/flights"
CHANGES: list[Change] = [(bytes([0, key_group, 0, 1]), b"%d" % key_group) for key_group in range(8)]
ORPHAN = "shared/0000000001-" + "a" * 32


def lived(mini: Miniature) -> Miniature:
    """A job with two checkpoints, and a third batch that is not committed."""
    mini.start(2)
    for batch in range(2):
        mini.begin(batch)
        mini.run(batch, CHANGES[batch * 4 :])
        mini.checkpoint(batch)
    mini.begin(2)
    mini.run(2, CHANGES)
    return mini


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
def mini(bucket: Bucket, tmp_path: Path) -> Miniature:
    """A job in a checkpoint directory, with an orphan, a week after it stopped."""
    job = lived(Miniature(bucket.open(URL), tmp_path, DictStore, open_store=bucket.open))
    job.savepoint(job.job, "savepoint-flights-000000000001", 1)
    job.job.put(ORPHAN, b"left")
    bucket.clock_s += 7 * DAY_S
    return job


def collect(bucket: Bucket, url: str = URL, *, dry_run: bool = False, older_than_s: float = DAY_S) -> GcResult:
    return collect_garbage(url, open_store=bucket.open, now_s=bucket.clock_s, older_than_s=older_than_s, dry_run=dry_run)


def refused(bucket: Bucket, error: type[Exception], text: str, url: str = URL) -> None:
    """A dry run and a real one are refused, and nothing is touched."""
    before = dict(bucket.objects)
    for dry_run in (True, False):
        with pytest.raises(error, match=text):
            collect(bucket, url, dry_run=dry_run)
    assert bucket.objects == before


def garbage(result: GcResult) -> list[str]:
    return [each.key for each in result.plan.garbage]


def test_a_dry_run_deletes_nothing(bucket: Bucket, mini: Miniature) -> None:
    """It reports what the real run then deletes, and nothing else."""
    before = dict(bucket.objects)
    assert garbage(collect(bucket, dry_run=True)) == [ORPHAN]
    assert bucket.objects == before
    assert garbage(collect(bucket)) == [ORPHAN]
    assert before.keys() - bucket.objects.keys() == {f"checkpoints/flights/{ORPHAN}"}
    assert garbage(collect(bucket)) == []


@pytest.mark.parametrize(
    "folder", ["", "checkpoints", "checkpoints/flights/chk-1", "checkpoints/flights/savepoint-flights-000000000001", "nothing"]
)
def test_a_folder_that_is_no_jobs_is_refused(bucket: Bucket, mini: Miniature, folder: str) -> None:
    """A bucket, the directory of several jobs, one checkpoint, one savepoint."""
    refused(bucket, InvalidInputError, "is not a job's directory", f"mem://bucket/{folder}")


DOCUMENTS = (
    "_job",
    "attempts/00000001",
    "attempts/00000001-start",
    "batches/00000001/000000000000",
    "batches/00000001/000000000002",
    "chk-1/_metadata",
    "chk-2/_metadata",
    "savepoint-flights-000000000001/_metadata",
)


@pytest.mark.parametrize("key", DOCUMENTS)
def test_a_later_format_is_refused_as_unknown(bucket: Bucket, mini: Miniature, key: str) -> None:
    """A later release may reference objects in a way that this one cannot see, so nothing counts as garbage."""
    data = json.loads(mini.job.get(key)) | {"format_version": 99}
    mini.job.put(key, json.dumps(data).encode())
    refused(bucket, IncompatibleFormatError, rf"{key}.*format_version 99")


@pytest.mark.parametrize("key", DOCUMENTS)
def test_a_damaged_document_is_refused(bucket: Bucket, mini: Miniature, key: str) -> None:
    """Nobody knows what it names."""
    data = bytearray(mini.job.get(key))
    data[-10] ^= 1
    mini.job.put(key, bytes(data))
    refused(bucket, CorruptDataError, key)


def test_a_record_of_an_abandoned_branch_in_a_later_format_is_refused(bucket: Bucket, mini: Miniature) -> None:
    """It is not in the lineage, but it is not garbage for a release that cannot read it."""
    record = mini.job.get("batches/00000001/000000000002")
    mini.start(1, origin=f"{URL}/chk-1")
    bucket.clock_s += 7 * DAY_S
    assert "batches/00000001/000000000002" in garbage(collect(bucket, dry_run=True))
    mini.job.put("batches/00000001/000000000002", json.dumps(json.loads(record) | {"format_version": 99}).encode())
    bucket.clock_s += 7 * DAY_S
    refused(bucket, IncompatibleFormatError, "format_version 99")


@pytest.mark.parametrize("kind", ["file", "changelog"])
def test_a_missing_object_that_a_restore_needs(bucket: Bucket, mini: Miniature, kind: str) -> None:
    """A dry run names it. A real run deletes nothing."""
    mini.job.delete(["chk-2/_metadata"])  # so that the changelogs of batch 1 count
    contents = read_folder(mini.job, open_store=bucket.open).contents
    referrer = "chk-1/_metadata" if kind == "file" else "batches/00000001/000000000002"
    if kind == "file":
        key = paths.resolve_reference(referrer, next(iter(contents.snapshots[referrer].files())).path)
    else:
        key = contents.records[referrer].acks[0].key
    mini.job.delete([key])
    assert dict(collect(bucket, dry_run=True).missing) == {key: referrer}
    before = dict(bucket.objects)
    with pytest.raises(CorruptDataError, match=f"{key}.*{referrer} references it. Nothing was deleted"):
        collect(bucket)
    assert bucket.objects == before


def test_a_start_that_is_missing(bucket: Bucket, mini: Miniature) -> None:
    """Without it the lineage is unknown."""
    mini.job.delete(["attempts/00000001-start"])
    refused(bucket, CorruptDataError, "attempts/00000001-start")


def test_changelogs_of_the_last_batch_stay_while_the_source_is_idle(bucket: Bucket, mini: Miniature) -> None:
    """No record names them until the next batch begins, however long that takes."""
    newest = [info.key for info in mini.job.list("changelog/00000001/000000000002/")]
    assert len(newest) == 2
    collect(bucket)
    assert [info.key for info in mini.job.list("changelog/00000001/000000000002/")] == newest
    mini.begin(3)
    assert mini.start(1) == 2
    assert mini.contents() == dict(CHANGES)


def test_a_driver_that_copies_what_it_starts_from_is_left_alone(bucket: Bucket, mini: Miniature) -> None:
    """Even if the copy takes days: nothing that was written after its claim is deleted until it has started."""
    claim_attempt(mini.job, now_ms=0)
    copy = "shared/0000000009-" + "b" * 32
    mini.job.put(copy, b"copied")
    bucket.clock_s += 7 * DAY_S
    assert garbage(collect(bucket)) == [ORPHAN]
    mini.start(1)  # the driver had died
    assert garbage(collect(bucket)) == [copy]


def test_younger_objects_stay(bucket: Bucket, mini: Miniature) -> None:
    """The uploads of a checkpoint in progress, and of one that was given up an hour ago."""
    mini.checkpoint(2, publish_it=False)
    bucket.clock_s += 2 * HOUR_S
    assert garbage(collect(bucket, dry_run=True)) == [ORPHAN]
    assert len(garbage(collect(bucket, dry_run=True, older_than_s=HOUR_S))) > 3
    with pytest.raises(InvalidInputError, match="--older-than: is too short"):
        collect(bucket, older_than_s=HOUR_S - 1)


def test_objects_with_other_names_stay(bucket: Bucket, mini: Miniature) -> None:
    """Those of users, of another job below this one, and unfinished checkpoints of a release that puts more into them."""
    foreign = ["notes.txt", "shared/readme", "chk-7/_index", "chk-7/slot-0-aaaaaaaa/MANIFEST", "other/_job", "other/chk-1/x", "chk-1/notes"]
    for key in foreign:
        mini.job.put(key, b"{}")
    bucket.clock_s += 7 * DAY_S
    result = collect(bucket)
    assert garbage(result) == [ORPHAN]
    assert result.plan.totals["unknown"].objects == len(foreign)


def test_a_copy_of_a_checkpoint_under_another_name_counts(bucket: Bucket, mini: Miniature) -> None:
    """A user may copy the folder of a checkpoint, whose ``_metadata`` references shared files."""
    for info in mini.job.list("chk-1/"):
        mini.job.copy(info.key, info.key.replace("chk-1/", "friday/"))
    mini.job.delete([info.key for info in mini.job.list("chk-1/")])
    mini.start(1, origin=f"{URL}/chk-2")
    bucket.clock_s += 7 * DAY_S
    collect(bucket)
    mini.start(1, origin=f"{URL}/friday")


def test_a_checkpoint_that_took_longer_than_garbage_is_old(bucket: Bucket, mini: Miniature) -> None:
    """It is published between the plan and the deletion: the command stops before it deletes what the checkpoint references."""
    metadata = mini.checkpoint(2, publish_it=False)
    bucket.clock_s += 7 * DAY_S
    calls = bucket.calls
    collect(bucket, dry_run=True)
    bucket.interrupt(bucket.calls - calls, before=lambda: publish(mini.job, metadata))
    with pytest.raises(ConflictError, match="chk-3/_metadata references"):
        collect(bucket)
    assert mini.start(1) == 2
    assert mini.contents() == dict(CHANGES)


def test_a_checkpoint_that_replaces_another_one_while_checkpoints_are_listed(bucket: Bucket, mini: Miniature) -> None:
    """Between any two calls, a checkpoint is published that references a shared file, and those that did so before are deleted."""
    mini.start(1)
    metadata = mini.checkpoint(1, publish_it=False)
    referenced = {paths.resolve_reference("chk-3/_metadata", file.path) for file in metadata.files()}
    shared = referenced.intersection(info.key for info in mini.job.list("shared/0000000001-"))
    assert shared
    before, clock_s, calls = dict(bucket.objects), bucket.clock_s + 7 * DAY_S, bucket.calls
    collect(bucket, dry_run=True)
    for call in range(bucket.calls - calls):
        bucket.objects, bucket.clock_s = dict(before), clock_s

        def replaced() -> None:
            publish(mini.job, metadata)
            mini.job.delete([info.key for number in (1, 2) for info in mini.job.list(f"chk-{number}/")])

        bucket.interrupt(call, before=replaced)
        assert not shared.intersection(garbage(collect(bucket, dry_run=True))), call
        assert mini.job.head("chk-3/_metadata") is not None


def _info(key: str, modified_s: float = 0.0) -> ObjectInfo:
    return ObjectInfo(key, 5, modified_s)


def test_packs(bucket: Bucket, mini: Miniature) -> None:
    """A pack stays if a checkpoint or a record references it, or if the next record may; others go."""
    contents = read_folder(mini.job, open_store=bucket.open).contents
    in_checkpoint, in_record, of_last_batch, dropped, of_old_attempt = (
        paths.spark_state_key(*at) for at in ((1, 0), (1, 1), (1, 2), (1, 1), (0, 9))
    )
    checksum = "sha256:" + "0" * 64
    metadata = contents.snapshots["chk-1/_metadata"].model_copy(
        update={"spark_state": (FileRef(name="x", path=f"../{in_checkpoint}", size_bytes=5, checksum=checksum),)}
    )
    key = "batches/00000001/000000000002"
    record = contents.records[key].model_copy(update={"spark_state": (PackRef(key=in_record, size_bytes=5, checksum=checksum),)})
    folder = replace(
        contents,
        objects=[_info(each) for each in (in_checkpoint, in_record, of_last_batch, dropped, of_old_attempt)],
        snapshots={**contents.snapshots, "chk-1/_metadata": metadata},
        records={**contents.records, key: record},
    )
    plan = plan_gc(folder, now_s=2 * DAY_S, older_than_s=DAY_S)
    assert [each.key for each in plan.garbage] == [dropped, of_old_attempt]


def test_a_job_that_never_started_a_batch(bucket: Bucket, tmp_path: Path) -> None:
    """Its claim and start stay."""
    job = Miniature(bucket.open(URL), tmp_path, DictStore, open_store=bucket.open)
    job.start(1)
    bucket.clock_s += 7 * DAY_S
    before = dict(bucket.objects)
    assert garbage(collect(bucket)) == []
    assert bucket.objects == before


# -- the command ---------------------------------------------------------------------------------------------------------


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(main.app, ["gc", *arguments])
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A job's folder on a local disk, all of it two days old."""
    (tmp_path / "local").mkdir()
    root = tmp_path / "checkpoints" / "flights"
    job = lived(Miniature(open_store(root.as_uri()), tmp_path / "local", DictStore))
    job.job.put(ORPHAN, b"left")
    for path in root.rglob("*"):
        os.utime(path, (path.stat().st_mtime - 2 * DAY_S,) * 2)
    return root


def test_the_command_lists_then_deletes(folder: Path) -> None:
    """The document names every object, the tables fit people, and a run leaves a folder of which the job resumes."""
    code, out, _ = run(str(folder), "--dry-run", "-o", "json")
    document = json.loads(out)
    assert (code, document["dry_run"], document["missing"]) == (0, True, [])
    (found,) = document["unreferenced"]
    assert (found["key"], found["kind"], found["size_bytes"]) == (ORPHAN, "shared file", 4)
    assert 2 * DAY_S <= found["age_s"] < 3 * DAY_S
    assert document["totals"]["unreferenced"] == {"objects": 1, "size_bytes": 4}
    assert document["totals"]["in_use"]["objects"] == 2
    code, out, _ = run(folder.as_uri(), "--dry-run")
    assert code == 0
    assert "1 objects, 4 B to delete" in out
    assert (folder / ORPHAN).exists()
    code, out, err = run(folder.as_uri())
    assert (code, err) == (0, "deleted 1 objects\n")
    assert "1 objects, 4 B deleted" in out
    assert not (folder / ORPHAN).exists()


def test_the_commands_age(folder: Path) -> None:
    """Nothing is older than three days; a bad or short duration is refused."""
    code, out, _ = run(str(folder), "--older-than", "3d", "-o", "json")
    assert (code, json.loads(out)["unreferenced"]) == (0, [])
    for text, message in (("soon", "not a duration"), ("5min", "too short")):
        code, out, err = run(str(folder), "--older-than", text)
        assert (code, out) == (2, "")
        assert err.startswith("error: --older-than: ")
        assert message in err
    assert (folder / ORPHAN).exists()


def test_the_command_exits_with_1_if_something_is_missing(folder: Path) -> None:
    """The dry run lists it; the real run deletes nothing."""
    (missing,) = list((folder / "chk-1").glob("slot-0-*/MANIFEST"))
    missing.unlink()
    code, out, err = run(str(folder), "--dry-run", "-o", "json")
    key = str(missing.relative_to(folder))
    assert (code, json.loads(out)["missing"]) == (1, [{"key": key, "referenced_by": "chk-1/_metadata"}])
    assert "missing" in err
    code, out, err = run(str(folder))
    assert (code, out) == (1, "")
    assert key in err
    assert (folder / ORPHAN).exists()


def test_the_command_on_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects there cannot be made old, so the clocks of the command and of storage run ahead. The command alone deletes nothing early."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", ACCESS_KEY)
    with s3_server() as server:

        def opened(url: str) -> ObjectStore:
            return open_store(url, StorageSettings(endpoint=server.endpoint, region="us-east-1"))

        job = lived(Miniature(opened("s3://bucket/checkpoints/flights"), tmp_path, DictStore, open_store=opened))
        job.job.put(ORPHAN, b"left")
        options = ["--endpoint", server.endpoint, "--region", "us-east-1", "-o", "json"]
        assert run("s3://bucket/checkpoints", *options)[0] == 2
        code, out, _ = run("s3://bucket/checkpoints/flights", *options)
        assert (code, json.loads(out)["unreferenced"]) == (0, [])
        now_s = time.time() + 7 * DAY_S
        monkeypatch.setattr("statefulspark.checkpoint.gc.collecting.time", SimpleNamespace(time=lambda: now_s))
        code, out, _ = run("s3://bucket/checkpoints/flights", *options)
        assert (code, json.loads(out)["unreferenced"]) == (0, [])
        assert [info.key for info in job.job.list("_probe")] == []
        monkeypatch.setattr("statefulspark.checkpoint.gc.collecting._storage_time_s", lambda _: now_s)
        code, out, _ = run("s3://bucket/checkpoints/flights", *options)
        assert (code, [each["key"] for each in json.loads(out)["unreferenced"]]) == (0, [ORPHAN])
        assert job.job.head(ORPHAN) is None
        job.begin(3)
        assert job.start(3) == 2
        assert job.contents() == dict(CHANGES)
