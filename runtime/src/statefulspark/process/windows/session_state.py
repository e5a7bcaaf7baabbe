"""The sessions of a key with their contents, as one value."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from statefulspark.process.api.functions import RuntimeContext
from statefulspark.process.windows.number_sessions import NumberSessions
from statefulspark.state.api.descriptors import ValueStateDescriptor
from statefulspark.state.api.names import RuntimeName
from statefulspark.state.encoding.layout import JOINT_SESSIONS
from statefulspark.state.encoding.values import ENCODED_BYTES, Encoded
from statefulspark.state.tables.value import KeyedValueState
from statefulspark.state.types.base import TypeInformation
from statefulspark.state.types.composites import ListTypeInfo, TupleTypeInfo
from statefulspark.state.types.types import Types

__all__ = ["Session", "SessionsTypeInfo", "sessions_state"]

Session = tuple[int, int, Any]
"""Start and end of its window, and its contents: a value that cannot change, or its bytes as `CombinedContents` keeps them."""

_COUNT: Final = struct.Struct(">I")
_HEAD: Final = struct.Struct(">IIqIqI")
_FIELD: Final = 8
_FIXED: Final = _HEAD.size - 4
"""Length of a tuple without the bytes of its third field."""
_NONE: Final = 0xFFFFFFFF
_PLAIN: Final = b"\x01"
_SESSION_BYTES: Final = 184
"""Memory of the tuple of a session with its bounds."""


class SessionsTypeInfo(ListTypeInfo):
    """A list of tuples of start, end and contents.

    The bytes are those of ``LIST(TUPLE(LONG, LONG, contents))``, and the description says so: such state evolves and is inspected as any other. In memory it is
    a tuple of `Session`, which cannot change, or its stored bytes: for few sessions these are half as large, in one piece, and need not be made when the batch ends.

    Args:
        contents: Type of the contents.
    """

    def __init__(self, contents: TypeInformation) -> None:
        super().__init__("LIST", TupleTypeInfo([Types.LONG(), Types.LONG(), contents]))
        self._contents = contents
        self._stays_decoded = contents.immutable is True
        self._bytes_each = None if contents.decoded_bytes is None else _SESSION_BYTES + contents.decoded_bytes
        self.numbers = NumberSessions.of(contents)

    def packed(self, sessions: Sequence[Session]) -> bytes | None:
        """Return the stored bytes of one or two sessions whose contents are numbers; None for others."""
        return None if self.numbers is None else self.numbers.packed(sessions)

    def decoder(self, decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        """See `TypeInformation.decoder`."""
        if self.numbers is None:
            return decode
        unpacked = self.numbers.unpacked
        return lambda data: unpacked(data) or decode(data)

    def normalize(self, value: Any) -> Any:
        """Return ``value``, which the runtime has made."""
        return value

    def encode(self, value: Any) -> bytes:
        parts = [_COUNT.pack(len(value))]
        for start, end, entry in value:
            if entry is None:
                parts.append(_HEAD.pack(_FIXED, _FIELD, start, _FIELD, end, _NONE))
                continue
            payload = entry[len(_PLAIN) :] if entry.__class__ is Encoded else self._contents.encode(entry)
            parts.append(_HEAD.pack(_FIXED + len(payload), _FIELD, start, _FIELD, end, len(payload)))
            parts.append(payload)
        return b"".join(parts)

    def decode(self, data: bytes) -> Any:
        (count,) = _COUNT.unpack_from(data)
        at, sessions = _COUNT.size, []
        for _ in range(count):
            length, first, start, second, end, size = _HEAD.unpack_from(data, at)
            at += _HEAD.size
            payload = None if size == _NONE else data[at : at + size]
            size_bytes = 0 if payload is None else size
            at += size_bytes
            if length != _FIXED + size_bytes or first != _FIELD or second != _FIELD or at > len(data):
                raise ValueError("a session of another length")
            sessions.append((start, end, self._entry(payload)))
        if at != len(data):
            raise ValueError("trailing bytes")
        return tuple(sessions)

    def _entry(self, payload: bytes | None) -> Any:
        if payload is None:
            return None
        return self._contents.decode(payload) if self._stays_decoded else Encoded(_PLAIN + payload)

    def size_of(self, value: Sequence[Session]) -> int:
        if self._bytes_each is not None and self._stays_decoded:
            return self._bytes_each * len(value)
        size_bytes = _SESSION_BYTES * len(value)
        for _, _, entry in value:
            if entry is not None:
                size_bytes += ENCODED_BYTES + len(entry) if entry.__class__ is Encoded else self._contents.size_of(entry)
        return size_bytes


def sessions_state(context: RuntimeContext, scope: str, type_: SessionsTypeInfo) -> KeyedValueState:
    """Return the state with the sessions of the current key, in order.

    Args:
        context: Of the step.
        scope: Kinds of windows and contents, part of the name of the state.
        type_: Type of the sessions.
    """
    state: Any = context.get_state(ValueStateDescriptor(RuntimeName(f"{JOINT_SESSIONS}{scope})"), type_))
    return state  # type: ignore[no-any-return]  # a value state without time to live is one
