"""Settings that the batch protocol needs, in the user's session for the moment in which the query starts: Spark copies them for the query."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

from statefulspark.job.spark.session import SQL_SETTINGS, excluded_rules

_PARTITIONS: Final = "spark.sql.shuffle.partitions"
"""Spark keeps one state store per partition and step for the life of a query; its default of 200 is made for a cluster."""


@contextmanager
def protocol_settings(spark: SparkSession) -> Iterator[None]:
    """Set what a query with keyed steps needs; afterwards the session has the settings of before."""
    before = dict(spark.conf.getAll)
    needed = SQL_SETTINGS | excluded_rules(before)
    if _PARTITIONS not in before:
        needed[_PARTITIONS] = str(max(2, os.cpu_count() or 1))
    try:
        for name, value in needed.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name in needed:
            if name in before:
                spark.conf.set(name, before[name])
            else:
                spark.conf.unset(name)
