"""SparkStateUploader: whatever happens, what is stored rebuilds the state that Spark had, and nothing is left over."""

from __future__ import annotations

import json
import random
import shutil
import zipfile
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statefulspark.checkpoint.catalog import StoredCheckpoint
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.metadata import CheckpointMetadata, SlotState
from statefulspark.checkpoint.formats.records import BatchRecord, PackRef
from statefulspark.checkpoint.lineage.lineage import Lineage
from statefulspark.checkpoint.spark.state_packs import references_to, store_in_savepoint, stored_packs
from statefulspark.checkpoint.spark.state_uploader import SparkStateUploader
from statefulspark.checkpoint.write.publish import publish
from statefulspark.checkpoint.write.retention import Retention
from statefulspark.errors import CorruptDataError
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.open import open_store

STORES = ("state/0/0", "state/0/1/left")


class Spark:
    """The state folder as Spark treats it: each batch adds a number to each store; old versions are deleted behind its back."""

    def __init__(self, root: Path, salt: random.Random) -> None:
        self.root = root
        self.salt = salt

    def write(self, path: str, content: str) -> None:
        """Like Spark: under a hidden name first, then renamed."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        hidden = target.parent / f".{target.name}.tmp"
        hidden.write_text(content)
        hidden.rename(target)

    def run(self, batch: int) -> None:
        """A batch, also one that runs again: its changes have the same meaning and other bytes."""
        self.write("state/0/_metadata/metadata", "two stores")
        for store in STORES:
            self.write(f"{store}/{batch + 1}.delta", f"{batch + 1}{' ' * self.salt.randrange(40)}")

    def maintain(self, version: int, retained: int) -> None:
        """A snapshot of a version, and older versions go."""
        for store in STORES:
            self.write(f"{store}/{version}.snapshot", str(sum(range(version + 1))))
            for path in (self.root / store).iterdir():
                if int(path.name.partition(".")[0]) < version - retained:
                    oldest = max(
                        (int(other.stem) for other in (self.root / store).glob("*.snapshot") if int(other.stem) <= version - retained),
                        default=0,
                    )
                    if int(path.stem) < oldest:
                        path.unlink()

    def load(self, version: int) -> list[int]:
        """What each store holds in a version."""
        found = []
        for store in STORES:
            folder = self.root / store
            start = max((int(path.stem) for path in folder.glob("*.snapshot") if int(path.stem) <= version), default=0)
            value = int((folder / f"{start}.snapshot").read_text()) if start else 0
            found.append(value + sum(int((folder / f"{at}.delta").read_text()) for at in range(start + 1, version + 1)))
        return found


def _nobody_else() -> None:
    """No other driver is there to fence this one."""


@dataclass
class History:
    """A job that runs, takes checkpoints, cleans up, and loses its driver and disk."""

    folder: Path
    job: ObjectStore
    salt: random.Random
    attempt: int = 0
    batch: int = -1
    taken: int = 0
    records: list[tuple[str, BatchRecord]] = field(default_factory=list)
    checkpoints: list[CheckpointMetadata] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.retention = Retention(self.job, retained=2, orphan_age_s=1000)
        self.start()

    def lineage(self) -> Lineage:
        base = self.checkpoints[-1] if self.checkpoints else None
        after = base.batch if base is not None else -1
        return Lineage(
            attempt=self.attempt,
            base=StoredCheckpoint(self.job, f"chk-{base.checkpoint_id}", base) if base is not None else None,
            records=tuple(record for _, record in self.records if record.batch > after),
            record_keys=tuple(key for key, _ in self.records),
            checkpoints=tuple(f"chk-{each.checkpoint_id}/_metadata" for each in self.checkpoints),
        )

    def start(self) -> None:
        """A new driver with an empty disk; the last batch that has a record runs again."""
        self.attempt += 1
        self.spark = Spark(self.folder / f"disk-{self.attempt}", self.salt)
        self.uploader = SparkStateUploader(self.spark.root)
        lineage = self.lineage()
        again = lineage.uncommitted_batch
        version = again if again is not None else lineage.committed_batch + 1
        self.uploader.restore(stored_packs(lineage, self.job), version)
        assert not version or self.spark.load(version) == [sum(range(version + 1))] * 2
        self.batch = version - 1
        if again is not None:
            self.next_batch(recovered=lineage.records[-1])

    def next_batch(self, recovered: BatchRecord | None = None) -> None:
        """The record of the next batch, and the batch."""
        batch = self.batch + 1
        self.uploader.capture(self.job, self.attempt, batch - 1)
        packs = self.uploader.record()
        record = BatchRecord(attempt=self.attempt, batch=batch, previous=batch - 1, processing_time_ms=0, files=b"")
        if recovered is not None:
            record = recovered.model_copy(update={"attempt": self.attempt})
        record = record.model_copy(update={"spark_state": (*record.spark_state, *packs)})
        self.records = [entry for entry in self.records if entry[1].batch != batch]
        self.records.append((paths.batch_key(self.attempt, batch), record))
        self.uploader.confirm()
        assert self.uploader.record() == (), "each pack is recorded once"
        self.spark.run(batch)
        self.batch = batch

    def checkpoint(self) -> None:
        """A checkpoint of the last batch, taken while the job is idle, and retention after it."""
        if self.batch < 0:
            return
        self.uploader.capture(self.job, self.attempt, self.batch)
        self.taken += 1
        number = self.taken
        metadata = CheckpointMetadata(
            job_id="job",
            job_name="job",
            checkpoint_id=number,
            kind="checkpoint",
            attempt=self.attempt,
            batch=self.batch,
            max_parallelism=1,
            parallelism=1,
            created_ms=0,
            duration_ms=0,
            slots=(SlotState(slot=0, first=0, last=0, backend="memory", operator_batches={"uid": self.batch}),),
            spark_state=references_to(self.uploader.freeze(), f"chk-{number}"),
        )
        publish(self.job, metadata)
        self.checkpoints.append(metadata)
        lineage = replace(self.lineage(), records=())
        gone = self.retention.run(lineage, now_s=0, packs_in_use=self.uploader.in_use, check_fence=_nobody_else).checkpoints
        self.checkpoints = [each for each in self.checkpoints if each.checkpoint_id not in gone]
        oldest = self.checkpoints[0].batch
        self.records = [entry for entry in self.records if entry[1].batch > oldest]

    def maintain(self, back: int) -> None:
        """Spark's own maintenance, at any time."""
        if self.batch + 1 - back > 0:
            self.spark.maintain(self.batch + 1 - back, 1)

    def stored(self) -> dict[str, int]:
        return {info.key: info.size_bytes for info in self.job.list(paths.SPARK_STATE_PREFIX)}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("next_batch"), st.none()),
        st.tuples(st.just("next_batch"), st.none()),
        st.tuples(st.just("checkpoint"), st.none()),
        st.tuples(st.just("maintain"), st.integers(0, 2)),
        st.tuples(st.just("start"), st.none()),
    ),
    max_size=25,
)


@settings(max_examples=30)
@given(steps=STEPS, seed=st.integers(0, 1000))
def test_random_histories(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int | None]], seed: int) -> None:
    """Batches, idle checkpoints with retention, Spark's maintenance and lost disks in any order: every start finds its state."""
    folder = tmp_path_factory.mktemp("history")
    history = History(folder, open_store((folder / "job").as_uri()), random.Random(seed))
    for what, number in steps:
        getattr(history, what)(*([] if number is None else [number]))
    history.start()
    for _ in range(3):
        history.next_batch()
        history.checkpoint()
    # With two checkpoints retained, packs of theirs are left and those of batches since the older one: nothing else.
    named = {f"spark-state/{each.path.removeprefix('../spark-state/')}" for kept in history.checkpoints[-2:] for each in kept.spark_state}
    since = {pack.key for _, record in history.records for pack in record.spark_state}
    assert named <= history.stored().keys() <= named | since | history.uploader.in_use()


def _uploader(tmp_path: Path) -> tuple[Spark, SparkStateUploader, ObjectStore]:
    spark = Spark(tmp_path / "disk", random.Random(1))
    return spark, SparkStateUploader(spark.root), open_store((tmp_path / "storage" / "job").as_uri())


def test_only_what_is_new_is_stored(tmp_path: Path) -> None:
    """A second capture of the same batch stores nothing; a file that came again with other bytes is stored again, and counts."""
    spark, uploader, job = _uploader(tmp_path)
    spark.run(0)
    uploader.capture(job, 1, 0)
    uploader.capture(job, 1, 0)
    assert len(job.list(paths.SPARK_STATE_PREFIX)) == 1
    spark.write("state/0/0/1.delta", "1 again")
    uploader.capture(job, 1, 0)
    assert len(job.list(paths.SPARK_STATE_PREFIX)) == 2
    other = SparkStateUploader(tmp_path / "other")
    lineage = Lineage(attempt=1, base=None, records=_records(uploader.record()), record_keys=(), checkpoints=())
    other.restore(stored_packs(lineage, job), 1)
    assert (tmp_path / "other/state/0/0/1.delta").read_text() == "1 again"


def _records(packs: tuple[PackRef, ...]) -> tuple[BatchRecord, ...]:
    return (BatchRecord(attempt=1, batch=1, previous=0, processing_time_ms=0, files=b"", spark_state=packs),)


def test_a_pack_that_is_little_in_use_is_given_up(tmp_path: Path) -> None:
    """A small file that lives long does not keep a pack of large dead ones: what is stored stays within twice of what is needed."""
    spark, uploader, job = _uploader(tmp_path)
    spark.write("state/0/_metadata/metadata", "m" * 100)
    spark.write("state/0/0/1.delta", "1" * 5000)
    uploader.capture(job, 1, 0)
    (first,) = uploader.freeze()
    spark.write("state/0/0/2.snapshot", "3")
    uploader.capture(job, 1, 1)
    assert first.key in uploader.in_use(), "the checkpoint in progress names it"
    (second,) = uploader.freeze()
    assert second.key != first.key
    assert uploader.in_use() == {second.key}


def test_table_files_go_with_the_zip_that_names_them(tmp_path: Path) -> None:
    """RocksDB's: a half-copied table file is not stored, and a version's own are restored with it; others are dropped."""
    spark, uploader, job = _uploader(tmp_path)
    folder = spark.root / "state/0/0"
    (folder / "SSTs").mkdir(parents=True)
    for name in ("000004-a.sst", "000009-b.sst"):
        (folder / "SSTs" / name).write_text(name * 10)
    listed = {"sstFiles": [{"localFileName": "000004.sst", "dfsSstFileName": "000004-a.sst", "sizeBytes": 120}], "numKeys": 1}
    with zipfile.ZipFile(folder / "1.zip", "w") as archive:
        archive.writestr("metadata", "v1\n" + json.dumps(listed))
    uploader.capture(job, 1, 0)
    other = SparkStateUploader(tmp_path / "other")
    other.restore(stored_packs(Lineage(attempt=1, base=None, records=_records(uploader.record()), record_keys=(), checkpoints=()), job), 1)
    found = sorted(path.relative_to(tmp_path / "other").as_posix() for path in (tmp_path / "other").rglob("*") if path.is_file())
    assert found == ["state/0/0/1.zip", "state/0/0/SSTs/000004-a.sst"]
    (folder / "1.zip").write_bytes(b"no zip")
    with pytest.raises(CorruptDataError, match=r"^state/0/0/1\.zip: "):
        uploader.capture(job, 1, 0)


@pytest.mark.parametrize("place", ["storage/savepoints", "elsewhere"])
def test_a_savepoint_has_copies_of_its_own(tmp_path: Path, place: str) -> None:
    """It needs neither the job's folder nor its own place; another job that starts from it stores everything anew."""
    spark, uploader, job = _uploader(tmp_path)
    spark.run(0)
    uploader.capture(job, 1, 0)
    target = open_store((tmp_path / place).as_uri())
    files = store_in_savepoint(uploader.freeze(), job, target, "savepoint-x", open_store)
    shutil.rmtree(tmp_path / "storage" / "job")
    (tmp_path / place / "savepoint-x").rename(tmp_path / "moved")
    metadata = CheckpointMetadata(
        job_id="job",
        job_name="job",
        checkpoint_id=1,
        kind="savepoint",
        attempt=1,
        batch=0,
        max_parallelism=1,
        parallelism=1,
        created_ms=0,
        duration_ms=0,
        slots=(SlotState(slot=0, first=0, last=0, backend="memory"),),
        spark_state=files,
    )
    base = StoredCheckpoint(open_store(tmp_path.as_uri()), "moved", metadata)
    fork = open_store((tmp_path / "fork").as_uri())
    other = SparkStateUploader(tmp_path / "other")
    other.restore(stored_packs(Lineage(attempt=1, base=base, records=(), record_keys=(), checkpoints=()), fork), 1)
    assert Spark(tmp_path / "other", random.Random(1)).load(1) == [1, 1]
    assert other.in_use() == set()
    other.capture(fork, 1, 0)
    assert len(fork.list(paths.SPARK_STATE_PREFIX)) == 1


def test_retention_keeps_what_only_the_running_attempt_names(tmp_path: Path) -> None:
    """A pack older than every retained checkpoint: in use it stays, afterwards it goes; one of a later batch waits for its record."""
    history = History(tmp_path, open_store((tmp_path / "job").as_uri()), random.Random(1))
    for _ in range(3):
        history.next_batch()
    history.checkpoint()
    history.checkpoint()
    old, late = paths.spark_state_key(1, 0), paths.spark_state_key(1, 3)
    for key in (old, late):
        history.job.put(key, b"")
    history.retention.run(history.lineage(), now_s=0, packs_in_use=lambda: {old, *history.uploader.in_use()}, check_fence=_nobody_else)
    assert {old, late} < history.stored().keys()
    history.retention.run(history.lineage(), now_s=0, packs_in_use=history.uploader.in_use, check_fence=_nobody_else)
    assert late in history.stored()
    assert old not in history.stored()
