"""From pydantic's JSON schema to what the API server takes: a structural schema (apiextensions.k8s.io/v1). Pure.

What differs from JSON schema: no references; no alternatives (``X | None`` is a field that may be left out); bounds are exclusive by a
flag; unknown fields are pruned unless the field says otherwise; keys of maps have no schema, so their patterns become CEL rules; patterns of a
spec become CEL rules too, because an API server quotes a pattern to the user, but the message of a rule says what is expected; and an
object's default is written as ``{}``, from which the API server goes on to the defaults inside. An object with rules of its own has its
default written out: an API server lets the rules judge the default as it stands, and takes a definition only if they hold.

Source: Kubernetes, "Extend the Kubernetes API with CustomResourceDefinitions", section "Specifying a structural schema".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

from statefulspark.errors import InternalError

Schema = dict[str, Any]

_COPIED: Final = (
    "type",
    "description",
    "enum",
    "format",
    "pattern",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "minimum",
    "maximum",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-validations",
)
_TRANSLATED: Final = frozenset(
    {
        "$ref",
        "additionalProperties",
        "anyOf",
        "const",
        "default",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "items",
        "patternProperties",
        "properties",
        "required",
    }
)
_DROPPED: Final = frozenset({"title", "change", "local", "serverDefault", "propertyNames", "expected"})
FORMAT_ERROR: Final = "expected"
"""Beginning of the messages about text in a format that the field does not take."""
_NULL: Final = {"type": "null"}


def structural_schema(model: type[BaseModel], *, defaults: bool = True) -> Schema:
    """Return the structural schema of ``model`` with its YAML names.

    Args:
        model: The model of a spec or a status.
        defaults: If False, all defaults are left out: an unset field of a status is absent.

    Raises:
        InternalError: A model uses something that a structural schema cannot say; the text names it.
    """
    schema = model.model_json_schema(by_alias=True, mode="serialization")
    return _Conversion(schema.get("$defs", {}), defaults=defaults).convert(schema)


class _Conversion:
    def __init__(self, definitions: Mapping[str, Schema], *, defaults: bool) -> None:
        self._definitions = definitions
        self._defaults = defaults

    def convert(self, given: Schema) -> Schema:
        source = self._resolved({name: value for name, value in given.items() if name != "$defs"})
        if unknown := source.keys() - set(_COPIED) - _TRANSLATED - _DROPPED:
            raise InternalError(f"a structural schema cannot express {', '.join(sorted(unknown))}")
        schema: Schema = {name: source[name] for name in _COPIED if name in source}
        if "description" in schema:
            schema["description"] = " ".join(schema["description"].split())
        if "const" in source:
            schema["enum"] = [source["const"]]
        for bound in ("Minimum", "Maximum"):
            if (value := source.get(f"exclusive{bound}")) is not None:
                schema |= {bound.lower(): value, f"exclusive{bound}": True}
        if schema.get("type") == "object":
            schema |= self._object(source)
        if "items" in source:
            schema["items"] = self.convert(source["items"])
        if "pattern" in schema and self._defaults:
            schema["x-kubernetes-validations"] = [_format_rule(schema, source.get("expected"))]
        return schema

    def _object(self, source: Schema) -> Schema:
        if "properties" in source:
            properties = {name: self._property(each) for name, each in source["properties"].items() if not each.get("local")}
            required = [name for name in source.get("required", ()) if name in properties]
            return {"properties": properties, **({"required": required} if required else {})}
        patterns: Mapping[str, Schema] = source.get("patternProperties", {})
        values = next(iter(patterns.values()), source.get("additionalProperties"))
        if not isinstance(values, dict) or not values:
            return {"x-kubernetes-preserve-unknown-fields": True}
        found: Schema = {"additionalProperties": self.convert(values)}
        if patterns:
            (pattern,) = patterns
            rule = f"self.all(name, name.matches({json.dumps(pattern)}))"
            found["x-kubernetes-validations"] = [{"rule": rule, "message": f"a name does not match {pattern}"}]
        return found

    def _property(self, given: Schema) -> Schema:
        schema = self.convert(given)
        source = self._resolved(given)
        default = source.get("default")
        if self._defaults and default not in (None, []) and source.get("serverDefault", True):
            nested = schema.get("type") == "object" and "properties" in schema
            schema["default"] = _object_default(schema) if nested else default
        return schema

    def _resolved(self, given: Schema) -> Schema:
        """Follow references and take the one alternative that is not null; what stands beside them wins."""
        source = dict(given)
        alternatives = [each for each in source.pop("anyOf", ()) if each != _NULL]
        if len(alternatives) > 1:
            raise InternalError("a structural schema has no alternatives: use one type, or None and one type")
        if alternatives:
            source = {**self._resolved(alternatives[0]), **source}
        if reference := source.pop("$ref", None):
            source = {**self._resolved(self._definitions[reference.rsplit("/", maxsplit=1)[-1]]), **source}
        return source


def _format_rule(schema: Schema, expected: str | None) -> Schema:
    """Replaces the pattern of a schema by a rule whose message says what is expected; of a number, the bounds too."""
    if expected is None:
        raise InternalError(f"no Expected(...) describes the pattern {schema['pattern']}")
    rule = f"self.matches({json.dumps(schema.pop('pattern'))})"
    if schema.get("x-kubernetes-int-or-string"):
        bounds = [f"self {sign} {schema.pop(name)}" for name, sign in (("minimum", ">="), ("maximum", "<=")) if name in schema]
        rule = f"type(self) == int ? {' && '.join(bounds) or 'true'} : {rule}"
    return {"rule": rule, "message": f"{FORMAT_ERROR} {expected}"}


def _object_default(schema: Schema) -> Schema:
    if "x-kubernetes-validations" not in schema:
        return {}
    return {name: each["default"] for name, each in schema["properties"].items() if "default" in each}
