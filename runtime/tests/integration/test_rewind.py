"""`--from` an older checkpoint, and forks, with Spark's own file sink, which skips what it knows and fails on gaps."""

from __future__ import annotations

from pathlib import Path

import pytest

from statefulspark.errors import NotRestorableError

from .oracles import by, counted, files, finals
from .work import Work, wait_until

COMPACTING = {"sparkConf": {"spark.sql.streaming.fileSink.log.compactInterval": "2"}}
"""The sink sums up its log every other batch, and fails if an entry is missing."""

pytestmark = pytest.mark.timeout(900)


def test_back_to_an_older_checkpoint(work: Work) -> None:
    """The sink keeps what it had and gets all rows after the checkpoint anew; the state is that of one run."""
    inputs = files(seed=31, number=4, rows=20)
    expected = [counted(by("account", inputs[: number + 1])) for number in range(4)]
    work.spec, work.checkpointing = COMPACTING, {"retention": {"count": 3}}
    work.write(inputs[0])
    job = work.start()
    work.wait_rows(20, 200)
    old = job.trigger_checkpoint(60)
    work.write(inputs[1])
    work.wait_rows(40, 200)
    job.trigger_checkpoint(60)
    work.write(inputs[2])
    work.wait_rows(60, 200)
    job.cancel()

    work.write(inputs[3])
    job = work.start(restore_from=old.path)
    rows = work.wait_rows(120, 200)
    assert rows == sorted(expected[2] + expected[3][20:])
    wait_until(lambda: job.status().batch >= 5, 240, "the commit")
    assert job.status().batch == 5, "the numbers 1 and 2 are not used again"
    job.stop(savepoint=False, target=None, drain=False, timeout_s=100)
    assert work.state("count", "total") == finals(expected[3], 2)


@pytest.mark.exhaustive
def test_a_fork_into_a_new_sink(work: Work) -> None:
    """It begins in the middle of the numbers, and Spark's file sink does not trip over those that it never saw."""
    inputs = files(seed=34, number=7, rows=20)
    expected = counted(by("account", inputs))
    work.spec = COMPACTING
    for rows in inputs[:4]:
        work.write(rows)
    job = work.start()
    work.wait_rows(80, 200)
    savepoint = job.trigger_savepoint(None, 60)
    job.cancel()
    for rows in inputs[4:]:
        work.write(rows)
    fork = Work(folder=work.folder, name="fork", out="fork", spec=COMPACTING)
    job = fork.start(restore_from=savepoint.path)
    assert fork.wait_rows(60, 200) == sorted(expected[80:])
    job.stop(savepoint=False, target=None, drain=False, timeout_s=100)
    assert fork.state("count", "total") == finals(expected, 2)


@pytest.mark.exhaustive
def test_a_fork_into_a_sink_that_another_job_has_used(work: Work) -> None:
    """Its numbers go on above those of the sink, which would skip them otherwise."""
    inputs = files(seed=32, number=4, rows=20)
    expected = [counted(by("account", inputs[: number + 1])) for number in range(4)]
    work.write(inputs[0])
    job = work.start()
    work.wait_rows(20, 200)
    savepoint = job.trigger_savepoint(None, 60)
    for rows in inputs[1:]:
        work.write(rows)
    work.wait_rows(80, 200)
    job.cancel()
    fork = Work(folder=work.folder, name="fork", out="out")
    fork.start(restore_from=savepoint.path)
    assert fork.wait_rows(140, 200) == sorted(expected[3] + expected[3][20:])
    fork.jobs[0].stop(savepoint=False, target=None, drain=False, timeout_s=100)
    assert fork.state("count", "total") == finals(expected[3], 2)


@pytest.mark.exhaustive
def test_with_state_of_sparks_own_it_is_refused_before_anything_is_touched(work: Work) -> None:
    """Spark numbers that state by batch. The way out that the text names works: another name and another place."""
    work.script, work.entrypoint = Path(__file__).parent / "spark_steps.py", "windows"
    work.spec = {"sparkConf": {"spark.sql.shuffle.partitions": "2"}}
    inputs = files(seed=33, number=3)
    work.write(inputs[0])
    job = work.start()
    wait_until(lambda: job.status().batch >= 0, 200, "a batch")
    old = job.trigger_checkpoint(60)
    work.write(inputs[1])
    wait_until(lambda: job.status().batch > old.batch, 200, "a batch after the checkpoint")
    job.cancel()
    claims = [info.key for info in work.store().list("attempts/")]
    with pytest.raises(NotRestorableError, match=r"state of its own operators by batch number.*another name"):
        work.start(restore_from=old.path)
    assert [info.key for info in work.store().list("attempts/")] == claims
    fork = Work(folder=work.folder, name="fork", out="fork", script=work.script, entrypoint="windows", spec=work.spec)
    fork.run(restore_from=old.path)
    assert fork.state("number", "number") == finals(counted(by("account", inputs[:2])), 1)
