"""Options of every JVM that tests start: little compilation, and an archive of the classes that Spark loads.

The archive saves more than a third of the CPU that a JVM needs until its first batch. It lies in the environment, for later runs too. The kill
tests, which run first, make it; a JVM that finds none, or one of another Java or Spark, starts without.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pyspark

from statefulspark.job.spark.java import find_java_home

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM of the tests lives for seconds: it should not spend them on its own tuning."""


def class_archive() -> Path:
    """Path of the archive for this Spark and this Java; it may not exist."""
    release = Path(find_java_home() or "/nowhere") / "release"
    java = hashlib.sha256(release.read_bytes() if release.exists() else b"").hexdigest()[:12]
    return Path(sys.prefix) / f"spark-{pyspark.__version__}-java-{java}.jsa"


def java_options() -> str:
    """What ``JAVA_TOOL_OPTIONS`` should be."""
    return f"{QUICK} -XX:SharedArchiveFile={class_archive()} -Xshare:auto -Xlog:disable"
