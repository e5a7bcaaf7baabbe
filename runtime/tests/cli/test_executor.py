"""The executor's command line: as Spark's own images make it from the same environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from statefulspark.cli.launch.executor import _spark_secret, executor_command
from statefulspark.errors import InvalidInputError

ENVIRON = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.1:7078",
    "SPARK_EXECUTOR_ID": "2",
    "SPARK_EXECUTOR_CORES": "3",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "counts-exec-2",
    "SPARK_EXECUTOR_MEMORY": "900m",
    "SPARK_JAVA_OPT_10": "-Dlast=1",
    "SPARK_JAVA_OPT_2": "-Dfirst=a b",
    "SPARK_JAVA_OPTIONS": "-Dnot=this",
}


def test_options_keep_their_order_and_their_spaces() -> None:
    command = executor_command(ENVIRON, java="/java", jars="/jars/*")
    assert command[:7] == ["/java", "-Dfirst=a b", "-Dlast=1", "-Xms900m", "-Xmx900m", "-cp", "/jars/*"]
    assert command[7].endswith("KubernetesExecutorBackend")
    pairs = dict(zip(command[8::2], command[9::2], strict=True))
    assert pairs == {
        "--driver-url": "spark://CoarseGrainedScheduler@10.0.0.1:7078",
        "--executor-id": "2",
        "--cores": "3",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.2",
        "--resourceProfileId": "0",
        "--podName": "counts-exec-2",
    }


def test_extra_class_paths_come_first() -> None:
    """Spark's own setting, ``spark.executor.extraClassPath``, arrives as SPARK_CLASSPATH."""
    environ = ENVIRON | {"SPARK_CLASSPATH": "/a.jar:/b.jar", "SPARK_EXTRA_CLASSPATH": "/c.jar"}
    command = executor_command(environ, java="/java", jars="/jars/*")
    assert command[command.index("-cp") + 1] == "/a.jar:/b.jar:/c.jar:/jars/*"


def test_a_missing_variable_is_named() -> None:
    environ = {name: value for name, value in ENVIRON.items() if name != "SPARK_DRIVER_URL"}
    with pytest.raises(InvalidInputError, match="SPARK_DRIVER_URL"):
        executor_command(environ, java="/java", jars="/jars/*")


def test_the_secret_comes_from_its_file_and_never_into_the_command(tmp_path: Path) -> None:
    assert _spark_secret(tmp_path / "none") == {}
    (tmp_path / "spark-secret").write_text("s3cr3t\n")
    assert _spark_secret(tmp_path / "spark-secret") == {"_SPARK_AUTH_SECRET": "czNjcjN0Cg=="}
    assert "s3cr3t" not in " ".join(executor_command(ENVIRON, java="/java", jars="/jars/*"))
