"""Jobs whose code has other names go on from a rewritten savepoint: Spark's offsets, the tick sources and the state fit together."""

from __future__ import annotations

import pyarrow as pa
import pytest

from statefulspark import Types, ValueStateDescriptor
from statefulspark.state_tables import SavepointWriter

from .oracles import by, counted, files, finals
from .work import Work


def test_a_step_and_a_state_with_new_names_and_a_step_less(work: Work) -> None:
    """Two steps that read one source; afterwards one of them alone, under another uid and with another name of a state."""
    work.entrypoint = "branches"
    inputs = files(seed=21)
    for rows in inputs[:2]:
        work.write(rows)
    job = work.start()
    work.wait_rows(160)
    savepoint = job.trigger_savepoint(None, 60).path
    job.cancel()
    writer = SavepointWriter.from_existing_savepoint(savepoint).remove_operator("shops")
    writer = writer.change_operator_identifier("accounts", "count").rename_state("accounts", "total", "totl")
    url = writer.write(f"file://{work.folder}/rewritten").url
    work.name, work.entrypoint, work.out = "fork", "misspelt", "out2"
    work.write(inputs[2])
    work.run(restore_from=url)
    expected = counted(by("account", inputs))
    assert work.rows() == sorted(expected[80:])
    assert work.state("count", "number") == finals(expected, 1)
    assert work.state("count", "totl") == finals(expected, 2)


@pytest.mark.exhaustive
@pytest.mark.parametrize("groups", [300, 3])
def test_another_maximum_parallelism(work: Work, groups: int) -> None:
    """Spark hands every row to the slot that has the state of its key."""
    inputs = files(seed=22)
    for rows in inputs[:2]:
        work.write(rows)
    job = work.start(parallelism=3)
    work.wait_rows(80)
    savepoint = job.trigger_savepoint(None, 60).path
    job.cancel()
    url = SavepointWriter.from_existing_savepoint(savepoint).with_max_parallelism(groups).write(f"file://{work.folder}/rewritten").url
    work.name, work.out, work.spec = "fork", "out2", {"maxParallelism": groups}
    work.write(inputs[2])
    work.run(parallelism=2, restore_from=url)
    expected = counted(by("account", inputs))
    assert work.rows() == sorted(expected[80:])
    assert work.state("count", "total") == finals(expected, 2)


def test_a_job_starts_with_bootstrapped_state(work: Work) -> None:
    """A savepoint of no job: sources begin at their first row, and the step continues from the rows that were given."""
    inputs = files(seed=23, number=2)
    before = counted(by("account", inputs[:1]))
    writer = SavepointWriter.new_savepoint(200)
    for name, column in (("number", 1), ("total", 2)):
        state = finals(before, column)
        rows = pa.table({"account": [key for key, _ in state], "value": [value for _, value in state]})
        writer = writer.with_state("count", ValueStateDescriptor(name, Types.LONG()), rows, key_columns=["account"])
    url = writer.write(f"file://{work.folder}/new").url
    work.spec = {"maxParallelism": 200}
    work.write(inputs[1])
    work.run(restore_from=url)
    expected = counted(by("account", inputs))
    assert work.rows() == sorted(expected[40:])
    assert work.state("count", "total") == finals(expected, 2)
