"""What all models of a manifest have in common, and what changing a field of a running job costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, Strict, StringConstraints, model_validator
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from statefulspark.config.problems import Problem, conflicting

IGNORE: JsonDict = {"change": "ignore"}
"""Takes effect without touching what runs."""
SCALE: JsonDict = {"change": "scale"}
"""Changes the number of slots: state moves, code and settings stay."""
UPGRADE: JsonDict = {"change": "upgrade"}
"""Stops the job with its state and starts it again with the new spec."""
REJECT: JsonDict = {"change": "reject"}
"""Can never change while the job keeps its state."""


def no_server_default(cost: JsonDict) -> JsonDict:
    """Return ``cost`` for a field whose absence means more than its default, so that the API server must not fill it in."""
    return {**cost, "serverDefault": False}


def local_only(cost: JsonDict) -> JsonDict:
    """Return ``cost`` for a field that only ``statefulspark run`` takes: it is not part of the custom resource and refused there."""
    return {**cost, "local": True}


WholeNumber = Annotated[int, Strict()]
"""A whole number; text and booleans are refused."""
Number = Annotated[float, Strict()]
"""A number; text and booleans are refused."""
Flag = Annotated[bool, Strict()]
"""true or false; text and numbers are refused."""
Text = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
"""Text that is not empty, at most 4096 characters."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Description of the texts that match the pattern of a field, for the API server's error: ``expected`` and this text.

    Attributes:
        text: A noun phrase with an example, such as ``a duration such as 30s``.
    """

    text: str

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Adds the description to the field's schema."""
        return {**handler(core_schema), "expected": self.text}


ObjectName = Annotated[
    str,
    StringConstraints(max_length=253, pattern=r"^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$"),
    Expected("a name of lower-case letters, digits, dots and dashes"),
]
"""Name of a Kubernetes object (RFC 1123 subdomain)."""
Nonce = Annotated[WholeNumber, Field(ge=0, le=(1 << 53) - 1)]
"""A number that means something only by being another one than before, 0 .. 2^53 - 1 (JSON's whole numbers)."""


@dataclass(frozen=True, slots=True)
class CelRule:
    """A rule that the API server checks itself.

    Attributes:
        rule: CEL over ``self``, the model's object after defaulting; with ``oldSelf`` it is checked on updates only.
        message: What is wrong and what to change, without a full stop.
    """

    rule: str
    message: str


class Model(BaseModel):
    """Base of every model: frozen, no unknown fields, camelCase in YAML, snake_case in Python.

    A subclass says in `conflicts` which of its fields do not go together, and in ``cel_rules`` the same for API servers, as far as CEL can:
    a rule never refuses what `conflicts` accepts. Attribute docstrings are the descriptions in the custom resource definition and its
    documentation.
    """

    cel_rules: ClassVar[tuple[CelRule, ...]] = ()

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
        allow_inf_nan=False,
    )

    def conflicts(self) -> Iterator[Problem]:
        """Yield one problem for each set of fields that do not go together; fields are relative to this model."""
        yield from ()

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core_schema)
        if cls.cel_rules:
            handler.resolve_ref_schema(schema)["x-kubernetes-validations"] = [
                {"rule": each.rule, "message": each.message} for each in cls.cel_rules
            ]
        return schema

    @model_validator(mode="after")
    def _check_conflicts(self) -> Self:
        found = tuple(self.conflicts())
        if found:
            raise conflicting(found)
        return self

    def to_manifest(self) -> dict[str, Any]:
        """Return the model as it would be written in YAML, without what is not set; secrets are masked."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class Resource(Model):
    """Base of a whole Kubernetes object. Its status is written by the operator and never an input."""

    @model_validator(mode="before")
    @classmethod
    def _without_status(cls, given: Any) -> Any:
        return {name: value for name, value in given.items() if name != "status"} if isinstance(given, dict) else given
