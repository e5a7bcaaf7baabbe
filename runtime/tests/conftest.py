"""Settings of every test: a Java for Spark, and hypothesis profiles chosen with ``HYPOTHESIS_PROFILE`` (dev, ci, thorough)."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from statefulspark.job.java import find_java_home

# No deadline: the machine is shared, and a slow example is no defect.
settings.register_profile("dev", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("dev"), derandomize=True, max_examples=100)
settings.register_profile("thorough", parent=settings.get_profile("dev"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Share tests out over the processes of ``make test``.

    The kill tests, which take longest, begin at once in one process, one by one. Other files go to whoever is free, each as a whole.
    """
    items.sort(key=lambda item: item.get_closest_marker("kill") is None)
    for item in items:
        file = item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group("kill" if item.get_closest_marker("kill") is not None else file))


# Tests that start Spark themselves need what `open_session` would find.
if (_java_home := find_java_home()) is not None:
    os.environ["JAVA_HOME"] = _java_home
