"""Connectors: jars that Spark's sources and sinks need beyond those that PySpark brings."""

from statefulspark.connectors.installed import connector_jars

__all__ = ["connector_jars"]
