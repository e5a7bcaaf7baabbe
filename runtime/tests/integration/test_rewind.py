"""`--from` an older checkpoint, and forks, with Spark's own file sink, which skips what it knows and fails on gaps."""

from __future__ import annotations

from pathlib import Path

import pytest

from statefulspark.errors import NotRestorableError

from .oracles import by, counted, files, finals
from .work import Work, wait_until

_FILES = 15


def test_back_to_an_older_checkpoint_and_forked_from_it(work: Work) -> None:
    """The sink keeps what it had, gets all rows after the checkpoint anew, and goes on through its own compactions (each 10 batches)."""
    inputs = files(seed=31, number=_FILES, rows=20)
    expected = [counted(by("account", inputs[: number + 1])) for number in range(_FILES)]
    work.checkpointing = {"retention": {"count": 3}}
    work.write(inputs[0])
    work.write(inputs[1])
    job = work.start()
    work.wait_rows(40, 200)
    old = job.trigger_checkpoint(60)
    assert old.batch == 1
    work.write(inputs[2])
    work.write(inputs[3])
    work.wait_rows(80, 200)
    job.trigger_checkpoint(60)
    work.write(inputs[4])
    work.wait_rows(100, 200)
    job.cancel()
    assert work.rows() == sorted(expected[4])

    status = work.run(restore_from=old.path)
    assert status.restored_from == old.path
    assert status.batch == 7, "batches 2 to 4 are not used again"
    assert work.rows() == sorted(expected[4] + expected[4][40:])
    assert work.state("count", "total") == finals(expected[4], 2)

    for rows in inputs[5:]:
        work.write(rows)
    work.run()
    assert work.rows() == sorted(expected[-1] + expected[4][40:])
    assert work.state("count", "total") == finals(expected[-1], 2)

    fork = Work(folder=work.folder, name="fork", out="fork")
    assert fork.run(restore_from=old.path).batch == _FILES - 1
    assert fork.rows() == sorted(expected[-1][40:])
    assert fork.state("count", "total") == finals(expected[-1], 2)


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
    fork.run(restore_from=savepoint.path)
    assert fork.rows() == sorted(expected[3] + expected[3][20:])
    assert fork.state("count", "total") == finals(expected[3], 2)


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
    with pytest.raises(NotRestorableError, match=r"stateful steps by batch.*another name"):
        work.start(restore_from=old.path)
    assert [info.key for info in work.store().list("attempts/")] == claims
    fork = Work(folder=work.folder, name="fork", out="fork", script=work.script, entrypoint="windows", spec=work.spec)
    fork.run(restore_from=old.path)
    assert fork.state("number", "number") == finals(counted(by("account", inputs[:2])), 1)
