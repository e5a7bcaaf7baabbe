"""Payloads: many encoded values in one buffer, so that numpy decodes them together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np

Octets = np.ndarray[Any, np.dtype[np.uint8]]
Integers = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]

_NULL: Final = 0xFFFFFFFF
"""In place of the length of a field that is None."""
_LENGTH_BYTES: Final = 4
_GATHERED_BYTES: Final = 64
"""Payloads that are longer than this on average are copied one by one: an index per byte would take more memory than they do."""


@dataclass(frozen=True, slots=True)
class Payloads:
    """Encoded values of one type, a row each.

    Attributes:
        data: The buffer.
        starts: Where the payload of each row begins.
        ends: Where it ends.
        valid: False where the row is None; start and end then mean nothing.
    """

    data: Octets
    starts: Integers
    ends: Integers
    valid: Flags

    @classmethod
    def of(cls, values: Sequence[bytes]) -> Self:
        """Return the payloads of a list."""
        ends = np.cumsum(np.fromiter(map(len, values), np.int64, len(values)))
        starts = np.concatenate((np.zeros(min(1, len(ends)), np.int64), ends[:-1]))
        return cls(np.frombuffer(b"".join(values), np.uint8), starts, ends, np.ones(len(values), np.bool_))

    def __len__(self) -> int:
        return len(self.starts)

    def without(self, prefix_bytes: int | Integers) -> Payloads:
        """Return the payloads without their first bytes.

        Raises:
            ValueError: One is shorter.
        """
        starts = self.starts + prefix_bytes
        if bool(np.any((starts > self.ends) & self.valid)):
            raise ValueError("a payload is too short")
        return Payloads(self.data, starts, self.ends, self.valid)

    def up_to(self, ends: Integers) -> Payloads:
        """Return the payloads with other ends, none of which is later."""
        return Payloads(self.data, self.starts, ends, self.valid)

    def where(self, valid: Flags) -> Payloads:
        """Return the payloads with fewer valid rows."""
        return Payloads(self.data, self.starts, self.ends, self.valid & valid)

    def numbers(self, code: str) -> np.ndarray[Any, Any]:
        """Return the first bytes of each row as a big-endian number of numpy's type ``code``; 0 where the row is None.

        Raises:
            ValueError: A payload is shorter.
        """
        big_endian = np.dtype(code).newbyteorder(">")
        starts = self.starts[self.valid]
        if bool(np.any(starts + big_endian.itemsize > self.ends[self.valid])):
            raise ValueError("a payload is too short")
        gathered = self.data[starts[:, None] + np.arange(big_endian.itemsize)]
        found: np.ndarray[Any, Any] = gathered.view(big_endian).reshape(-1).astype(np.dtype(code))
        if len(found) == len(self):
            return found
        numbers = np.zeros(len(self), np.dtype(code))
        numbers[self.valid] = found
        return numbers

    def check_width(self, width: int) -> None:
        """Raise ValueError unless every payload has ``width`` bytes."""
        if bool(np.any((self.ends - self.starts != width) & self.valid)):
            raise ValueError(f"a payload has not {width} bytes")

    def lengths(self) -> Integers:
        """Return the length of each payload, 0 where the row is None."""
        lengths: Integers = np.where(self.valid, self.ends - self.starts, 0)
        return lengths

    def compact(self) -> tuple[Octets, Integers]:
        """Return the bytes of all payloads without gaps, and the offset of each, with one more at the end."""
        lengths = self.lengths()
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
        total = int(offsets[-1])
        if total > _GATHERED_BYTES * len(self):
            return np.frombuffer(b"".join(each for each in self.to_list() if each is not None), np.uint8), offsets
        places = np.arange(total) + np.repeat(self.starts - offsets[:-1], lengths)
        return self.data[places], offsets

    def to_list(self) -> list[bytes | None]:
        """Return the payloads one by one."""
        data = self.data.tobytes()
        rows = zip(self.starts.tolist(), self.ends.tolist(), self.valid.tolist(), strict=True)
        return [data[start:end] if valid else None for start, end, valid in rows]

    def fields(self, count: int) -> tuple[list[Payloads], Integers]:
        """Split every payload into fields, each after its length.

        Returns:
            The fields, and how many bytes are left over in each row.

        Raises:
            ValueError: A field is longer than the payload.
        """
        at, found = self, []
        for _ in range(count):
            lengths = at.numbers("u4").astype(np.int64)
            given = self.valid & (lengths != _NULL)
            starts = at.starts + _LENGTH_BYTES
            ends = starts + np.where(given, lengths, 0)
            if bool(np.any((ends > self.ends) & self.valid)):
                raise ValueError("a field is longer than the value it is part of")
            found.append(Payloads(self.data, starts, ends, given))
            at = Payloads(self.data, ends, self.ends, self.valid)
        return found, np.where(self.valid, self.ends - at.starts, 0)

    def items(self, per_element: int = 1) -> tuple[Integers, Payloads]:
        """Split every payload, which begins with a count, into its elements.

        Args:
            per_element: Items of one element: 2 for the entries of a map.

        Returns:
            The number of elements of each row, and the items of all rows.

        Raises:
            ValueError: A payload is damaged.
        """
        data = self.data.tobytes()
        counts, starts, ends, valid = [], [], [], []
        for start, end, given in zip(self.starts.tolist(), self.ends.tolist(), self.valid.tolist(), strict=True):
            count, at = 0, start + _LENGTH_BYTES
            if given:
                if at > end:
                    raise ValueError("a list is too short")
                count = int.from_bytes(data[start:at], "big")
                for _ in range(count * per_element):
                    length = int.from_bytes(data[at : at + _LENGTH_BYTES], "big")
                    at += _LENGTH_BYTES
                    starts.append(at)
                    valid.append(length != _NULL)
                    at += length if length != _NULL else 0
                    ends.append(at)
                    if at > end:
                        raise ValueError("an element is longer than the list it is part of")
                if at != end:
                    raise ValueError("trailing bytes")
            counts.append(count)
        items = Payloads(self.data, np.array(starts, np.int64), np.array(ends, np.int64), np.array(valid, np.bool_))
        return np.array(counts, np.int64), items
