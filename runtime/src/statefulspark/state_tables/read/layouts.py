"""Row schemas of state tables, by kind of state."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from statefulspark.checkpoint.formats.pipeline import StepKey
from statefulspark.errors import CorruptDataError, InvalidInputError
from statefulspark.state.encoding.layout import StateInfo
from statefulspark.state.encoding.segments import Scan, is_segment
from statefulspark.state.encoding.values import PLAIN, unreadable
from statefulspark.state.operator.entries import OPERATOR_BROADCAST, RAW_OPERATOR, is_operator_state
from statefulspark.state.tables.raw_keyed import RAW_KEYED, is_raw_header
from statefulspark.state.timers import TIMER_KINDS
from statefulspark.state.types.arrow_types import AS_DECLARED, Conversions, arrow_type
from statefulspark.state_tables.read.arrays import array_of, binary_array
from statefulspark.state_tables.read.columns import KeyColumns, ValueColumns, distinct
from statefulspark.state_tables.read.payloads import Integers, Payloads
from statefulspark.state_tables.read.stored_values import StoredValues
from statefulspark.state_tables.read.window_keys import WindowKeys

ROWS_MAX: Final = 16_384
"""Rows of a batch."""
BATCH_BYTES: Final = 4 << 20
"""Stored bytes that a batch should have."""

_KEY_GROUP: Final = pa.field("key_group", pa.int32())
_SLOT: Final = pa.field("slot", pa.int32())
_EXPIRES: Final = pa.field("expires_ms", pa.int64())
_SIGN: Final = np.uint64(1 << 63)
_TIMER_BYTES: Final = 12
"""Key group, state id and time of a timer's store key."""
_ENTRY_BYTES: Final = 8
"""Key group, state id and length of the key of an entry's store key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """Options of a state's table.

    Attributes:
        until_ms: Values that expire at this time or before are left out; None shows them as long as they are stored.
        with_expiry: Add the column ``expires_ms``.
        conversions: Of types that have no one Arrow type.
    """

    until_ms: int | None
    with_expiry: bool = False
    conversions: Conversions = AS_DECLARED


class Layout(ABC):
    """Makes record batches of stored entries.

    Attributes:
        info: The state.
        schema: Of the batches.
        has_keys: True if entries have keys.
        has_parts: True if some entries are parts of others (`is_part`).
    """

    def __init__(self, info: StateInfo, fields: list[pa.Field], *, has_keys: bool = False, has_parts: bool = False) -> None:
        self.info = info
        self.schema = distinct(fields)
        self.has_keys = has_keys
        self.has_parts = has_parts
        self._where = f"state {info.name!r} of uid {info.uid!r}"

    def is_part(self, key: bytes, value: bytes) -> bool:  # noqa: ARG002  for kinds whose entries have parts
        """Return True if an entry is a part of another one and makes no row of its own."""
        return False

    def batch(self, keys: list[bytes], values: list[bytes], scan: Scan) -> pa.RecordBatch:
        """Return the rows of entries.

        Args:
            keys: Store keys; of operator state the slot, and of broadcast state the keys of the map.
            values: What is stored there.
            scan: Of the store, for the segments of long lists.

        Raises:
            CorruptDataError: Bytes do not fit the state's types.
            InvalidInputError: A value does not fit the column; the message names the remedy.
        """
        with self._named_errors():
            return pa.RecordBatch.from_arrays(self._arrays(keys, values, scan), schema=self.schema)

    @abstractmethod
    def _arrays(self, keys: list[bytes], values: list[bytes], scan: Scan) -> list[pa.Array]:
        """Return an array per column."""

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except InvalidInputError as error:
            raise InvalidInputError(error.message, field=self._where, remedy=error.remedy) from error
        except CorruptDataError:
            raise
        except (ValueError, IndexError, OverflowError, struct.error) as error:
            raise CorruptDataError(f"damaged entry: {error}", path=self._where) from error


class EntryLayout(Layout):
    """Values, lists and entries of maps with their keys; entries of windows with the window."""

    def __init__(self, info: StateInfo, step: StepKey | None, options: TableOptions) -> None:
        conversions = options.conversions
        self._values = StoredValues(info, until_ms=options.until_ms, unpickle=conversions.unpickle)
        self._keys = KeyColumns(info, step, conversions)
        self._windows = WindowKeys.of(info)
        self._conversions = conversions
        self._with_expiry = options.with_expiry
        self._is_map = info.kind == "map"
        user_fields = [] if not self._is_map else [pa.field("map_key", arrow_type(info.type["key"], conversions))]
        if self._windows is not None:
            user_fields = self._windows.fields()
        self._columns = ValueColumns(info.type["value"] if self._is_map else info.type, conversions, typed=self._values.typed)
        expiry = [_EXPIRES] if options.with_expiry else []
        fields = [_KEY_GROUP, *self._keys.fields, *user_fields, *self._columns.fields, *expiry]
        super().__init__(info, fields, has_keys=True, has_parts=info.kind == "list")

    def is_part(self, key: bytes, value: bytes) -> bool:  # noqa: ARG002
        return is_segment(value)

    def _arrays(self, keys: list[bytes], values: list[bytes], scan: Scan) -> list[pa.Array]:
        read = self._values.read(keys, values, scan)
        if not bool(read.kept.all()):
            keys = [key for key, kept in zip(keys, read.kept.tolist(), strict=True) if kept]
        stored = Payloads.of(keys)
        ends = stored.starts + _ENTRY_BYTES + stored.without(4).numbers("u4").astype(np.int64)
        if bool(np.any(ends > stored.ends)):
            raise ValueError("the key is longer than the store key")
        arrays = [_key_groups(stored), *self._keys.arrays(stored.without(_ENTRY_BYTES).up_to(ends))]
        user_keys = Payloads(stored.data, ends, stored.ends, stored.valid)
        if self._windows is not None:
            arrays += self._windows.arrays(user_keys)
        elif self._is_map:
            arrays.append(array_of(self.info.type["key"], user_keys, self._conversions))
        arrays += self._columns.arrays(read.payloads)
        if self._with_expiry:
            arrays.append(pa.array(read.expires_ms, mask=~read.expires))
        return arrays


class TimerLayout(Layout):
    """Timers with their keys; ``timestamp_ms`` says when a timer is due."""

    def __init__(self, info: StateInfo, step: StepKey | None, options: TableOptions) -> None:
        self._keys = KeyColumns(info, step, options.conversions)
        fields = [_KEY_GROUP, *self._keys.fields, pa.field("timestamp_ms", pa.int64())]
        super().__init__(info, fields, has_keys=True)

    def _arrays(self, keys: list[bytes], values: list[bytes], scan: Scan) -> list[pa.Array]:  # noqa: ARG002  timers have no values
        stored = Payloads.of(keys)
        times: Integers = (stored.without(4).numbers("u8") ^ _SIGN).view(np.int64)
        return [_key_groups(stored), *self._keys.arrays(stored.without(_TIMER_BYTES)), pa.array(times)]


class RawKeyedLayout(Layout):
    """Chunks of the streams of raw keyed state, numbered from 1 in each key group."""

    def __init__(self, info: StateInfo) -> None:
        super().__init__(info, [_KEY_GROUP, pa.field("chunk", pa.int64()), pa.field("data", pa.binary())], has_parts=True)

    def is_part(self, key: bytes, value: bytes) -> bool:  # noqa: ARG002
        return is_raw_header(key)

    def _arrays(self, keys: list[bytes], values: list[bytes], scan: Scan) -> list[pa.Array]:  # noqa: ARG002  no lists
        stored = Payloads.of(keys)
        numbers = stored.without(_ENTRY_BYTES)
        numbers.check_width(4)
        return [_key_groups(stored), pa.array(numbers.numbers("u4").astype(np.int64)), _plain(values, self._where)]


class OperatorLayout(Layout):
    """Elements of operator state with the slot that has them; of raw operator state, the partitions."""

    def __init__(self, info: StateInfo, options: TableOptions) -> None:
        self._values = StoredValues(info, until_ms=None, unpickle=options.conversions.unpickle)
        self._columns: ValueColumns | None = None
        fields = [pa.field("data", pa.binary())]
        if info.kind != RAW_OPERATOR:
            self._columns = ValueColumns(info.type["element"], options.conversions, typed=self._values.typed)
            fields = self._columns.fields
        super().__init__(info, [_SLOT, *fields])

    def _arrays(self, keys: list[bytes], values: list[bytes], scan: Scan) -> list[pa.Array]:
        slots = pa.array(Payloads.of(keys).numbers("u2").astype(np.int32))
        if self._columns is None:
            return [slots, _plain(values, self._where)]
        return [slots, *self._columns.arrays(self._values.read(keys, values, scan).payloads)]


class BroadcastLayout(Layout):
    """Entries of broadcast state, of which every slot has the same."""

    def __init__(self, info: StateInfo, options: TableOptions) -> None:
        self._conversions = options.conversions
        self._values = StoredValues(info, until_ms=None, unpickle=options.conversions.unpickle)
        self._columns = ValueColumns(info.type["value"], options.conversions, typed=self._values.typed)
        key = pa.field("map_key", arrow_type(info.type["key"], options.conversions))
        super().__init__(info, [key, *self._columns.fields])

    def _arrays(self, keys: list[bytes], values: list[bytes], scan: Scan) -> list[pa.Array]:
        map_keys = array_of(self.info.type["key"], Payloads.of(keys), self._conversions)
        return [map_keys, *self._columns.arrays(self._values.read(keys, values, scan).payloads)]


def layout_of(info: StateInfo, step: StepKey | None, options: TableOptions) -> Layout:
    """Return the layout of a state's table.

    Args:
        info: The state.
        step: Key of its step, None if the checkpoint does not say.
        options: What the table shows.

    Raises:
        IncompatibleFormatError: A type is not known to this release.
    """
    if info.kind in TIMER_KINDS:
        return TimerLayout(info, step, options)
    if info.kind == RAW_KEYED:
        return RawKeyedLayout(info)
    if info.kind == OPERATOR_BROADCAST:
        return BroadcastLayout(info, options)
    return OperatorLayout(info, options) if is_operator_state(info) else EntryLayout(info, step, options)


def _key_groups(stored: Payloads) -> pa.Array:
    return pa.array(stored.numbers("u2").astype(np.int32))


def _plain(values: list[bytes], where: str) -> pa.Array:
    """Return values that are bytes, without their version."""
    for value in values:
        if value[:1] != bytes([PLAIN]):
            raise unreadable(value, where)
    return binary_array(Payloads.of(values).without(1))
