"""The interpreter that Spark starts its Python workers with."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark

_WRAPPER = Path(__file__).with_name("worker-python")


def worker_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that name the workers' interpreter, for this process and for executors.

    Workers run this process's interpreter. They import PySpark from where it is installed, compiled, and not from the archive that Spark puts first on
    their ``PYTHONPATH``, which costs a second of CPU for each process. With a Spark of one's own (``SPARK_HOME``), the archive is that Spark's, and
    workers use it as Spark intends.

    Args:
        environment: This process's.
    """
    package = Path(pyspark.__file__).parent
    home = environment.get("SPARK_HOME")
    if (home is not None and Path(home).resolve() != package.resolve()) or not os.access(_WRAPPER, os.X_OK):
        return {"PYSPARK_PYTHON": sys.executable}
    return {
        "PYSPARK_PYTHON": str(_WRAPPER),
        "STATEFULSPARK_PYTHON": sys.executable,
        "STATEFULSPARK_PYSPARK": str(package),
    }
