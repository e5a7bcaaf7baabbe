"""Checkpoints, savepoints, rescaling, restoring and forking, on both kinds of storage: output and state of an uninterrupted run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import boto3
import pytest
from runtime.tests.iam import UNCHECKED, User, documented_statements, enforced, unenforced
from runtime.tests.s3_server import BUCKET, s3_server
from runtime.tests.versity import SECRET, USER, versity_server

from statefulspark.checkpoint.catalog import list_checkpoints
from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.coordinator.controls import Cancellation, JobState
from statefulspark.errors import InvalidInputError
from statefulspark.job.run.running import RunningJob
from statefulspark.job.start.manifest_settings import storage_settings
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.open import open_store

from .oracles import by, counted, files, finals
from .work import Work, local_path, wait_until

S3 = {
    "encryption": {"type": "SSE-KMS", "kmsKeyId": "alias/shop", "bucketKey": True},
    "checksum": "SHA256",
    "savepointStorageClass": "STANDARD_IA",
    "tags": {"team": "shop"},
    "kindTag": "kind",
}


@dataclass(kw_only=True)
class Place:
    """Where checkpoints and savepoints go."""

    url: str
    storage: dict[str, Any] = field(default_factory=dict)
    move: Callable[[str, str], None]
    """Moves all below one URL to another one."""

    def checkpointing(self, **more: Any) -> dict[str, Any]:
        """The manifest's fields."""
        return {"dir": f"{self.url}/jobs", "savepointDir": f"{self.url}/savepoints", "storage": self.storage} | more


@pytest.fixture(params=[pytest.param("file", marks=pytest.mark.exhaustive), "s3", pytest.param("versity", marks=pytest.mark.versity)])
def place(request: pytest.FixtureRequest, work: Work) -> Iterator[Place]:
    """Local disk, S3 as moto serves it with the rights of docs/how-to/s3.md and no others, or S3 as Versity Gateway serves it."""
    if request.param == "file":

        def rename(source: str, target: str) -> None:
            local_path(target).parent.mkdir(parents=True)
            shutil.move(local_path(source), local_path(target))

        yield Place(url=f"file://{work.folder}", move=rename)
    elif request.param == "s3":
        with s3_server() as server:
            user = User(server)
            user.allow([each for each in documented_statements(BUCKET, "team") if each["Sid"] not in UNCHECKED])
            with enforced():
                yield _bucket(server.endpoint, (user.key, user.secret), S3, unenforced()(partial(_move, server.client)))
                work.close()
    else:
        with versity_server(work.folder / "versity") as second:
            s3 = {name: value for name, value in S3.items() if name not in {"encryption", "savepointStorageClass"}}
            keys: Any = {"aws_access_key_id": USER, "aws_secret_access_key": SECRET}
            client = boto3.client("s3", endpoint_url=second.endpoint, region_name="us-east-1", **keys)
            yield _bucket(second.endpoint, (USER, SECRET), s3, partial(_move, client))
            work.close()


def _bucket(endpoint: str, keys: tuple[str, str], s3: dict[str, Any], move: Callable[[str, str], None]) -> Place:
    storage = {"endpoint": endpoint, "region": "us-east-1", "accessKeyId": keys[0], "secretAccessKey": keys[1], "s3": s3}
    return Place(url=f"s3://{BUCKET}/team", storage=storage, move=move)


def _move(client: Any, source: str, target: str) -> None:
    old, new = (url.removeprefix(f"s3://{BUCKET}/") + "/" for url in (source, target))
    for found in client.list_objects_v2(Bucket=BUCKET, Prefix=old)["Contents"]:
        source_of_copy = f"{BUCKET}/{found['Key']}"
        client.copy_object(Bucket=BUCKET, Key=new + found["Key"].removeprefix(old), CopySource=source_of_copy)
        client.delete_object(Bucket=BUCKET, Key=found["Key"])


def checkpoints_of(work: Work) -> list[int]:
    """Numbers of the checkpoints in storage."""
    return sorted({int(info.key.split("/")[0].removeprefix("chk-")) for info in work.store().list("") if info.key.startswith("chk-")})


def test_snapshots_rescaling_restart_and_fork_give_what_an_uninterrupted_run_gives(work: Work, place: Place) -> None:
    """One life of a job: savepoint, 2 -> 3 -> 1 slots in place, stop, restart with 2, cancel; and a fork from the savepoint, moved."""
    inputs = files(seed=8, number=5)
    work.checkpointing = place.checkpointing(retention={"count": 2, "onCancellation": "DELETE"})
    expected = [counted(by("account", inputs[: number + 1])) for number in range(5)]
    work.write(inputs[0])
    job = work.start()
    work.wait_rows(40)
    savepoint = job.trigger_savepoint(None, 60)
    assert work.state("count", "total", savepoint.path) == finals(expected[0], 2)

    work.write(inputs[1])
    work.wait_rows(80)
    assert job.rescale(3, 60).parallelism == 3
    work.write(inputs[2])
    work.wait_rows(120)
    first = job.trigger_checkpoint(60)
    assert (first.kind, first.batch) == ("checkpoint", job.status().batch)
    assert [(slot.first, slot.last) for slot in job.rescale(1, 60).slots] == [(0, 127)]
    work.write(inputs[3])
    work.wait_rows(160)
    last = job.stop(savepoint=False, target=None, drain=False, timeout_s=60)
    assert job.status().state is JobState.SUSPENDED
    assert last is not None
    assert work.rows() == sorted(expected[3])
    assert work.state("count", "total", last.path) == finals(expected[3], 2)
    assert len(checkpoints_of(work)) == 2
    assert max(checkpoints_of(work)) == last.id

    work.write(inputs[4])
    job = work.start(parallelism=2)
    work.wait_rows(200)
    assert job.trigger_checkpoint(60).batch == 4
    assert work.rows() == sorted(expected[4])
    assert work.state("count", "number") == finals(expected[4], 1)
    assert len(checkpoints_of(work)) == 2
    _has_a_past(job, last.path)
    deleted_while: list[JobState] = []
    delete = job._canceled._delete

    def watched() -> None:
        deleted_while.append(job.wait(0))
        delete()

    job._canceled._delete = watched
    job.cancel()
    assert deleted_while == [JobState.RUNNING], "the process ends as soon as the job has ended"
    assert job.status().state is JobState.CANCELED
    assert job.status().canceled == Cancellation(deleted=True)
    assert work.state("count", "total", savepoint.path) == finals(expected[0], 2), "savepoints stay"
    _begins_anew(work)

    moved = f"{place.url}/elsewhere/before-the-change"
    place.move(savepoint.path, moved)
    _is_whole(work, moved)
    _fork(work, place, moved, expected)


def _has_a_past(job: RunningJob, restored_from: str) -> None:
    """The second driver shows what the first one recorded; that its object goes with the state is seen when nothing is left."""
    assert job.status().restored_from == restored_from
    wait_until(lambda: [event.kind for event in job.history().events].count("driver") == 2, 30, "the history of the first driver is read")
    past = job.history()
    assert sum(sample.rows_in for sample in past.samples) >= 160
    assert {snapshot.kind for snapshot in past.snapshots if snapshot.error is None} == {"checkpoint", "savepoint"}
    messages = [event.message for event in past.events]
    assert "the job has ended: SUSPENDED" in messages
    assert any(message.startswith("rescaled from ") for message in messages)


def _opened(work: Work) -> Callable[[str], ObjectStore]:
    settings = storage_settings(work.manifest())
    return lambda url: open_store(url, settings)


def _is_whole(work: Work, savepoint: str) -> None:
    """All of a savepoint's files are in its folder, and each is what was written."""
    assert verify(savepoint, open_store=_opened(work)).sound
    (summary,) = list_checkpoints(savepoint, _opened(work))
    assert (summary.kind, summary.status) == ("savepoint", "complete")


def _begins_anew(work: Work) -> None:
    """Nothing of its state is left. It would begin with batch 0, which the sink has, so it is refused."""
    assert [info.key for info in work.store().list("")] == ["_job", "attempts/00000003", "attempts/00000003-start"]
    with pytest.raises(InvalidInputError, match="the job has no state and begins with batch 0, but its sink has batches up to 4 "):
        work.start()


def _fork(work: Work, place: Place, savepoint: str, expected: list[Any]) -> None:
    """Another job with state, source position and key groups of the savepoint; it writes to a folder of its own."""
    fork = Work(folder=work.folder, name="fork", out="fork", checkpointing=place.checkpointing())
    status = fork.run(restore_from=savepoint, parallelism=3)
    assert status.restored_from == savepoint
    assert fork.rows() == sorted(expected[4][40:])
    assert fork.state("count", "total") == finals(expected[4], 2)
    assert verify(savepoint, open_store=_opened(work)).sound


def test_cancel_keeps_checkpoints_unless_told_otherwise_and_a_periodic_one_is_taken_while_the_job_is_idle(work: Work) -> None:
    """RETAIN is the default; the job goes on from there."""
    inputs = files(seed=9, number=2)
    work.checkpointing = {"interval": "200ms"}
    work.write(inputs[0])
    job = work.start()
    work.wait_checkpoint(batch=0)
    job.cancel()
    assert job.status().canceled == Cancellation(deleted=False)
    assert checkpoints_of(work) == [1]
    work.write(inputs[1])
    work.run()
    expected = counted(by("account", inputs))
    assert work.rows() == sorted(expected)
    assert work.state("count", "total") == finals(expected, 2)


@pytest.mark.exhaustive
def test_a_damaged_checkpoint_is_passed_over_by_the_start_that_finds_it(work: Work) -> None:
    """One byte of one file of RocksDB: slots go back to the checkpoint before and the batches since, and nothing is lost or doubled."""
    inputs = files(seed=10, number=3)
    work.spec = {"stateBackend": {"type": "rocksdb"}}
    work.checkpointing = {"retention": {"count": 2}}
    work.write(inputs[0])
    job = work.start()
    work.wait_rows(40, 200)
    first = job.trigger_checkpoint(60)
    work.write(inputs[1])
    work.wait_rows(80, 200)
    last = job.stop(savepoint=False, target=None, drain=False, timeout_s=60)
    assert last is not None
    (damaged, *_) = (work.folder / "storage" / "job" / "shared").glob(f"{last.id:010d}-*")
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    work.write(inputs[2])
    job = work.start(until_idle=True)
    job.wait(200)
    status = job.status()
    assert status.state is JobState.FINISHED, status.error
    assert status.restored_from == first.path
    expected = counted(by("account", inputs))
    assert work.rows() == sorted(expected)
    assert work.state("count", "total") == finals(expected, 2)
    assert verify(f"{work.storage}/job").sound, "the checkpoint taken since names no damaged file"
