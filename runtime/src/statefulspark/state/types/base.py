"""TypeInformation: the type of a state's values, and how to encode them.

A type encodes a value to a payload and back. The version byte and the expiry of a stored value are added by
`values.ValueCodec`, so that a payload can also be nested in another one or in a store key.

Equal values of a type have equal encodings: payloads are used as keys of map states.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Generic

from statefulspark.errors import IncompatibleFormatError, InvalidInputError
from statefulspark.state.types.type_variables import T_co

TypeJson = dict[str, Any]
"""A type as JSON, e.g. ``{"type": "LIST", "element": {"type": "LONG"}}``."""


class TypeInformation(ABC, Generic[T_co]):
    """One type of value; ``TypeInformation[int]`` to type checkers. Instances are immutable and compare by their description.

    Attributes:
        name: The name used by ``Types`` and in the JSON description.
        immutable: True when no value of the type can change after it was handed over, False when any can, None when it
            depends on the value (ask `is_immutable`). Only values that cannot change may stay decoded in a cache.
        accepted_class: The Python class whose direct instances `normalize` returns unchanged, so that a caller may skip the
            call; None if every value must be checked.
        struct_format: Format character of ``struct`` when the payload is one big-endian number, else None. A caller may then
            encode many values without a Python call for each.
        decoded_bytes: Memory that one decoded value takes, when all take about the same; None: ask `size_of`.
    """

    name: str
    immutable: bool | None = True
    accepted_class: type | None = None
    struct_format: str | None = None
    decoded_bytes: int | None = 32
    is_key: bool = True
    """True if values may be (part of) a record's key: immutable, and equal exactly when their bytes are."""

    @abstractmethod
    def normalize(self, value: Any) -> Any:
        """Return what decoding the encoded ``value`` would return, e.g. a float for an int given as DOUBLE.

        Raises:
            InvalidInputError: ``value`` is not of this type; the text says what is expected and never shows the value.
        """

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """Return the payload of ``value``.

        Raises:
            InvalidInputError: ``value`` is not of this type.
        """

    @abstractmethod
    def decode(self, data: bytes) -> Any:
        """Return a fresh value from its payload; damaged bytes raise ValueError, struct.error or IndexError."""

    def decoder(self, decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        """Return what makes values of stored bytes, which begin with a version byte: ``decode``, or a faster function for bytes that occur most."""
        return decode

    def is_immutable(self, value: Any) -> bool:
        """Tell whether this normalized ``value`` can never change."""
        del value
        return bool(self.immutable)

    def size_of(self, value: Any) -> int:
        """Return about how many bytes of memory the decoded ``value`` takes."""
        del value
        return self.decoded_bytes or 0

    def to_json(self) -> TypeJson:
        """Describe the type; `type_from_json` gives an equal type back."""
        return {"type": self.name}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypeInformation) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return f"Types.{self.name}()"


def wrong_value(type_: TypeInformation, expected: str, value: object) -> InvalidInputError:
    """Build the error of a value that is not of ``type_``; it names the value's class, never the value."""
    return InvalidInputError(f"expected {expected} for {type_!r}, got {type(value).__name__}")


Reader = Callable[[Mapping[str, Any]], TypeInformation]
_readers: dict[str, Reader] = {}


def readable(name: str, reader: Reader) -> None:
    """Announce how a type is read from its JSON description; each module of types does so for its own when imported."""
    _readers[name] = reader


def type_from_json(description: Mapping[str, Any]) -> TypeInformation:
    """Rebuild a type from `TypeInformation.to_json`.

    Raises:
        IncompatibleFormatError: The description names a type this release does not have, or lacks a part.
    """
    name = description.get("type")
    reader = _readers.get(name) if isinstance(name, str) else None
    if reader is None:
        raise IncompatibleFormatError(
            "unknown type of state", path="type description", expected=", ".join(sorted(_readers)), found=str(name)
        )
    try:
        return reader(description)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise IncompatibleFormatError(f"incomplete description of type {name}", path="type description") from error
