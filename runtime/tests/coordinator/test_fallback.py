"""A damaged checkpoint that slots find while they restore: the same start goes on from the one before, or says what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from runtime.tests.checkpoint.dict_store import DictStore
from runtime.tests.checkpoint.miniature import UID, Miniature, apply

from statefulspark.checkpoint.formats import changelog
from statefulspark.checkpoint.lineage.lineage import begin_attempt
from statefulspark.checkpoint.restore.slot import restore_slot
from statefulspark.checkpoint.spark.location import LocationFiles
from statefulspark.checkpoint.spark.state_uploader import SparkStateUploader
from statefulspark.coordinator.batches.log import BatchLog
from statefulspark.coordinator.durable.durable_job import DurableJob
from statefulspark.coordinator.durable.recovery import batch_log
from statefulspark.errors import CorruptDataError, IncompatibleFormatError
from statefulspark.job.start.preflight import restorable_state
from statefulspark.rpc.error_codes import error_body, error_of
from statefulspark.state.store.base import Change
from statefulspark.storage.open import open_store

BATCHES: list[list[Change]] = [
    [(bytes([0, key_group, 0, 1]), b"%d" % (number * 10 + key_group)) for key_group in range(8)] for number in range(5)
]


def flip(path: Path) -> None:
    """Change one byte."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    """Cut the end off."""
    path.write_bytes(path.read_bytes()[:-1])


class Story:
    """A job with a checkpoint after batches 0, 1 and 3; batch 4 was begun. Its next driver restores."""

    def __init__(self, folder: Path, *, stopped: bool = False) -> None:
        (folder / "local").mkdir()
        self.folder = folder
        self.job = open_store((folder / "job").as_uri())
        self.mini = Miniature(self.job, folder / "local", DictStore)
        self.mini.start(2)
        self.state: dict[bytes, bytes] = {}
        for number, changes in enumerate(BATCHES[:4]):
            self.mini.begin(number)
            self.mini.run(number, changes)
            self.state = apply(self.state, changes)
            if number in (0, 1, 3):
                self.mini.checkpoint(number)
        if not stopped:
            self.mini.begin(4)
        self.restored = 0

    def files(self, checkpoint_id: int) -> list[Path]:
        """Store files that a checkpoint has uploaded."""
        found = [*(self.folder / "job" / "shared").glob(f"{checkpoint_id:010d}-*")]
        assert found
        return sorted(found)

    def driver(self, *, origin: str | None = None, steps: tuple[str, ...] = (UID,)) -> tuple[DurableJob, BatchLog]:
        """What a new driver of a pipeline with these steps knows."""
        self.mini.started += 1
        lineage = begin_attempt(self.job, now_ms=1, origin=origin, open_store=open_store)
        durable = DurableJob(
            store=self.job,
            open_store=open_store,
            job_id="job",
            name="job",
            max_parallelism=8,
            backend="dict",
            lineage=lineage,
            savepoint_dir=None,
            retained=3,
        )
        return durable, batch_log(lineage, dict.fromkeys(steps, (0,)))

    def restore(self, durable: DurableJob, log: BatchLog) -> dict[bytes, bytes]:
        """What the one slot of the new driver restores."""
        self.restored += 1
        plan = durable.restore_plan(0, 1, log).plan(self.job, open_store)
        restored = restore_slot(plan, self.folder / f"restored-{self.restored}", DictStore)
        assert restored.batch == 3
        found = dict(restored.store.scan(b"", b"\xff" * 8))
        restored.store.close()
        return found


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(tmp_path)


@pytest.mark.parametrize("damage", [flip, truncate, Path.unlink])
@pytest.mark.parametrize("damaged", [[3], [3, 2]])
def test_the_same_start_goes_on_from_the_checkpoint_before(story: Story, damage: Callable[[Path], None], damaged: list[int]) -> None:
    """However the file was damaged, and if two checkpoints are: the state is exact, from the older one and the batches since."""
    durable, log = story.driver()
    assert durable.base_url == durable.restored_from == f"{story.job.url}/chk-3"
    for number in damaged:
        damage(story.files(number)[0])
    for _ in damaged:
        try:
            story.restore(durable, log)
        except CorruptDataError as found:
            durable.fall_back(found, log)
    assert durable.base_url == f"{story.job.url}/chk-{min(damaged) - 1}"
    assert durable.base_url == durable.restored_from
    assert story.restore(durable, log) == story.state
    assert durable.reusable_checkpoint_id is None, "the next checkpoint names no file that may be damaged"
    assert durable.base_checkpoint_id is not None, "retention keeps what slots restore"


@pytest.mark.parametrize("steps", [(UID,), (UID, "added"), ("added",)], ids=["same", "added", "renamed"])
def test_a_job_that_was_stopped_with_the_damaged_checkpoint(tmp_path: Path, steps: tuple[str, ...]) -> None:
    """No record names the changelogs of the last batch: that it was committed is known from the checkpoint alone.

    An upgrade may come with it: that batch needs the changelogs of the steps that the pipeline had then, and of no others.
    """
    story = Story(tmp_path, stopped=True)
    durable, log = story.driver(steps=steps)
    flip(story.files(3)[0])
    with pytest.raises(CorruptDataError) as found:
        story.restore(durable, log)
    durable.fall_back(found.value, log)
    assert durable.base_url == f"{story.job.url}/chk-2"
    assert story.restore(durable, log) == story.state


@pytest.mark.parametrize("steps", [(UID,), (UID, "added"), ("added",)], ids=["same", "added", "renamed"])
def test_a_job_that_went_on_from_the_damaged_checkpoint_alone(tmp_path: Path, steps: tuple[str, ...]) -> None:
    """The first record of the new driver names the changelogs of the batch before, which it did not see: this start needs them, and the next."""
    story = Story(tmp_path, stopped=True)
    durable, log = story.driver(steps=steps)
    location = tmp_path / "location"
    durable.write_record(log.next_parameters(4, 1), LocationFiles(location), SparkStateUploader(location), log)
    flip(story.files(3)[0])
    with pytest.raises(CorruptDataError) as found:
        story.restore(durable, log)
    durable.fall_back(found.value, log)
    assert story.restore(durable, log) == story.state
    (story.folder / "job" / "chk-3" / "_metadata").unlink()
    durable, log = story.driver()
    assert durable.base_url == f"{story.job.url}/chk-2"
    assert story.restore(durable, log) == story.state


def test_the_next_start_passes_over_what_was_found(story: Story) -> None:
    """A checkpoint that could not be restored is marked."""
    durable, log = story.driver()
    flip(story.files(3)[0])
    with pytest.raises(CorruptDataError) as found:
        story.restore(durable, log)
    durable.fall_back(found.value, log)
    assert restorable_state(story.job, None, open_store).url == f"{story.job.url}/chk-2"
    assert [number for number in (1, 2, 3) if story.job.head(f"chk-{number}/_damaged") is not None] == [3]


def test_when_none_is_left_the_damaged_one_is_named(story: Story) -> None:
    """The job ends with what to do; empty state is no way out, because the first batches' records are gone."""
    durable, log = story.driver()
    for number in (3, 2, 1):
        flip(story.files(number)[0])
    story.job.delete([info.key for info in story.job.list("batches/") if info.key.endswith("000")])
    for number in (3, 2):
        with pytest.raises(CorruptDataError) as found:
            story.restore(durable, log)
        durable.fall_back(found.value, log)
        assert durable.base_url == f"{story.job.url}/chk-{number - 1}"
    with pytest.raises(CorruptDataError) as found:
        story.restore(durable, log)
    with pytest.raises(CorruptDataError, match=r"chk-1 cannot be restored.*start from a savepoint"):
        durable.fall_back(found.value, log)


def test_one_that_was_asked_for_is_refused_and_the_one_before_offered(story: Story) -> None:
    """With --from nobody decides for the user: damage in the bytes is found by the slots, a missing file before anything starts."""
    origin = f"{story.job.url}/chk-3"
    flip(story.files(3)[0])
    durable, log = story.driver(origin=origin)
    with pytest.raises(CorruptDataError) as found:
        story.restore(durable, log)
    durable.fall_back(found.value, log)  # the copy may have been damaged after it was made
    assert durable.base_url == durable.restored_from == origin
    with pytest.raises(CorruptDataError) as found:
        story.restore(durable, log)
    with pytest.raises(CorruptDataError, match=r"chk-3 cannot be restored.*--from \S+/chk-2$"):
        durable.fall_back(found.value, log)
    assert durable.base_url == origin
    truncate(story.files(2)[0])
    with pytest.raises(CorruptDataError, match=r"chk-2 cannot be restored.*--from \S+/chk-1$"):
        restorable_state(story.job, f"{story.job.url}/chk-2", open_store)


def test_a_damaged_bundle_of_sparks_location_is_seen_before_anything_starts(story: Story) -> None:
    """The driver needs it before any slot restores; without --from the checkpoint before is taken."""
    (location,) = (story.folder / "job" / "chk-3").glob("spark-location*")
    flip(location)
    assert restorable_state(story.job, None, open_store).batch == 1
    with pytest.raises(CorruptDataError, match=r"spark-location.*chk-2"):
        restorable_state(story.job, f"{story.job.url}/chk-3", open_store)


def test_a_damaged_changelog_is_not_the_checkpoints_fault(story: Story) -> None:
    """Older checkpoints need it too: the way out is to go back to before that batch."""
    flip(next((story.folder / "job" / "chk-3").glob("_metadata")))
    durable, log = story.driver()
    assert durable.base_url == f"{story.job.url}/chk-2"
    flip(next((story.folder / "job" / "changelog").glob("*/000000000002/*")))
    with pytest.raises(CorruptDataError, match="changelog") as found:
        story.restore(durable, log)
    with pytest.raises(CorruptDataError, match=r"--from \S+/chk-2; the rows after it"):
        durable.fall_back(found.value, log)
    assert story.job.head("chk-2/_damaged") is None


def test_a_newer_format_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older release that meets a changelog of a newer one stops with the reason; sound checkpoints stay unmarked for the newer one."""
    monkeypatch.setattr(changelog.ChangelogHeader, "version", changelog.VERSION + 1)
    story = Story(tmp_path)
    monkeypatch.undo()
    story.job.delete(["chk-3/_metadata"])
    durable, log = story.driver()
    with pytest.raises(IncompatibleFormatError, match=rf"changelog/.*found version {changelog.VERSION + 1}") as found:
        story.restore(durable, log)
    told = error_of(error_body(found.value))  # as the slot reports it to the driver
    assert isinstance(told, IncompatibleFormatError)
    with pytest.raises(IncompatibleFormatError, match="the release that wrote it"):
        durable.fall_back(told, log)
    assert durable.mark_damaged(told) is told
    assert durable.base_url == f"{story.job.url}/chk-2"
    assert [info.key for info in story.job.list("") if info.key.endswith("_damaged")] == []
