"""When a batch gets a dry run for Spark's own state, and what waits for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from statefulspark.checkpoint.spark.location import LocationFiles
from statefulspark.checkpoint.spark.state_uploader import SparkStateUploader
from statefulspark.coordinator.core import actions as do
from statefulspark.coordinator.core import events
from statefulspark.coordinator.core.decide import decide
from statefulspark.coordinator.core.life import BatchParameters, DryRun, Life
from statefulspark.coordinator.durable.spark_location import SparkLocation
from statefulspark.errors import InvalidInputError


class Location:
    """Spark's checkpoint location after a new driver was started with batch 4 as the one that runs again."""

    def __init__(self, root: Path, *, has_state: bool = True) -> None:
        self.root = root
        for batch in range(5):
            self.write(f"offsets/{batch}")
        for batch in range(4):
            self.write(f"commits/{batch}")
        self.write("state/0/0/4.delta")
        files = LocationFiles(root)
        self.files = SparkLocation(files, SparkStateUploader(root), has_state=has_state)
        again = BatchParameters(batch=4, watermarks={}, processing_time_ms=1)
        self.life = Life(uids=frozenset({"u"}), parallelism=1, committed=3, again=again)
        assert files.planned_batch() == 4

    def write(self, path: str) -> None:
        for name in (path, str(Path(path).parent / f".{Path(path).name}.crc")):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text("v1")

    def numbers(self, folder: str) -> list[str]:
        return sorted(path.name for path in (self.root / folder).iterdir())

    def look(self) -> tuple[do.Action, ...]:
        self.life, actions = decide(self.life, events.Looked(self.files.facts(self.life)))
        return actions

    def due(self) -> bool:
        return self.life.dry_run_due(self.files.facts(self.life))

    def next_query(self) -> bool:
        self.life, actions = decide(self.life, events.QueryStarts(self.files.facts(self.life)))
        for action in actions:
            if isinstance(action, do.ForgetCommit):
                self.files.files.forget_commit(action.batch)
        return self.life.dry.running

    def asks(self, batch: int) -> do.Action:
        _, actions = decide(self.life, events.Asked(batch=batch, spark=self.files.facts(self.life)))
        return actions[-1]


def test_a_batch_that_ran_needs_no_dry_run(tmp_path: Path) -> None:
    """Before its commit, and after it with the state that it made."""
    location = Location(tmp_path)
    assert location.look() == ()
    location.write("state/0/0/5.delta")
    location.write("commits/4")
    assert isinstance(location.look()[0], do.Search)
    assert not location.due()
    assert not location.next_query()


def test_without_steps_of_sparks_nothing_is_missing(tmp_path: Path) -> None:
    """A sink may skip what it likes."""
    location = Location(tmp_path, has_state=False)
    location.write("commits/4")
    assert isinstance(location.look()[0], do.Search)


def test_a_batch_that_the_sink_skipped_gets_one_dry_run(tmp_path: Path) -> None:
    """The commit is taken back with the plan of the batch after it, the batch runs without a sink, then the real query goes on."""
    location = Location(tmp_path)
    location.write("commits/4")
    location.write("offsets/5")
    location.look()
    assert location.life.dry.batch == 4
    assert location.due()
    assert location.asks(5) == do.Wait()
    assert isinstance(location.asks(4), do.WriteRecord)
    assert location.next_query()
    assert location.numbers("commits") == [*(f".{n}.crc" for n in range(4)), *map(str, range(4))]
    assert location.numbers("offsets") == [*(f".{n}.crc" for n in range(5)), *map(str, range(5))]
    assert not location.due()
    assert location.next_query(), "a query that failed meanwhile is started again without a sink"
    location.write("state/0/0/5.delta")
    assert not location.due()
    location.write("commits/4")
    assert location.due()
    assert location.look() == ()
    assert not location.life.is_idle, "nothing may rely on the batch before the real query is on its way"
    assert not location.next_query()
    assert isinstance(location.look()[0], do.Search)


def test_a_batch_that_is_not_complete_after_its_dry_run_ends_the_job_once(tmp_path: Path) -> None:
    """Nobody looks for another attempt again and again, and no batch begins."""
    location = Location(tmp_path, has_state=False)
    location.write("commits/4")
    location.life = replace(location.life, dry=DryRun(last=4))
    (search,) = location.look()
    assert isinstance(search, do.Search)
    location.life, actions = decide(location.life, events.Searched(search.number, None))
    assert actions == (do.Fail(4, ("u",)),)
    assert location.look() == ()
    assert not location.life.is_idle
    assert location.asks(5) == do.Wait()


@pytest.mark.parametrize(("after", "left"), [(3, 3), (4, 4), (9, 4), (-1, 3)])
def test_plans_of_batches_that_never_began_are_forgotten(tmp_path: Path, after: int, left: int) -> None:
    """Never those of committed batches."""
    Location(tmp_path)
    LocationFiles(tmp_path).forget_planned(after=after)
    assert LocationFiles(tmp_path).planned_batch() == left


def test_state_that_the_driver_does_not_see_ends_the_job(tmp_path: Path) -> None:
    """Executors that write to another disk are found out at the second batch; the text names the field."""
    location = Location(tmp_path)
    location.files.check(4)
    location.files.next_query()
    location.write("commits/4")
    location.files.check(6)
    with pytest.raises(InvalidInputError, match=r"after batch 4 is not .*mount spec\.checkpointing\.sparkLocation"):
        location.files.check(5)
    Location(tmp_path, has_state=False).files.check(5)
