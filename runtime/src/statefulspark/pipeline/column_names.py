"""Column names in Spark's expressions."""

from __future__ import annotations


def quoted(name: str) -> str:
    """A column name as Spark's expressions take it, whatever characters are in it."""
    return "`" + name.replace("`", "``") + "`"
