"""Base model and field types of all status models."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Self

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel

SHORT_MAX = 253
MESSAGE_MAX = 4096


def _cut(limit: int) -> BeforeValidator:
    def cut(value: object) -> object:
        return value if not isinstance(value, str) or len(value) <= limit else f"{value[: limit - 3]}..."

    return BeforeValidator(cut)


def _as_text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


Timestamp = Annotated[AwareDatetime, PlainSerializer(_as_text, return_type=str), WithJsonSchema({"type": "string", "format": "date-time"})]
"""A timestamp in the format of Kubernetes: UTC, whole seconds."""
Message = Annotated[str, _cut(MESSAGE_MAX), Field(min_length=1, max_length=MESSAGE_MAX)]
"""Human-readable message; truncated if too long. Never empty: a text without content is an unset field."""
ShortText = Annotated[str, _cut(SHORT_MAX), Field(min_length=1, max_length=SHORT_MAX)]
"""A name or ID."""
Url = Annotated[str, Field(max_length=2048)]
"""A location in storage."""
Reason = Annotated[str, StringConstraints(max_length=SHORT_MAX, pattern=r"^[A-Z][A-Za-z0-9]*$")]
"""Machine-readable reason in CamelCase; stable."""
Count = Annotated[int, Field(ge=0, le=(1 << 53) - 1)]
"""A number of things or bytes."""


class StatusModel(BaseModel):
    """Base of every part of a status: frozen, camelCase in YAML, unknown fields ignored (a newer operator may have written them)."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
    )

    @classmethod
    def read(cls, raw: object) -> Self:
        """Parses a status from the cluster. A field that cannot be parsed, for example one of another version, is ignored."""
        given = raw if isinstance(raw, dict) else {}
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            bad = {each["loc"][0] for each in error.errors() if each["loc"]}
            return cls.model_validate({name: value for name, value in given.items() if name not in bad})

    def to_status(self) -> dict[str, Any]:
        """Returns the object to apply to the status subresource, without unset fields."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
