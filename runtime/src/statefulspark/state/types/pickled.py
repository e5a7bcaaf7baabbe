"""PICKLED_BYTE_ARRAY: any Python object, the type PyFlink uses when none is declared."""

from __future__ import annotations

import pickle
from io import BytesIO
from sys import getsizeof
from typing import Any, Final

from statefulspark.errors import InvalidInputError, type_name
from statefulspark.state.types.base import TypeInformation, readable

_PROTOCOL: Final = 5
_IMMUTABLE: Final = frozenset({int, float, bool, str, bytes, complex})


class Pickled(TypeInformation):
    """Any object that pickles, by Python's protocol 5.

    Numbers, text and bytes stay as they are in a cache; everything else is treated as changeable. As the key of a map state an
    object is found again when it pickles to the same bytes, so 1 and 1.0 are two keys.
    """

    name = "PICKLED_BYTE_ARRAY"
    immutable = None
    decoded_bytes = None
    is_key = False

    def normalize(self, value: Any) -> Any:
        return value

    def encode(self, value: Any) -> bytes:
        try:
            return _dumps_tuple(value) if value.__class__ is tuple else pickle.dumps(value, _PROTOCOL)
        except (pickle.PicklingError, TypeError, AttributeError, RecursionError, ValueError) as error:
            raise InvalidInputError(
                f"{type_name(type(value))} cannot be pickled ({type(error).__name__})", remedy="Keep plain data."
            ) from error

    def decode(self, data: bytes) -> Any:
        try:
            return pickle.loads(data)  # noqa: S301  # written by this type into the job's own store
        except (ImportError, AttributeError) as error:
            # Not damage, which checksums have ruled out: an older checkpoint would not help.
            raise InvalidInputError(
                f"a stored object cannot be unpickled ({type(error).__name__}: {_missing(error)})",
                remedy="Make its class importable under the name under which it was stored, for example by an alias where it was",
            ) from error
        except (pickle.UnpicklingError, EOFError, KeyError, TypeError) as error:
            raise ValueError(f"cannot be unpickled: {type(error).__name__}: {error}") from error

    def is_immutable(self, value: Any) -> bool:
        return value is None or value.__class__ in _IMMUTABLE

    def size_of(self, value: Any) -> int:
        return getsizeof(value)


def _missing(error: ImportError | AttributeError) -> str:
    """Return the name that was not found. The error's own text may quote data."""
    return str(error.name or "unknown")


def _dumps_tuple(value: tuple[Any, ...]) -> bytes:
    """Pickle without back references: equal tuples give equal bytes, also when one holds the same string object twice."""
    buffer = BytesIO()
    pickler = pickle.Pickler(buffer, _PROTOCOL)
    pickler.fast = True
    try:
        pickler.dump(value)
    except (RecursionError, ValueError):
        # Objects that refer to each other in a circle need back references; such a tuple is hardly anybody's key.
        return pickle.dumps(value, _PROTOCOL)
    return buffer.getvalue()


PICKLED: Final = Pickled()
readable(PICKLED.name, lambda _description: PICKLED)
