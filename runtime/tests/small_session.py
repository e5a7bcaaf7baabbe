"""A small Spark session: with the settings of the protocol for tests that read plans and start no query, or as a notebook has one."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

from statefulspark.exchange.endpoint import Endpoint
from statefulspark.job.spark.java import find_java_home
from statefulspark.job.spark.session import PROTOCOL_SETTINGS
from statefulspark.pipeline.tick_source import tick_source

NOWHERE = Endpoint(location="grpc+tcp://127.0.0.1:1", secret="s")
"""A coordinator that is never called."""


@contextmanager
def small_session(master: str = "local[1]", settings: Mapping[str, str] = PROTOCOL_SETTINGS) -> Iterator[SparkSession]:
    """A session with one core, or that of another ``master``; stopped at the end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", find_java_home() or "")
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
        for key, value in settings.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        session.dataSource.register(tick_source(NOWHERE))
        yield session
        session.stop()
