"""Secrets of sparkConf reach Spark's context, and not the arguments of its JVM, which everyone on the machine can read."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark import SparkConf, SparkContext

from statefulspark.job.spark import jvm

SECRETS = {"spark.hadoop.fs.s3a.secret.key": "hunter2", "spark.x": "jdbc:postgresql://db/x?user=ada&password=hunter2"}


def test_secrets_are_no_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, dict[str, str]] = {}

    def launch(conf: SparkConf, popen_kwargs: dict[str, Any]) -> str:
        seen["arguments"] = dict(conf.getAll())
        return "gateway"

    def initialize(gateway: object, conf: SparkConf) -> None:
        seen["context"] = dict(conf.getAll())

    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(SparkContext, "_jvm", None)
    monkeypatch.setattr(SparkContext, "_ensure_initialized", initialize)
    monkeypatch.setattr(jvm, "launch_gateway", launch)
    jvm.start_jvm({"spark.driver.memory": "1g", **SECRETS})
    assert seen["arguments"] == {"spark.driver.memory": "1g"}
    assert seen["context"] == {"spark.driver.memory": "1g", **SECRETS}
