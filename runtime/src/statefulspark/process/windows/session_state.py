"""The sessions of a key with their contents, as one value."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from statefulspark.process.functions import RuntimeContext
from statefulspark.state.api.descriptors import ValueStateDescriptor
from statefulspark.state.api.names import RuntimeName
from statefulspark.state.encoding.layout import JOINT_SESSIONS
from statefulspark.state.encoding.values import ENCODED_BYTES, PLAIN, Encoded
from statefulspark.state.tables.value import KeyedValueState
from statefulspark.state.types.base import TypeInformation
from statefulspark.state.types.composites import ListTypeInfo, TupleTypeInfo
from statefulspark.state.types.types import Types

__all__ = ["Session", "SessionsTypeInfo", "sessions_state"]

Session = tuple[int, int, Any]
"""Start and end of its window, and its contents: a value that cannot change, or its bytes as `CombinedContents` keeps them."""

_COUNT: Final = struct.Struct(">I")
_HEAD: Final = struct.Struct(">IIqIqI")
_START_FORMAT: Final = ">BI"
"""Version of the value and number of sessions."""
_SESSION_FORMAT: Final = "IIqIqI"
"""Length of the tuple, then its first two fields and the length of the third, each field with its length."""
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
        # One or two sessions whose contents are a number, by far the most frequent values, are one struct each.
        # A struct packs None as the BOOLEAN False.
        number = None if contents.struct_format == "?" else contents.struct_format
        self._one = None if number is None else struct.Struct(_START_FORMAT + _SESSION_FORMAT + number)
        self._two = None if number is None else struct.Struct(_START_FORMAT + 2 * (_SESSION_FORMAT + number))
        # Behind its version byte, the count 1, the length of the tuple, and those of its three fields.
        self._contents_bytes = 0 if self._one is None else self._one.size - _FIXED - 9

    def packed(self, sessions: Sequence[Session]) -> bytes | None:
        """Return the stored bytes of one or two sessions whose contents are numbers; None for others."""
        one, two, size = self._one, self._two, self._contents_bytes
        if one is None or two is None:
            return None
        length = _FIXED + size
        try:
            if len(sessions) == 1:
                ((start, end, entry),) = sessions
                return one.pack(PLAIN, 1, length, _FIELD, start, _FIELD, end, size, entry)
            if len(sessions) == 2:
                (start, end, entry), (start2, end2, entry2) = sessions
                first, second = (length, _FIELD, start, _FIELD, end, size, entry), (length, _FIELD, start2, _FIELD, end2, size, entry2)
                return two.pack(PLAIN, 2, *first, *second)
        except struct.error:
            pass  # None, or a number that is too large, which the type refuses
        return None

    def decoder(self, decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        """See `TypeInformation.decoder`."""
        one, two = self._one, self._two
        if one is None or two is None:
            return decode
        size = self._contents_bytes
        length = _FIXED + size
        expected = (PLAIN, 1, length, _FIELD, _FIELD, size)
        expected_two = (PLAIN, 2, length, _FIELD, _FIELD, size, length, _FIELD, _FIELD, size)

        def decode_packed(data: bytes) -> Any:
            if len(data) == one.size:
                version, count, of_tuple, first, start, second, end, last, entry = one.unpack(data)
                if (version, count, of_tuple, first, second, last) == expected:
                    return ((start, end, entry),)
            elif len(data) == two.size:
                version, count, l1, a1, start, b1, end, c1, entry, l2, a2, start2, b2, end2, c2, entry2 = two.unpack(data)
                if (version, count, l1, a1, b1, c1, l2, a2, b2, c2) == expected_two:
                    return ((start, end, entry), (start2, end2, entry2))
            return decode(data)

        return decode_packed

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
