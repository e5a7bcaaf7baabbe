"""Turns pydantic's findings about a manifest into sentences that name the field as written in YAML and say what to change.

Values are never repeated unless they are numbers, booleans or one of a short list of words, so secrets cannot get into a text.
"""

from __future__ import annotations

import difflib
import itertools
import types
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from statefulspark.config.document_bounds import shown
from statefulspark.errors import InvalidInputError

PROBLEMS_MAX: Final = 20
"""Problems that one error names; a person corrects these first."""
MESSAGE_MAX: Final = 4096
"""Bytes of an error's text."""
_ERRORS_MAX: Final = 1000
"""Wrong fields of which pydantic is asked for details, which take 1 KiB each."""
_FIELD_MAX: Final = 256
_NAME_MAX: Final = 64
_REFUSED = "refused"
_CONFLICTS = "conflicts"
_BOUNDS = {
    "greater_than": "more than {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "less than {lt}",
    "less_than_equal": "{le} or less",
}
_MAPPING = ("is not a mapping", "Write one indented `name: value` per line below it")
_LIST = ("is not a list", "Write one indented `- value` per line below it")
_NUMBER = ("is not a number", "Write it without quotes, for example 0.5")
_PLAIN = {
    "int": ("is not a whole number", "Write it without quotes and without a fraction, for example 2"),
    "float": _NUMBER,
    "finite": _NUMBER,
    "bool": ("is neither true nor false", "Write true or false without quotes"),
    "string": ("is not text", "Give it some text, in quotes"),
    "model": _MAPPING,
    "dict": _MAPPING,
    "tuple": _LIST,
}
"""Sentences by the prefix of pydantic's error type."""

Location = Sequence[int | str]
"""Path of a field as pydantic gives it: names as in the manifest, numbers for list positions."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        field: Path as in YAML, e.g. ``spec.job.args[0]``; inside a model's ``conflicts`` relative to that model.
        message: What is wrong, without a full stop.
        remedy: What to change, without a full stop.

    Each is cut, and control characters are escaped: the text ends in terminals, events and statuses, and names come from the document.
    """

    field: str
    message: str
    remedy: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "field", shown(self.field, _FIELD_MAX))
        object.__setattr__(self, "message", shown(self.message, MESSAGE_MAX))

    def __str__(self) -> str:
        return f"{self.field}: {self.message}. {self.remedy}"


def refused(message: str, remedy: str) -> PydanticCustomError:
    """Return the error that a field's validator raises; ``message`` must not repeat what could be secret."""
    return PydanticCustomError(_REFUSED, "{message}. {remedy}", {"message": message, "remedy": remedy})


def conflicting(problems: Iterable[Problem]) -> PydanticCustomError:
    """Return the error that stands for several fields of one model that do not go together."""
    return PydanticCustomError(_CONFLICTS, "fields do not go together", {"problems": tuple(problems)})


def as_invalid_input(error: ValidationError, model: type[BaseModel]) -> InvalidInputError:
    """Return one error with a sentence for each problem that pydantic found.

    Args:
        error: What validation of ``model`` raised.
        model: The outermost model, to find the names that could have been meant.
    """
    return sentences(problems_of(error, model))


def problems_of(error: ValidationError, model: type[BaseModel]) -> tuple[Problem, ...]:
    """Return the first problems that pydantic found in ``model``, the outermost one."""
    if error.error_count() > _ERRORS_MAX:
        return (Problem("manifest", f"has {error.error_count()} wrong fields", "Compare it with the documentation of the fields"),)
    return tuple(itertools.islice(_problems(error, model), PROBLEMS_MAX + 1))


def problem_of(error: InvalidInputError) -> Problem:
    """Return an error as a problem of the manifest."""
    return Problem(error.field or "manifest", error.message.strip(), error.remedy or "Correct it")


def sentences(problems: Sequence[Problem]) -> InvalidInputError:
    """Return one error with a sentence for each of ``problems``, at least one, as far as they fit in a message."""
    if len(problems) == 1:
        return InvalidInputError(problems[0].message, field=problems[0].field, remedy=problems[0].remedy)
    text = f"{len(problems)} fields are wrong:" if len(problems) <= PROBLEMS_MAX else f"more than {PROBLEMS_MAX} fields are wrong, such as:"
    for problem in problems[:PROBLEMS_MAX]:
        text = f"{text}\n  {problem}"
    return InvalidInputError(shown(text, MESSAGE_MAX))


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """Return the remedy for an unknown word: the nearest known one, or the list."""
    names, wrong = sorted(known), wrong[:_NAME_MAX]
    folded = {name.replace("_", "").replace("-", "").lower(): name for name in names}
    exact = folded.get(wrong.replace("_", "").replace("-", "").lower())
    near = [exact] if exact else difflib.get_close_matches(wrong, names, n=1, cutoff=0.6)
    return f"Did you mean {near[0]}?" if near else f"Use one of: {', '.join(names)}"


def _problems(error: ValidationError, model: type[BaseModel]) -> Iterator[Problem]:
    for details in error.errors(include_url=False):
        kind, location = details["type"], details["loc"]
        if kind == "default_factory_not_called":
            continue  # follows from another field's problem, which is reported itself
        if kind == _CONFLICTS:
            for problem in details["ctx"]["problems"]:
                yield Problem(_path((*location, *problem.field.split("."))), problem.message, problem.remedy)
        else:
            yield Problem(_path(location), *_sentence(details, model))


def _path(location: Location) -> str:
    text = ""
    for part in location:
        if part == "[key]":
            continue
        text += f"[{part}]" if isinstance(part, int) else f".{shown(part, _NAME_MAX)}"
    return text.removeprefix(".") or "manifest"


def _sentence(details: ErrorDetails, model: type[BaseModel]) -> tuple[str, str]:
    """Return message and remedy of one finding."""
    context: dict[str, Any] = details.get("ctx", {})
    match details["type"]:
        case "refused":
            return context["message"], context["remedy"]
        case "missing":
            description = _description(model, details["loc"])
            return "is missing", f"Add it: {description}" if description else "Add it"
        case "extra_forbidden":
            return "is not a field", did_you_mean(str(details["loc"][-1]), _names(_model_at(model, details["loc"][:-1])))
        case "enum" | "literal_error":
            known = [word.strip("'") for word in context["expected"].replace(" or ", ", ").split(", ")]
            given = details["input"]
            short = isinstance(given, str) and len(given) <= 40
            return f"{given!r} is not known" if short else "is not known", did_you_mean(str(given) if short else "", known)
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal" as kind:
            return f"{details['input']} is out of bounds", f"Use {_BOUNDS[kind].format(**context)}"
        case "string_pattern_mismatch" if context["pattern"].endswith("://"):
            return (
                "is not a storage URL: a relative directory would be another one for each process",
                "Write file:/// and the absolute path, or s3://bucket/prefix",
            )
        case "string_pattern_mismatch":
            return "has characters that are not allowed here", _description(model, details["loc"]) or f"It must match {context['pattern']}"
        case "string_too_long":
            return "is too long", f"Use at most {context['max_length']} characters"
        case kind if (plain := _PLAIN.get(kind.split("_")[0])) is not None:
            return plain
        case _:
            return details["msg"][:1].lower() + details["msg"][1:], _description(model, details["loc"]) or "See the documentation"


def _description(model: type[BaseModel], location: Location) -> str | None:
    """Return the description of the field at ``location``, without its full stop."""
    owner = _model_at(model, location[:-1])
    field = next((each for name, each in owner.model_fields.items() if location[-1] in {each.alias, name}), None) if owner else None
    return field.description.rstrip(".") if field and field.description else None


def _names(model: type[BaseModel] | None) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()] if model else []


def _model_at(model: type[BaseModel] | None, location: Location) -> type[BaseModel] | None:
    """Return the model that holds the field at ``location``, following the names of the manifest."""
    for part in location:
        if model is None:
            return None
        field = next((each for name, each in model.model_fields.items() if part in {each.alias, name}), None)
        model = _model_in(field.annotation) if field else None
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in {Union, types.UnionType}:
        return next((found for each in get_args(annotation) if (found := _model_in(each))), None)
    return None
