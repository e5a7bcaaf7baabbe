"""What a session must have for a job in a notebook; decided without Spark."""

from __future__ import annotations

import pytest

import statefulspark
from statefulspark.errors import InvalidInputError
from statefulspark.job.local.session_checks import SessionFacts, check_threads, checked_parallelism, wrong_interpreter


def facts(master: str = "local[4]", version: str = "4.3.0", processors: int = 8) -> SessionFacts:
    return SessionFacts(version=version, master=master, processors=processors)


@pytest.mark.parametrize(
    ("master", "threads"),
    [
        ("local", 1),
        ("local[4]", 4),
        ("local[*]", 8),
        ("local[3,2]", 3),
        ("local[*, 4]", 8),
        ("local-cluster[2,1,1024]", None),
        ("yarn", None),
    ],
)
def test_task_threads_of_a_master(master: str, threads: int | None) -> None:
    assert facts(master).threads == threads


@pytest.mark.parametrize(("threads", "wanted", "found"), [(2, None, 1), (3, None, 2), (4, None, 2), (64, None, 2), (4, 3, 3), (2, 1, 1)])
def test_slots_leave_a_thread_for_the_query(threads: int, wanted: int | None, found: int) -> None:
    assert checked_parallelism(facts(f"local[{threads}]"), wanted) == found


@pytest.mark.parametrize(
    ("session", "wanted", "field", "remedy"),
    [
        (facts("local[1]"), None, "parallelism", "local[3]"),
        (facts("local"), None, "parallelism", "local[3]"),
        (facts("local[2]"), 2, "parallelism", "Lower parallelism to 1"),
        (facts(), 0, "parallelism", "positive"),
        (facts("spark://host:7077"), None, "spark", "statefulspark run"),
        (facts("local-cluster[2,1,1024]"), None, "spark", "local[4]"),
        (facts(version="4.1.2"), None, "spark", "pyspark 4.3"),
    ],
)
def test_a_session_that_cannot_run_slots_is_refused(session: SessionFacts, wanted: int | None, field: str, remedy: str) -> None:
    """With the field at fault and a remedy that works: in one sentence."""
    with pytest.raises(InvalidInputError) as refused:
        checked_parallelism(session, wanted)
    assert refused.value.field == field
    assert remedy in str(refused.value)
    assert "\n" not in str(refused.value)


def test_jobs_share_the_threads() -> None:
    """The error names the job that has them."""
    check_threads(facts("local[4]"), 2, {"other": 1})
    with pytest.raises(
        InvalidInputError, match=r"has 4 task threads, 2 of them taken by 'other', and 2 slots .* need 3. Stop the other job, lower"
    ):
        check_threads(facts("local[4]"), 2, {"other": 2})
    with pytest.raises(InvalidInputError, match=r"Stop the other job, or create"):
        check_threads(facts("local[3]"), 1, {"other": 2})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "Traceback\n  File x\nModuleNotFoundError: No module named 'statefulspark'\n\tat org.apache",
            "ModuleNotFoundError: No module named",
        ),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than", "PYTHON_VERSION_MISMATCH"),
        ('java.io.IOException: Cannot run program "python9": error=2', "Cannot run program"),
        ("org.apache.spark.SparkException: Python worker failed to connect back.", None),
    ],
)
def test_workers_of_another_python_are_told_from_slow_ones(text: str, found: str | None) -> None:
    wrong = wrong_interpreter(RuntimeError(text))
    assert wrong is None if found is None else wrong is not None and found in wrong.message


def test_what_is_no_session_is_refused() -> None:
    """Something else, and a session of Spark Connect, which is recognized by its module: its libraries need not be installed."""
    with pytest.raises(InvalidInputError, match="expected a SparkSession, got str"):
        statefulspark.local("spark")  # type: ignore[arg-type]  # the mistake itself
    remote = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(InvalidInputError, match="Spark Connect"):
        statefulspark.local(remote)
