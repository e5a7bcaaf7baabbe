"""Messages between driver, slots and exchange tasks: frozen dataclasses in Python, JSON on the wire.

pydantic converts them, because messages carry objects that are its models already (`ChangelogRef`, `SlotState`), and because it is faster than
``json`` with dicts. All processes of a job are of one release, so a member that is missing, unknown or of another type is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar, get_args

from pydantic import ConfigDict, PlainSerializer, PlainValidator, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from statefulspark.errors import InvalidInputError, StatefulSparkError
from statefulspark.rpc.error_codes import error_body, error_of

_CONFIG = ConfigDict(extra="forbid", strict=True, ser_json_inf_nan="constants", ser_json_bytes="base64", val_json_bytes="base64")
_REMEDY = "Run the driver and all executors from one release of statefulspark"


class Message:
    """Base of all messages; each is a frozen dataclass."""

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG


Answer = TypeVar("Answer")
"""The answer to a request: a message, one of several messages, or None."""
Decoded = TypeVar("Decoded")


class Request(Message, Generic[Answer]):
    """Base of messages that are answered: ``class Begin(Request[BeginAnswer | Wait])``. The name of the class is that of the action."""

    __slots__ = ()

    @classmethod
    def served_by(cls, run: Callable[[Self], Answer]) -> Action:
        """Return the action of a server that answers these requests with ``run``."""
        return Action(request=cls, run=run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One kind of request that a server answers."""

    request: type[Request[Any]]
    run: Callable[[Any], Any]

    @property
    def name(self) -> str:
        """The name by which callers ask for it."""
        return self.request.__name__

    def answer(self, body: bytes) -> bytes:
        """Answer an encoded request.

        Raises:
            InvalidInputError: It is not such a request.
        """
        return encode(self.run(decode(body, self.request)), answer_type(self.request))


def encode(message: object, kind: Any = None) -> bytes:
    """Return a message as JSON.

    Args:
        message: The message.
        kind: Its type, where that is not just its class.

    Raises:
        InvalidInputError: A text of it is not Unicode.
    """
    exact: Any = kind if kind is not None else type(message)
    try:
        return _adapter(exact).dump_json(message)
    except PydanticSerializationError:
        raise InvalidInputError("a text is not Unicode", field=type(message).__name__, remedy="Use valid Unicode in names") from None


def decode(body: bytes, kind: type[Decoded]) -> Decoded:
    """Read a message of type ``kind``.

    Raises:
        InvalidInputError: It is not one; the text names the message and the member.
    """
    exact: Any = kind
    try:
        message: Decoded = _adapter(exact).validate_json(body)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
        member = ".".join(part for part in map(str, problem["loc"]) if part.isidentifier())[:100]
        name = getattr(kind, "__name__", str(kind))
        field = f"{name}.{member}" if member else name
        raise InvalidInputError(_PROBLEMS.get(problem["type"], "does not fit this release"), field=field, remedy=_REMEDY) from None
    return message


_PROBLEMS: Mapping[str, str] = {
    "missing": "is missing",
    "unexpected_keyword_argument": "is unknown to this release",
    "json_invalid": "is not JSON",
}


def answer_type(request: type[Request[Answer]]) -> Any:
    """The type of the answers to ``request``."""
    return get_args(request.__orig_bases__[0])[0]  # type: ignore[attr-defined]


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    own = isinstance(kind, type) and issubclass(kind, Message)
    return TypeAdapter(kind) if own else TypeAdapter(kind, config=_CONFIG)


def _error_from_text(text: object) -> StatefulSparkError:
    error = error_of(json.loads(str(text)))
    if error is None:
        raise ValueError("unknown error code")
    return error


# As ASCII text within the message: what an error quotes, such as the name of a file, need not be Unicode.
RemoteError = Annotated[
    StatefulSparkError,
    PlainValidator(_error_from_text),
    PlainSerializer(lambda error: json.dumps(error_body(error)), return_type=str),
]
"""An error of our tree, raised again on the other side as the same class."""
