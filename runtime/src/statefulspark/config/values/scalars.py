"""Values of free-form settings: YAML's text, numbers and booleans, all kept as text the way Spark and RocksDB read them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, StringConstraints, WithJsonSchema

from statefulspark.config.problems import refused


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | str):
        return str(value)
    raise refused("is neither text nor a number nor true or false", "Put the value in quotes")


ScalarText = Annotated[
    str,
    BeforeValidator(_as_text),
    StringConstraints(max_length=65536),
    WithJsonSchema({"x-kubernetes-int-or-string": True, "maxLength": 65536}),
]
"""Text, or a YAML number or boolean taken as text (``true``, ``4``)."""
