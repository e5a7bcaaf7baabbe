"""What an API server does with an object of a custom resource: defaults, pruning, validation, CEL rules; written apart from the generator."""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Iterator
from typing import Any

import celpy
import pytest
from celpy.adapter import json_to_cel
from celpy.evaluation import CELEvalError

from statefulspark_operator.crds.definitions import definitions

Schema = dict[str, Any]


@functools.cache
def program(rule: str) -> celpy.Runner:
    """Compile a CEL rule once."""
    environment = celpy.Environment()
    return environment.program(environment.compile(rule))


def parts(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    """All schemas inside a schema that may have a default, with their paths."""
    yield path, schema
    for name, each in schema.get("properties", {}).items():
        yield from parts(each, f"{path}.{name}")
    if "items" in schema:
        yield from parts(schema["items"], f"{path}[]")


class Server:
    """One custom resource as an API server sees it."""

    def __init__(self, definition: Schema) -> None:
        (version,) = definition["spec"]["versions"]
        self.schema: Schema = version["schema"]["openAPIV3Schema"]

    def admit(self, document: Schema, before: Schema | None = None) -> tuple[Schema, list[str]]:
        """Return the object as it would be stored, and why it is refused (nothing when it is not)."""
        stored = self.defaulted(self.schema, copy.deepcopy(document))
        problems = list(self.invalid(self.schema, stored, ""))
        if not problems:
            problems = list(self.broken_rules(self.schema, stored, before, ""))
        return stored, problems

    def refused_defaults(self) -> list[str]:
        """Why an API server would not take the definition at all: it judges each default as it is written, without the defaults inside."""
        found = []
        for path, schema in parts(self.schema, ""):
            if "default" in schema:
                found += [f"{path}: {problem}" for problem in self.judged_default(schema)]
        return found

    def judged_default(self, schema: Schema) -> list[str]:
        """What schema and rules say of one default; a rule that reads a field that is not there does not hold."""
        problems = list(self.invalid(schema, schema["default"], ""))
        try:
            return problems or list(self.broken_rules(schema, schema["default"], None, ""))
        except CELEvalError as error:
            return [str(error)]

    def defaulted(self, schema: Schema, value: Any) -> Any:
        """Fill in defaults and drop what the schema does not know, from the outside in."""
        if isinstance(value, dict):
            for name, each in schema.get("properties", {}).items():
                if name not in value and "default" in each:
                    value[name] = copy.deepcopy(each["default"])
            if "properties" in schema and schema is not self.schema["properties"]["metadata"]:
                value = {name: each for name, each in value.items() if name in schema["properties"]}
            inner = schema.get("properties", {})
            return {name: self.defaulted(inner.get(name, schema.get("additionalProperties", {})), each) for name, each in value.items()}
        if isinstance(value, list):
            return [self.defaulted(schema.get("items", {}), each) for each in value]
        return value

    def invalid(self, schema: Schema, value: Any, path: str) -> Iterator[str]:
        """Yield what the OpenAPI schema refuses."""
        kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float)}
        kind: Any = kinds[schema["type"]] if "type" in schema else (int, str) if schema.get("x-kubernetes-int-or-string") else object
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool and kind is not object):
            yield f"{path}: type"
        elif isinstance(value, dict):
            yield from (f"{path}.{name}: required" for name in schema.get("required", ()) if name not in value)
            yield from self.wrong_size(schema, "Properties", len(value), path)
            for name, each in value.items():
                yield from self.invalid(
                    schema.get("properties", {}).get(name, schema.get("additionalProperties", {})), each, f"{path}.{name}"
                )
        elif isinstance(value, list):
            yield from self.wrong_size(schema, "Items", len(value), path)
            for index, each in enumerate(value):
                yield from self.invalid(schema.get("items", {}), each, f"{path}[{index}]")
        else:
            yield from self.invalid_scalar(schema, value, path)

    def invalid_scalar(self, schema: Schema, value: Any, path: str) -> Iterator[str]:
        """Yield what enum, pattern, lengths and bounds refuse."""
        if "enum" in schema and value not in schema["enum"]:
            yield f"{path}: enum"
        if isinstance(value, str):
            if "pattern" in schema and re.search(schema["pattern"], value) is None:
                yield f"{path}: pattern"
            yield from self.wrong_size(schema, "Length", len(value), path)
        elif not isinstance(value, bool):
            low, high = schema.get("minimum", value), schema.get("maximum", value)
            outside = value < low or value > high
            if outside or (schema.get("exclusiveMinimum") and value == low) or (schema.get("exclusiveMaximum") and value == high):
                yield f"{path}: bounds"

    def wrong_size(self, schema: Schema, what: str, size: int, path: str) -> Iterator[str]:
        """Yield when there are too few or too many."""
        if not schema.get(f"min{what}", 0) <= size <= schema.get(f"max{what}", size):
            yield f"{path}: {what}"

    def broken_rules(self, schema: Schema, value: Any, before: Any, path: str) -> Iterator[str]:
        """Yield the messages of CEL rules that do not hold, each with its field; those over oldSelf only where there is an old value."""
        for each in schema.get("x-kubernetes-validations", ()):
            transition = "oldSelf" in each["rule"]
            if transition and before is None:
                continue
            names = {"self": json_to_cel(value), **({"oldSelf": json_to_cel(before)} if transition else {})}
            if not program(each["rule"]).evaluate(names):
                yield f"{path}: {each['message']}"
        if isinstance(value, dict):
            for name, each in value.items():
                inner = schema.get("properties", {}).get(name)
                if inner is not None:
                    yield from self.broken_rules(inner, each, before.get(name) if isinstance(before, dict) else None, f"{path}.{name}")
        elif isinstance(value, list):
            for index, each in enumerate(value):
                yield from self.broken_rules(schema.get("items", {}), each, None, f"{path}[{index}]")


@pytest.fixture(scope="session")
def jobs() -> Server:
    """StatefulSparkJob."""
    return Server(definitions()[0])


@pytest.fixture(scope="session")
def snapshots() -> Server:
    """StateSnapshot."""
    return Server(definitions()[1])
