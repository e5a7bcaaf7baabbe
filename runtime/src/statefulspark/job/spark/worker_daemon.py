"""PySpark's daemon, with the modules of slots and exchanges loaded: the workers that it forks have them already, and share their memory.

Without it every slot spends about a second of CPU on imports when it starts, also the one that takes the place of a killed one.

Spark runs ``python -m statefulspark.job.spark.worker_daemon pyspark.worker`` once per executor and environment of a function. `ENVIRONMENT` makes that
of slots, which are tasks of an RDD, equal to that of Spark SQL's functions, which the exchanges are: one daemon serves both. Python code of a user's own
runs in its forks too, and imports what it needs as before.

PySpark's own daemon loads nothing because threads do not survive a fork. The modules that are loaded here start no thread of Python's, and pyarrow's
allocator restarts its own thread in each child.
"""

from __future__ import annotations

import gc
import importlib
from typing import Final

from pyspark import daemon

DAEMON_MODULE: Final = "spark.python.daemon.module"
"""The setting that names this module to Spark."""
ENVIRONMENT: Final = {"SPARK_SIMPLIFIED_TRACEBACK": "1"}
"""Spark sets this variable for the workers of Spark SQL alone, and would start a second daemon for all others."""


def load_modules() -> None:
    """Import what the forks of this daemon will need."""
    for name in ("pyspark.worker", "statefulspark.exchange.task", "statefulspark.slot.process"):
        importlib.import_module(name)
    # Collections in the children leave these objects alone, so their pages stay shared.
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    load_modules()
    daemon.manager()
