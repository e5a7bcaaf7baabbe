"""What the demo says about pauses and promises kept, on a job that is made up: no process is started here."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import pytest

from statefulspark.api_server.models.job import StatusModel
from statefulspark.config.manifest import load_manifest
from statefulspark.coordinator.controls import CheckpointInfo, JobState, JobStatus
from statefulspark.coordinator.slots.status import SlotStatus

from .conftest import EXAMPLES, Load

pytest.importorskip("matplotlib", reason="the demo extra is not installed")


@pytest.fixture(scope="module")
def demo(load: Load) -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES / "01-flights")
        yield load("01-flights/demo.py")


def status(batch: int, rows: int = 0, *, epochs: tuple[int, ...] = (1, 1), slot_state: str = "RUNNING", checkpoint: int = 0) -> StatusModel:
    taken = CheckpointInfo(
        id=checkpoint, path="file:///c", batch=batch, completed_ms=0, duration_ms=1, sync_ms=1, size_bytes=9, uploaded_bytes=3
    )
    slots = tuple(SlotStatus(slot=slot, first=0, last=1, state=slot_state, epoch=epoch, pid=1) for slot, epoch in enumerate(epochs))
    made_up: Any = {"job_id": "flights", "name": "flights", "state": JobState.RUNNING, "since_ms": 0, "max_parallelism": 128, "attempt": 1}
    return StatusModel.of(
        JobStatus(
            **made_up,
            parallelism=len(epochs),
            batch=batch,
            input_rows=rows,
            output_rows=0,
            slots=slots,
            last_checkpoint=taken if checkpoint else None,
        )
    )


class FakeRun:
    """Takes the part of JobRun that steers; ``see`` is what polling does."""

    def __init__(self, demo: ModuleType) -> None:
        self.timeline = demo.JobRun.__init__.__globals__["Timeline"]()
        self.killed = 0
        self.rescaled: list[int] = []

    def see(self, seen: StatusModel) -> StatusModel:
        self.timeline.add(time.monotonic(), seen)
        return seen

    def kill_executor(self, slots: list[Any]) -> tuple[int, list[int]]:
        self.killed += 1
        return 4711, [0]

    def client(self) -> FakeRun:
        return self

    def rescale(self, parallelism: int, *, timeout_s: float) -> None:
        self.rescaled.append(parallelism)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class FakeDisplay:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def event(self, text: str) -> None:
        self.lines.append(text)


def play(demo: ModuleType, run: FakeRun, *seen: StatusModel) -> Any:
    story = demo.Story()
    display = FakeDisplay()
    for each in seen:
        demo.disturb(story, run, display, run.see(each), each.input_rows / 90)
        if story.rescale is not None:
            story.rescale.join(5)
    return story


def test_gaps_are_measured_between_commits_around_an_event(demo: ModuleType) -> None:
    run = FakeRun(demo)
    for at_s, batch in ((1.0, 0), (2.0, 1), (2.5, 1), (6.0, 2), (7.0, 3)):
        run.timeline.add(at_s, status(batch))
    assert run.timeline.longest_gap_s(2.2, 2.3) == 4.0
    assert run.timeline.longest_gap_s(6.5, 6.6) == 1.0
    assert run.timeline.usual_gap_s() == 1.0


def test_every_checkpoint_is_counted_once(demo: ModuleType) -> None:
    run = FakeRun(demo)
    for batch, checkpoint in ((1, 0), (2, 1), (3, 1), (4, 2)):
        run.see(status(batch, checkpoint=checkpoint))
    assert sorted(run.timeline.checkpoints) == [1, 2]


def test_kill_recovery_and_rescale_in_that_order(demo: ModuleType) -> None:
    run = FakeRun(demo)
    story = play(
        demo,
        run,
        status(1, 10),
        status(2, 31),
        status(2, 31, slot_state="LOST"),
        status(3, 35, epochs=(2, 1)),
        status(4, 61),
        status(5, 70, epochs=(3, 3, 3)),
        status(6, 75, epochs=(3, 3, 3)),
    )
    assert run.killed == 1
    assert run.rescaled == [3]
    assert demo.unfinished(story) == []


def test_no_recovery_is_claimed_while_a_slot_is_lost_or_no_batch_was_committed(demo: ModuleType) -> None:
    run = FakeRun(demo)
    story = play(demo, run, status(2, 31), status(3, 61, epochs=(2, 1), slot_state="LOST"), status(3, 61, epochs=(2, 1), slot_state="LOST"))
    assert story.recovered_s is None
    assert demo.unfinished(story) == ["the job did not recover from the kill", "no rescale"]
    assert run.rescaled == []


def test_a_job_that_ends_before_anything_happened_fails_the_demo(demo: ModuleType) -> None:
    assert len(demo.unfinished(play(demo, FakeRun(demo), status(1, 10)))) == 3


def test_a_job_that_is_refused_fails_the_demo_with_the_end_of_its_log(demo: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("kind: StatefulSparkJob")

    def follow(run: Any) -> None:
        while not run.ended():
            assert run.look() is None
            time.sleep(0.05)

    with demo.JobRun(tmp_path / "job.yaml", "flights", tmp_path) as run, pytest.raises(demo.RunFailedError, match="apiVersion"):
        follow(run)


def test_the_demo_has_its_own_copy_of_the_manifest(demo: ModuleType, tmp_path: Path) -> None:
    """Checkpoints go below the demo's folder, wherever the repository is; everything else is as in the example."""
    copy = load_manifest(demo.write_manifest(tmp_path))
    original = load_manifest(EXAMPLES / "01-flights" / "job.yaml")
    assert copy.spec.checkpointing.dir == f"file://{tmp_path}/checkpoints"
    assert copy.spec.job == original.spec.job
    assert (copy.metadata.name, copy.spec.parallelism) == (demo.NAME, 2)
