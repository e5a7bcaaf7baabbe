"""Turns rows of Arrow batches into the entries of a state."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa

from statefulspark.checkpoint.formats.pipeline import StepKey
from statefulspark.checkpoint.inspect.key_hashes import key_hash
from statefulspark.errors import InvalidInputError
from statefulspark.keygroups import key_group_of_hash
from statefulspark.process.rows.columns import python_values
from statefulspark.state.encoding.keys import KeyCodec
from statefulspark.state.encoding.layout import StateInfo, store_key
from statefulspark.state.encoding.values import EXPIRING_LIST, PLAIN, ValueCodec, join_expiry
from statefulspark.state.types.arrow_types import field_names
from statefulspark.state.types.base import TypeInformation, type_from_json
from statefulspark.state.types.composites import ListTypeInfo

Entry = tuple[bytes, bytes]
ROWS_MAX: Final = 16_384
"""Rows that are converted at once."""
EXPIRES: Final = "expires_ms"
MAP_KEY: Final = "map_key"
VALUE: Final = "value"
_EXPIRY: Final = struct.Struct(">q")


class ArrowStream(Protocol):
    """Rows that Arrow can read: a Table, a RecordBatch, a RecordBatchReader, or a DataFrame of pandas 2.2 or later."""

    def __arrow_c_stream__(self, _requested_schema: object | None = None, /) -> object:
        """Return the stream."""


def batch_reader(rows: ArrowStream) -> pa.RecordBatchReader:
    """Return a reader of rows.

    Raises:
        InvalidInputError: They are no such rows, or a column has values of several types.
    """
    if isinstance(rows, pa.RecordBatchReader):
        return rows
    try:
        return pa.RecordBatchReader.from_stream(rows)
    except (TypeError, AttributeError):
        raise InvalidInputError(
            f"Arrow cannot read {type(rows).__name__}",
            field="rows",
            remedy="Pass a pyarrow Table or RecordBatchReader, or a pandas DataFrame",
        ) from None
    except (pa.ArrowException, ValueError):
        # Arrow's message has the value.
        raise InvalidInputError("a column has values of several types", field="rows", remedy="Pass a pyarrow Table with a schema") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRows:
    """Encodes the rows of one state.

    Attributes:
        info: The state: value, reducing, aggregating, list or map.
        step: The key of its step.
        key_columns: Columns of the key.
        max_parallelism: Number of key groups.
        expires_ms: When values expire whose row does not say it, milliseconds since the epoch. Only for states with a time to live.
    """

    info: StateInfo
    step: StepKey
    key_columns: tuple[str, ...]
    max_parallelism: int
    expires_ms: int

    def check_columns(self, names: Sequence[str]) -> None:
        """Raise unless rows have the columns of the state.

        Raises:
            InvalidInputError: A column is missing, unknown or there twice; names it.
        """
        wanted = [*self.key_columns, *([MAP_KEY] if self._is_map else []), *self._value_columns]
        for name in wanted:
            if names.count(name) != 1:
                raise InvalidInputError(
                    f"expected one column {name!r}", field="rows", remedy=f"The state has the columns {', '.join(wanted)}"
                )
        optional = [EXPIRES] if self.info.ttl_ms is not None else []
        for name in names:
            if name not in (*wanted, *optional):
                raise InvalidInputError(
                    f"the column {name!r} is no part of the state",
                    field="rows",
                    remedy=f"Drop it. The state has {', '.join([*wanted, *optional])}",
                )

    @property
    def hashed(self) -> tuple[tuple[str, str], ...]:
        """The key columns, and the types of Spark as which they are hashed."""
        return tuple((name, kind) for name, (_, kind) in zip(self.key_columns, self.step.hashed, strict=True))

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns of which no two rows have the same values."""
        return (*self.key_columns, *((MAP_KEY,) if self._is_map else ()))

    def entries(self, batch: pa.RecordBatch, first_row: int | None, hashes: pa.Array | None = None) -> Iterator[Entry]:
        """Yield store keys and stored values.

        Args:
            batch: At most `ROWS_MAX` rows.
            first_row: Number of its first row, None if rows have no numbers.
            hashes: Spark's hash of each key. By default they are computed here, which takes longer than everything else.

        Raises:
            InvalidInputError: A value does not fit; names column and row, never the value.
        """
        columns = _Columns(batch, first_row)
        keys = columns.encoded(self.key_columns, self._key_encoder(None if hashes is None else iter(hashes.to_pylist())))
        values = self._values(columns)
        if self._is_map:
            map_keys = columns.encoded((MAP_KEY,), _required(type_from_json(self.info.type["key"]).encode))
            keys = [key + map_key for key, map_key in zip(keys, map_keys, strict=True)]
        yield from zip(keys, values, strict=True)

    @property
    def _is_map(self) -> bool:
        return self.info.kind == "map"

    @property
    def _value_type(self) -> dict[str, Any]:
        return dict(self.info.type["value"]) if self._is_map else self.info.type

    @property
    def _value_columns(self) -> list[str]:
        return field_names(self._value_type) if self._value_type["type"] == "ROW" else [VALUE]

    def _key_encoder(self, hashes: Iterator[int] | None) -> Callable[..., bytes]:
        """Return the encoder from a key's parts to its store key; keys come in the order of the hashes."""
        codec = KeyCodec.from_json(self.info.key_type)
        is_checked = False

        def encoded(*parts: Any) -> bytes:
            nonlocal is_checked
            data = codec.encode(parts if len(parts) > 1 else parts[0])
            found = self._hash_of(codec, data) if hashes is None else next(hashes)
            if not is_checked and found != self._hash_of(codec, data):
                # A job would look for the state of such a key in another key group.
                raise InvalidInputError(f"Spark's hash is not that of a key {self.step}", remedy="Cast the key columns to these types")
            is_checked = True
            return store_key(key_group_of_hash(found, self.max_parallelism), self.info.state_id, data)

        return encoded

    def _hash_of(self, codec: KeyCodec, data: bytes) -> int:
        """Return Spark's hash of a key, computed here. Encoded and decoded, a key is what the hash is taken of."""
        found = key_hash(self.step, codec.decode(data))
        if found is None:
            raise InvalidInputError(f"Spark's hash of a key {self.step} is not known", remedy="Use other types of columns")
        return found

    def _values(self, columns: _Columns) -> list[bytes]:
        type_ = type_from_json(self._value_type)
        if self.info.kind == "list":
            return self._lists(columns, type_)
        codec = ValueCodec(type_, "value")
        encode = codec.encode_nullable if self._is_map else _required(codec.encode)

        is_row = self._value_type["type"] == "ROW"

        def encoded(*parts: Any) -> bytes:
            value = parts if is_row else parts[0]
            return encode(None if value is None else type_.normalize(value))

        plain = columns.encoded(tuple(self._value_columns), encoded)
        if self.info.ttl_ms is None:
            return plain
        return [join_expiry(expiry, value) for expiry, value in zip(self._expiries(columns), plain, strict=True)]

    def _lists(self, columns: _Columns, type_: TypeInformation) -> list[bytes]:
        expires = self.info.ttl_ms is not None
        expiries = self._expiries(columns) if expires else None
        payloads = columns.encoded((VALUE,), _required(lambda value: _list_payload(type_, value)))
        if expiries is None:
            return [bytes([PLAIN]) + payload for payload in payloads]
        return [
            bytes([EXPIRING_LIST]) + ListTypeInfo.join([_EXPIRY.pack(expiry) + each for each in ListTypeInfo.split(payload)])
            for expiry, payload in zip(expiries, payloads, strict=True)
        ]

    def _expiries(self, columns: _Columns) -> list[int]:
        if not columns.has(EXPIRES):
            return [self.expires_ms] * columns.rows
        packed = columns.encoded((EXPIRES,), _required(_EXPIRY.pack))
        return [_EXPIRY.unpack(each)[0] for each in packed]


class _Columns:
    """The columns of a batch as Python values, and errors that name column and row."""

    def __init__(self, batch: pa.RecordBatch, first_row: int | None) -> None:
        self.rows = batch.num_rows
        self._batch = batch
        self._first = first_row

    def has(self, name: str) -> bool:
        return name in self._batch.schema.names

    def encoded(self, names: tuple[str, ...], encode: Callable[..., bytes]) -> list[bytes]:
        """Encode the values of one or several columns row by row."""
        found = []
        for at, parts in enumerate(zip(*(self._python(name) for name in names), strict=True)):
            try:
                found.append(encode(*parts))
            except InvalidInputError as error:
                raise self._refused(names, at, error.message, error.remedy) from None
            except (TypeError, ValueError, AttributeError, OverflowError, struct.error):
                raise self._refused(names, at, "the value is not of the declared type", None) from None
        return found

    def _python(self, name: str) -> list[Any]:
        column = self._batch.column(name)
        try:
            return python_values(column)
        except (pa.ArrowException, InvalidInputError):
            at = next((at for at in range(self.rows) if not _is_readable(column.slice(at, 1))), 0)
            raise self._refused((name,), at, "Python has no such value", "Use a time of the years 1 to 9999") from None

    def _refused(self, names: tuple[str, ...], at: int, message: str, remedy: str | None) -> InvalidInputError:
        row = "" if self._first is None else f"row {self._first + at}, "
        return InvalidInputError(message, field=f"{row}column {', '.join(map(repr, names))}", remedy=remedy)


def _is_readable(value: pa.Array) -> bool:
    try:
        python_values(value)
    except (pa.ArrowException, InvalidInputError):
        return False
    return True


def _required(encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Return an encoder that refuses None."""

    def encoded(value: Any) -> bytes:
        if value is None:
            raise InvalidInputError("the value is null", remedy="Leave the row out")
        return encode(value)

    return encoded


def _list_payload(type_: TypeInformation, value: Any) -> bytes:
    if not isinstance(value, list) or not value or None in value:
        raise InvalidInputError("expected a list with elements that are not null", remedy="Leave the row or the element out")
    return type_.encode(value)
