"""Settings of every test: a Java for Spark, and hypothesis' profile."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator

import pytest
import structlog

from statefulspark.job.spark.java import find_java_home
from statefulspark.logs.levels import present_levels, set_levels

from .depth import load_profile
from .java_options import java_options

load_profile()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The kill tests, which take longest, begin at once."""
    items.sort(key=lambda item: item.get_closest_marker("kill") is None)


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """Handlers, levels and structlog's configuration are as before when the test has ended."""
    root = logging.getLogger()
    handlers, levels, configuration = root.handlers[:], present_levels(), structlog.get_config()
    yield
    root.handlers = handlers
    set_levels(levels)
    structlog.configure(**configuration)


# Tests that start Spark themselves need what `open_session` would find.
if (_java_home := find_java_home()) is not None:
    os.environ["JAVA_HOME"] = _java_home
os.environ.setdefault("JAVA_TOOL_OPTIONS", java_options())
# Jobs of tests have the connectors that their test adds, not those of the user's cache.
os.environ["STATEFULSPARK_CONNECTORS"] = os.devnull

# A shell without job control starts `make test &` with SIGINT ignored, and every process would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# So does `nohup make test` with SIGHUP.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
