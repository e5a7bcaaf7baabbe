"""``statefulspark executor``: entry point of an executor container on Kubernetes. Started by Spark, not by users.

Spark's pod for an executor says what to run by one argument, ``executor``, and by variables (``SPARK_DRIVER_URL``, ``SPARK_EXECUTOR_*``,
``SPARK_JAVA_OPT_<n>`` ...). Spark's own images turn these into a ``java`` command with a shell script; this does the same.
Source: Apache Spark, "Running Spark on Kubernetes", and the environment that BasicExecutorFeatureStep sets.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

import typer

from statefulspark.config.kubernetes.pods import SPARK_SECRET_FOLDER, SPARK_SECRET_KEY
from statefulspark.errors import InvalidInputError

_JAVA_OPTION = re.compile(r"SPARK_JAVA_OPT_(\d+)")
_BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_SECRET_VARIABLE = "_SPARK_AUTH_SECRET"  # noqa: S105  the name of a variable, not a secret
_ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


def register(app: typer.Typer) -> None:
    """Add the command to ``app``; it does not show in the help."""
    app.command(name="executor", hidden=True)(executor)


def executor() -> None:
    """Run a Spark executor's JVM on Kubernetes. Started by Spark, not by users."""
    from statefulspark.job.spark.java import find_java_home

    home = find_java_home()
    if home is None:
        raise InvalidInputError("an executor needs Java 17 or later", field="JAVA_HOME", remedy="Use an image with a JRE")
    command = executor_command(os.environ, java=f"{home}/bin/java", jars=":".join([*_job_jars(os.environ), f"{_spark_jars()}/*"]))
    # In place of this process: signals of the container reach the JVM, and the options (which may hold secrets) stay in the environment
    # of a process that only its owner can read.
    environ = {**os.environ, "JAVA_HOME": home, **_spark_secret(Path(SPARK_SECRET_FOLDER) / SPARK_SECRET_KEY)}
    os.execve(command[0], command, environ)  # noqa: S606  a fixed program without a shell


def executor_command(environ: Mapping[str, str], *, java: str, jars: str) -> list[str]:
    """The command line of the executor's JVM.

    Raises:
        InvalidInputError: A variable that Spark sets is missing.
    """
    memory = _given(environ, "SPARK_EXECUTOR_MEMORY")
    options = sorted((int(found[1]), value) for name, value in environ.items() if (found := _JAVA_OPTION.fullmatch(name)))
    # Spark puts spark.executor.extraClassPath into the first, its images let users put more into the second.
    classpath = ":".join(part for part in (environ.get("SPARK_CLASSPATH"), environ.get("SPARK_EXTRA_CLASSPATH"), jars) if part)
    arguments = [word for option, name in _ARGUMENTS.items() for word in (option, _given(environ, name))]
    return [java, *(value for _, value in options), f"-Xms{memory}", f"-Xmx{memory}", "-cp", classpath, _BACKEND, *arguments]


def _spark_secret(path: Path) -> dict[str, str]:
    """The secret by which Spark's processes know each other, where an executor looks for it first.

    Spark's own way, ``spark.authenticate.secret.file``, works for the driver only: an executor reads the file when it knows that its master is
    Kubernetes, which it learns from the driver, to which it cannot talk without the secret. What the driver makes of the file is the base64
    of all its bytes (Spark's ``SecurityManager.secretKeyFromFile``).
    """
    return {_SECRET_VARIABLE: base64.b64encode(path.read_bytes()).decode("ascii")} if path.is_file() else {}


def _job_jars(environ: Mapping[str, str]) -> list[str]:
    """The jars that the job names, after fetching them."""
    from statefulspark.connectors.job_jars import VARIABLE, JobJar, resolved_jars

    given = json.loads(environ.get(VARIABLE, "[]"))
    return [str(path) for path in resolved_jars([JobJar(**each) for each in given], typer.echo, environ=environ)]


def _spark_jars() -> Path:
    """Where pyspark keeps Spark; looked for and not imported, which would take a second."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise InvalidInputError("an executor needs pyspark", field="image", remedy="Use the image of the driver")
    return Path(found.origin).parent / "jars"


def _given(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name)
    if not value:
        raise InvalidInputError("is not set", field=name, remedy="Only Spark starts this command, in an executor's pod")
    return value
