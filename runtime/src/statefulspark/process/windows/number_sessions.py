"""NumberSessions: the stored bytes of one or two sessions whose contents are a number, by far the most frequent ones, as one struct each."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from statefulspark.state.encoding.values import PLAIN
from statefulspark.state.types.base import TypeInformation

__all__ = ["NumberSessions"]

_FIELD: Final = 8
"""Bytes of start and of end."""
_U32: Final = 4


class NumberSessions:
    """Packs and unpacks ``LIST(TUPLE(LONG, LONG, number))`` with one or two elements.

    Other values of the type have other lengths: each session takes as much as here, or less by its number if that is None.

    Args:
        number: Format of the number in `struct`, a letter.

    Attributes:
        unpack_one: Returns start, end and number of one session's bytes.
        one_bytes: Length of these.
    """

    def __init__(self, number: str) -> None:
        size_bytes = struct.calcsize(f">{number}")
        tuple_bytes = 3 * _U32 + 2 * _FIELD + size_bytes
        self._middle = struct.pack(">I", _FIELD)
        self._tail = struct.pack(">I", size_bytes)
        self._begin = struct.pack(">II", tuple_bytes, _FIELD)
        self._head = struct.pack(">BI", PLAIN, 1) + self._begin
        self._head_two = struct.pack(">BI", PLAIN, 2) + self._begin
        self._one = struct.Struct(f">{len(self._head)}sq4sq4s{number}")
        self._two = struct.Struct(f">{len(self._head)}sq4sq4s{number}{len(self._begin)}sq4sq4s{number}")
        one = struct.Struct(f">{len(self._head)}xq4xq4x{number}")
        self.unpack_one: Callable[[bytes], tuple[int, int, Any]] = one.unpack
        self.one_bytes = one.size

    @staticmethod
    def of(contents: TypeInformation) -> NumberSessions | None:
        """Return None if contents of this type are no numbers."""
        # A struct packs None as the BOOLEAN False.
        return None if contents.struct_format in {None, "?"} else NumberSessions(str(contents.struct_format))

    def packed(self, sessions: Sequence[tuple[int, int, Any]]) -> bytes | None:
        """Return the bytes of one or two sessions; None for others, and for numbers that do not fit or are None."""
        middle, tail = self._middle, self._tail
        try:
            if len(sessions) == 1:
                ((start, end, number),) = sessions
                return self._one.pack(self._head, start, middle, end, tail, number)
            if len(sessions) == 2:
                (start, end, number), (start2, end2, number2) = sessions
                return self._two.pack(self._head_two, start, middle, end, tail, number, self._begin, start2, middle, end2, tail, number2)
        except struct.error:
            pass
        return None

    def unpacked(self, data: bytes) -> tuple[tuple[int, int, Any], ...] | None:
        """Return the sessions of bytes that `packed` has made; None for others."""
        if len(data) == self.one_bytes:
            head, start, middle, end, tail, number = self._one.unpack(data)
            if (head, middle, tail) == (self._head, self._middle, self._tail):
                return ((start, end, number),)
        elif len(data) == self._two.size:
            head, start, middle, end, tail, number, begin, start2, middle2, end2, tail2, number2 = self._two.unpack(data)
            expected = (self._head_two, self._middle, self._tail, self._begin, self._middle, self._tail)
            if (head, middle, tail, begin, middle2, tail2) == expected:
                return ((start, end, number), (start2, end2, number2))
        return None
