"""Spark's JVM: started in a session of its own, so that a signal to the driver's process group does not end it before the final checkpoint.

``timeout``, terminals and init systems send SIGTERM, SIGINT and SIGHUP to a whole process group. The driver needs Spark until its last checkpoint is
complete. The JVM ends with the driver, when the JVM's standard input is closed.
"""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import psutil
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from statefulspark.config.values.secret_names import is_secret, is_secret_value
from statefulspark.errors import JvmLostError, UnavailableError

JVM_EXIT_S: Final = 0.5
"""Maximum time until a JVM whose connections broke is seen to have ended."""


def start_jvm(settings: Mapping[str, str], output: int | None = None) -> None:
    """Start Spark's JVM with ``settings`` unless this process has one already; a session that is opened next uses it.

    Args:
        settings: Spark's settings.
        output: Descriptor of the file that takes the JVM's standard output and standard error, and with them Spark's log and what Python workers
            print; None leaves them where this process's go.

    Raises:
        UnavailableError: The JVM ended before it served.
    """
    if SparkContext._gateway is not None:  # noqa: SLF001  pyspark keeps one JVM per process and has no public way to ask for it
        return
    conf, arguments = SparkConf(), SparkConf()
    for name, value in settings.items():
        conf.set(name, value)
        # Everyone on the machine can read a process's arguments. The context gets these settings from `conf`.
        if not (is_secret(name) or is_secret_value(value)):
            arguments.set(name, value)
    before = {child.pid for child in psutil.Process().children()}
    try:
        gateway = launch_gateway(arguments, popen_kwargs={"start_new_session": True, "stdout": output, "stderr": output})  # type: ignore[no-untyped-call]  # pyspark's own gap
    except BaseException as error:
        # A JVM whose parent leaves before it has read its standard input would never exit.
        for child in psutil.Process().children():
            if child.pid not in before:
                child.kill()
        if isinstance(error, PySparkRuntimeError):
            where = "above" if output is None else "in its log"
            remedy = "Check spec.driver.memory, JAVA_HOME and spec.sparkConf"
            raise UnavailableError(f"Spark's JVM ended before it was ready; its own message is {where}. {remedy}") from error
        raise
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)  # noqa: SLF001  the only way to hand over a gateway without a context


def jvm_lost(spark: SparkSession, *, within_s: float = 0.0) -> JvmLostError | None:
    """Return the error that stands for a JVM that has ended, or for a session that was stopped under the job; None while it runs.

    Also None when this process did not start the JVM (``spark-submit`` did).

    Args:
        spark: The session.
        within_s: Maximum time to wait for its end.
    """
    if spark.sparkContext._jsc is None:  # noqa: SLF001  PySpark has no public way to ask
        return JvmLostError("the Spark session was stopped")
    process: subprocess.Popen[bytes] | None = getattr(spark.sparkContext._gateway, "proc", None)  # noqa: SLF001  the only reference to it
    if process is None:
        return None
    try:
        code = process.wait(within_s) if within_s > 0 else process.poll()
    except subprocess.TimeoutExpired:
        return None
    if code is None:
        return None
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return JvmLostError(f"Spark's JVM {how}. If the kernel killed it for lack of memory, raise spec.driver.memory")


@contextmanager
def own_signal_handlers() -> Iterator[None]:
    """Give SIGINT back to its handler afterwards: a new SparkContext replaces it by one that only raises KeyboardInterrupt."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
