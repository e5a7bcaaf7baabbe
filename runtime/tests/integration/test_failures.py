"""A user function that raises, rows that cannot be taken, and output that does not fit: told clearly, and nothing lost."""

from __future__ import annotations

import json
import re
from contextlib import closing

import pytest

from statefulspark.checkpoint.inspect.reader import read_state
from statefulspark.coordinator.slots.replacement import FAILURES_BEFORE_SERVING

from .oracles import by, counted, files, finals, row
from .work import Command, Work


def test_an_error_of_the_users_function_ends_the_job_and_its_batch_leaves_no_trace(work: Work, command: Command) -> None:
    """After Spark's four tries the user reads his own traceback, uid and key group; mended, the job goes on after the last good batch.

    Each try runs on a fresh copy of the function, which has the next attempt number and the job's parameters.
    """
    inputs = files(seed=4)
    inputs[1].append(row("unlucky", 500_000, 13))
    for rows in inputs:
        for each in rows:
            each["amount"] += each["account"] != "unlucky" and each["amount"] == 13
        work.write(rows)
    work.entrypoint, work.parameters = "fragile", {"unlucky": 13}

    result = command("run", work.write_manifest(), "--until-idle", "--no-progress", "-o", "json")

    assert result.exit_code == 1
    error = json.loads(result.stdout)["error"]
    assert error["reason"] == "UserFunction"
    for text in (error["message"], result.stderr):
        assert "ValueError: thirteen is not for me" in text
        assert re.search(r"in uid 'count', key group \d+", text)
        assert "in refuse_amount" in text
        assert 'raise ValueError("thirteen is not for me")' in text
        assert "org.apache.spark" not in text
    assert "it resumes after batch 0" in result.stderr
    # The slot of the row's key ran the batch once per try of its task.
    assert (work.folder / "calls").read_text().splitlines() == [f"attempt {attempt} raised 1" for attempt in range(4)]
    assert work.rows() == sorted(counted(by("account", inputs[:1])))

    work.entrypoint = "counts"
    work.run()
    expected = counted(by("account", inputs))
    assert work.rows() == sorted(expected)
    assert work.state("count", "total") == finals(expected, 2)
    with closing(read_state(f"{work.storage}/job", "count", "total", key="unlucky")) as entries:
        assert f"key group {next(entries).key_group}\n" in error["message"]


@pytest.mark.exhaustive
def test_rows_and_output_that_do_not_fit_are_named_and_the_corrected_job_goes_on(work: Work) -> None:
    """Output of another type: batch 0 never happened. A null key: batch 1 never happened. Corrected, every row counts once."""
    inputs = files(seed=5, number=2)
    inputs[1].insert(3, row("nobody", 450) | {"account": None})
    for rows in inputs:
        work.write(rows)
    work.entrypoint = "misfit"
    error = work.run_to_failure()
    assert error.reason == "InvalidInput"
    assert "total" in error.message
    assert "count" in error.message
    assert "a lot" not in error.message

    work.entrypoint = "counts"
    error = work.run_to_failure()
    assert error.reason == "InvalidInput"
    assert error.message.startswith("key_by: a row of uid 'count' has a null key in account. Filter such rows")

    work.entrypoint = "filtered"
    work.run()
    inputs[1].pop(3)
    expected = counted(by("account", inputs))
    assert work.rows() == sorted(expected)
    assert work.state("count", "total") == finals(expected, 2)


# coordinator/test_slot_replacement.py has the bounds without Spark.
@pytest.mark.exhaustive
def test_a_slot_that_crashes_in_each_restore_ends_the_job_and_leaves_its_siblings_alone(work: Work) -> None:
    """The other slot lives in one process from beginning to end; the error names the slot, and the tries are few."""
    work.write(files(seed=6, number=1)[0])
    work.entrypoint = "deadly_restore"
    work.parameters = {"lives": str(work.folder)}
    error = work.run_to_failure()
    assert error.reason == "SlotCrashed"
    assert "the process of slot 0 died" in error.message
    assert len((work.folder / "slot-0").read_text().split()) == 4 * FAILURES_BEFORE_SERVING
    assert len((work.folder / "slot-1").read_text().split()) == 1


# coordinator/test_slot_crashes.py has the same without Spark.
@pytest.mark.exhaustive
def test_a_row_that_crashes_its_slot_each_time_ends_the_job_with_a_name(work: Work) -> None:
    """Without a restart strategy of its own the job does not restart for ever; without the row it goes on and counts every other row once."""
    inputs = files(seed=6, number=2)
    inputs[1].insert(2, row("deadly", 500_000, 1))
    for rows in inputs:
        work.write(rows)
    work.entrypoint = "deadly"

    error = work.run_to_failure()
    assert error.reason == "SlotCrashed"
    assert re.search(
        r"the process of slot \d died 8 times at the same rows, which it got for uid 'count', the last time in batch 1\.", error.message
    )
    assert "Filter the row" in error.message

    work.entrypoint = "counts"
    work.run()
    assert work.rows() == sorted(counted(by("account", inputs)))
