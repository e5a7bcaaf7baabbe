"""Checks that a job can run on the user's session. What is read of Spark is apart from what is decided."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from statefulspark.errors import InvalidInputError, UnavailableError
from statefulspark.job.spark.query_failures import spark_sentence
from statefulspark.job.spark.session import quiet

_IMPORT: Final = re.compile(r"^(?:ModuleNotFoundError|ImportError)\b|PYTHON_VERSION_MISMATCH|Cannot run program")
_ATTEMPTS: Final = 3
"""A machine that is busy may not start a worker in the 10 s that Spark allows."""
PARALLELISM: Final = 2
"""Number of slots, if Spark has the threads for them."""
_SPARK: Final = "4.3"
_LOCAL: Final = re.compile(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFacts:
    """What counts of a session."""

    version: str
    """Spark's."""
    master: str
    processors: int
    """What ``local[*]`` stands for."""

    @property
    def threads(self) -> int | None:
        """Number of tasks that run at a time; None if the master is not an embedded Spark."""
        found = _LOCAL.fullmatch(self.master)
        if found is None:
            return None
        given = found[1] or "1"
        return self.processors if given == "*" else int(given)


def session_facts(spark: object) -> SessionFacts:
    """Read what counts of a session.

    Raises:
        InvalidInputError: It is no session, one of Spark Connect, or has been stopped.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise InvalidInputError(
            "the session is one of Spark Connect, whose driver is another process",
            field="spark",
            remedy='Create it with SparkSession.builder.master("local[4]").getOrCreate(), without SPARK_REMOTE',
        )
    if not isinstance(spark, SparkSession):
        raise InvalidInputError(
            f"expected a SparkSession, got {type(spark).__name__}", field="spark", remedy="Pass the session of the notebook or shell"
        )
    context = spark.sparkContext
    if context._jsc is None:  # noqa: SLF001  PySpark has no public way to ask
        raise InvalidInputError(
            "the session has been stopped", field="spark", remedy='Create it again: SparkSession.builder.master("local[4]").getOrCreate()'
        )
    jvm: Any = context._jvm  # noqa: SLF001  as above
    return SessionFacts(
        version=spark.version, master=str(context.master), processors=int(jvm.java.lang.Runtime.getRuntime().availableProcessors())
    )


def checked_parallelism(facts: SessionFacts, wanted: int | None) -> int:
    """Return the number of slots: ``wanted``, or by default 2, or 1 if Spark has threads for one only.

    Each slot occupies one task thread for as long as the job runs, and the query needs at least one more.

    Raises:
        InvalidInputError: The session is not embedded, has another version, or has too few threads.
    """
    if facts.version.split(".")[:2] != _SPARK.split("."):
        raise InvalidInputError(
            f"the session runs Spark {facts.version}", field="spark", remedy=f"Install pyspark {_SPARK} and restart the notebook's kernel"
        )
    threads = facts.threads
    if threads is None:
        raise InvalidInputError(
            f"the session's master is {facts.master!r}, and local() runs on an embedded Spark only",
            field="spark",
            remedy='Create the session with master("local[4]"), or run the job on a cluster with a manifest and `statefulspark run`',
        )
    if wanted is not None and wanted < 1:
        raise InvalidInputError(f"{wanted} is less than 1", field="parallelism", remedy="Set a positive number of slots")
    parallelism = min(PARALLELISM, max(1, threads - 1)) if wanted is None else wanted
    check_threads(facts, parallelism, {})
    return parallelism


def check_threads(facts: SessionFacts, parallelism: int, others: dict[str, int]) -> None:
    """Raise unless a job with that many slots has a thread left for its query.

    Args:
        facts: The session's.
        parallelism: Number of slots of the job.
        others: Number of slots by name of the other jobs that run on this Spark.

    Raises:
        InvalidInputError: There are too few; names the number and what to do.
    """
    threads, taken = facts.threads or 0, sum(others.values())
    if threads > parallelism + taken:
        return
    slots = "1 slot" if parallelism == 1 else f"{parallelism} slots"
    held = f", {taken} of them taken by {', '.join(map(repr, others))}" if others else ""
    stop = "stop the other job, " if others else ""
    fewer = f"lower parallelism to {threads - 1 - taken}, " if parallelism > 1 and threads - 1 - taken >= 1 else ""
    advice = f'{stop}{fewer}or create the session with master("local[{parallelism + taken + 2}]") after spark.stop()'
    raise InvalidInputError(
        f"{facts.master!r} has {threads} task thread{'' if threads == 1 else 's'}{held}, and {slots} and the query need {parallelism + 1}",
        field="parallelism",
        remedy=advice.removeprefix("or ")[0].upper() + advice.removeprefix("or ")[1:],
    )


def check_workers(spark: SparkSession) -> None:
    """Run a task to see that Spark's Python workers can run slots.

    Raises:
        InvalidInputError: They run another Python, or one that lacks this package.
        UnavailableError: They do not start.
    """
    problem = ""
    for _ in range(_ATTEMPTS):
        try:
            with quiet(spark):  # this says what is wrong, and Spark would say it in a hundred lines before
                spark.sparkContext.parallelize([0], 1).map(_imported).collect()
        except Exception as error:  # noqa: BLE001  Py4J and Spark raise many kinds
            if (wrong := wrong_interpreter(error)) is not None:
                raise wrong from None
            problem = spark_sentence(error)
        else:
            return
    raise UnavailableError(f"Spark's Python workers do not start: {problem}")


def _imported(_: int) -> int:
    from statefulspark.slot import process  # noqa: PLC0415  the worker's, not the driver's

    return len(process.STOPPED)


def wrong_interpreter(error: Exception) -> InvalidInputError | None:
    """Return what to raise if an error of Spark's says that the workers' Python is not the notebook's; None if it is about something else."""
    lines = [line.strip() for line in str(error).splitlines()]
    if (cause := next((line for line in reversed(lines) if _IMPORT.search(line)), None)) is None:
        return None
    return InvalidInputError(
        f"Spark's Python workers cannot run slots: {cause}",
        field="PYSPARK_PYTHON",
        remedy=f"Restart the notebook or shell, and set os.environ['PYSPARK_PYTHON'] = {sys.executable!r} before the session is created",
    )
