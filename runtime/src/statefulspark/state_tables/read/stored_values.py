"""Takes version and expiry off stored values, so that their payloads can be decoded together."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from statefulspark.checkpoint.inspect.decoding import is_pickled
from statefulspark.errors import CorruptDataError
from statefulspark.state.encoding.layout import StateInfo
from statefulspark.state.encoding.segments import Scan, whole_list
from statefulspark.state.encoding.values import EXPIRING, EXPIRING_LIST, EXPIRING_NONE, NONE, PLAIN, unreadable
from statefulspark.state.evolution.compatibility import without_defaults
from statefulspark.state.evolution.list_reader import reader_of
from statefulspark.state.types.composites import ListTypeInfo
from statefulspark.state_tables.read.payloads import Flags, Integers, Payloads

_EXPIRY_BYTES: Final = 8
_PLAIN: Final = bytes([PLAIN])
_VERSIONS: Final = (PLAIN, EXPIRING, NONE, EXPIRING_NONE)


@dataclass(frozen=True, slots=True)
class Values:
    """The values of some entries.

    Attributes:
        payloads: One per entry that is kept; not valid for None.
        expires_ms: When each expires; 0 where ``expires`` is False.
        expires: True where the value expires.
        kept: Of the entries that were given, those that are kept.
    """

    payloads: Payloads
    expires_ms: Integers
    expires: Flags
    kept: Flags


class StoredValues:
    """Reads the stored values of one state.

    Args:
        info: The state.
        until_ms: Values that expire at this time or before are left out; None keeps them as long as they are stored.
        unpickle: As for `EntryDecoder`.

    Attributes:
        typed: False if payloads are of the types of several schemas, because converting them would unpickle something.
    """

    def __init__(self, info: StateInfo, *, until_ms: int | None, unpickle: bool) -> None:
        self.typed = unpickle or not _would_unpickle(info)
        self._is_list = info.kind == "list"
        self._until_ms = until_ms
        self._where = f"state {info.name!r} of uid {info.uid!r}"
        self._reader = reader_of(info, converts=self.typed)

    def read(self, keys: list[bytes], values: list[bytes], scan: Scan) -> Values:
        """Read the values of entries.

        Args:
            keys: Store keys, of lists without those of segments.
            values: What is stored there.
            scan: Of the store that has the segments of long lists.

        Raises:
            CorruptDataError: A value is damaged, or of a version that this release does not know.
            InvalidInputError: A value does not fit the type to which the state's declaration returned.
        """
        return self._lists(keys, values, scan) if self._is_list else self._values(values)

    def _values(self, values: list[bytes]) -> Values:
        kept = np.ones(len(values), np.bool_)
        if self._reader is not None:
            current = list(map(self._reader.current, values))
            kept = np.fromiter((value is not None for value in current), np.bool_, len(current))
            values = [value for value in current if value is not None]
        stored = Payloads.of(values)
        if bool(np.any(stored.starts >= stored.ends)):
            raise CorruptDataError("damaged value", path=self._where)
        versions = stored.numbers("u1")
        unknown = ~np.isin(versions, _VERSIONS)
        if bool(np.any(unknown)):
            raise unreadable(values[int(np.argmax(unknown))], self._where)
        expires = np.isin(versions, (EXPIRING, EXPIRING_NONE))
        present = np.isin(versions, (PLAIN, EXPIRING))
        after_version = stored.without(1)
        expires_ms = after_version.where(expires).numbers("i8")
        payloads = after_version.without(np.where(expires, _EXPIRY_BYTES, 0)).where(present)
        if bool(np.any((payloads.starts != payloads.ends) & ~present)):
            raise CorruptDataError("damaged value", path=self._where)
        return self._alive(payloads, expires_ms, expires, kept)

    def _alive(self, payloads: Payloads, expires_ms: Integers, expires: Flags, kept: Flags) -> Values:
        if self._until_ms is None or not bool(np.any(expires)):
            return Values(payloads, expires_ms, expires, kept)
        alive = ~expires | (expires_ms > self._until_ms)
        still = kept.copy()
        still[kept] = alive
        left = Payloads(payloads.data, payloads.starts[alive], payloads.ends[alive], payloads.valid[alive])
        return Values(left, expires_ms[alive], expires[alive], still)

    def _lists(self, keys: list[bytes], values: list[bytes], scan: Scan) -> Values:
        found: list[bytes] = []
        expiries: list[int | None] = []
        kept = np.zeros(len(keys), np.bool_)
        for index, (key, value) in enumerate(zip(keys, values, strict=True)):
            short = self._reader is None and value[:1] == _PLAIN
            whole = value if short else whole_list(key, value, scan, self._where, self._reader)
            if whole is None:
                continue
            expiry_ms, payload = (None, whole[1:]) if whole[:1] == _PLAIN else self._expiring_list(whole)
            if payload is not None:
                kept[index] = True
                found.append(payload)
                expiries.append(expiry_ms)
        expires = np.fromiter((each is not None for each in expiries), np.bool_, len(expiries))
        expires_ms = np.fromiter((each or 0 for each in expiries), np.int64, len(expiries))
        return Values(Payloads.of(found), expires_ms, expires, kept)

    def _expiring_list(self, whole: bytes) -> tuple[int | None, bytes | None]:
        """Return when the last element expires, and the list without expiries; None if no element is left."""
        if whole[:1] != bytes([EXPIRING_LIST]):
            raise unreadable(whole, self._where)
        try:
            stored = ListTypeInfo.split(whole[1:])
        except (ValueError, struct.error) as error:
            raise CorruptDataError("damaged list", path=self._where) from error
        if any(len(element) < _EXPIRY_BYTES for element in stored):
            raise CorruptDataError("damaged list", path=self._where)
        elements = [(int.from_bytes(element[:_EXPIRY_BYTES], "big", signed=True), element[_EXPIRY_BYTES:]) for element in stored]
        left = [element for element in elements if self._until_ms is None or element[0] > self._until_ms]
        if not left and stored:
            return None, None
        return max((expiry_ms for expiry_ms, _ in left), default=None), ListTypeInfo.join([element for _, element in left])


def _would_unpickle(info: StateInfo) -> bool:
    """True if converting values from schema to schema would unpickle something; schemas of one type need no conversion."""
    types: list[Any] = [without_defaults(schema.type) for schema in info.schemas]
    return any(is_pickled(each) for each in types) and any(each != types[0] for each in types)
