"""Jobs from Kafka to Kafka on real Spark and a real broker: nothing lost, nothing twice, order per key kept."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from .broker import Broker
from .job_runs import PaymentsJob

pytestmark = [pytest.mark.slow, pytest.mark.kill, pytest.mark.timeout(1500)]


def test_a_driver_that_is_killed(broker: Broker, tmp_path: Path) -> None:
    """After it has written some batches, at any point of the next one; a task dies too, when its rows are committed and Spark does not know."""
    job = PaymentsJob(broker, tmp_path)
    job.send(1, 3000)
    done = tmp_path / "done"
    done.mkdir()
    points = {
        "STATEFULSPARK_FAILPOINTS": "executor.kafka.committed:2,executor.kafka.produced:3",
        "STATEFULSPARK_FAILPOINTS_DONE": str(done),
    }
    with job.driver(**points) as process:
        job.wait_for_rows(1200, process)
        process.kill()
        process.wait()
    job.send(2, 500)
    job.finish(**points)
    job.check()


# integration/test_snapshots.py has the same rule with a sink of files, and test_transactions.py reads what numbers Kafka has.
@pytest.mark.exhaustive
def test_a_job_without_state_does_not_take_the_sink_of_another_for_its_own(broker: Broker, tmp_path: Path) -> None:
    """Its first batches would have numbers that Kafka has, and be dropped."""
    job = PaymentsJob(broker, tmp_path)
    job.send(1, 200)
    job.finish()
    (tmp_path / "storage").rename(tmp_path / "old")
    with job.driver("--until-idle") as process:
        assert process.wait(480) == 2
    assert "begins with batch 0, but its sink has batches up to" in job.log.read_text()
    job.check()


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(4))
def test_drivers_and_tasks_killed_at_random(broker: Broker, tmp_path: Path, seed: int) -> None:
    """Drivers at random numbers of rows, tasks at random visits of each point, with another parallelism each time."""
    numbers = random.Random(seed)
    job = PaymentsJob(broker, tmp_path)
    done = tmp_path / "done"
    done.mkdir()
    for life in range(5):
        job.send(100 * seed + life, 2000)
        points = ",".join(f"executor.kafka.{point}:{numbers.randrange(1, 6)}" for point in ("produced", "numbered", "committed"))
        job.spec["parallelism"] = numbers.choice([1, 2, 3])
        for file in done.iterdir():
            file.unlink()
        with job.driver(STATEFULSPARK_FAILPOINTS=points, STATEFULSPARK_FAILPOINTS_DONE=str(done)) as process:
            job.wait_for_rows(2000 * life + numbers.randrange(1, 1900), process)
            process.kill()
    job.finish()
    job.check()
