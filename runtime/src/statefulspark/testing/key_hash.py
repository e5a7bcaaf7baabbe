"""Hashes of keys for tests, in place of the column that Spark computes."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from statefulspark.checkpoint.formats.pipeline import KeyColumn, StepKey
from statefulspark.checkpoint.inspect.key_hashes import key_hash
from statefulspark.errors import InvalidInputError, NotRestorableError
from statefulspark.process.rows.columns import python_values
from statefulspark.process.rows.keytypes import key_type_info
from statefulspark.process.rows.step_spec import InputSpec
from statefulspark.state.encoding.keys import KeyCodec


class KeyHash:
    """Hashes the keys of the rows of one input, as Spark does if the state is that of a job with Spark.

    Args:
        spec: The input.
        stored: The key of the step in the savepoint that the test starts from. None hashes in a way of the tests' own, which is as stable.
    """

    def __init__(self, spec: InputSpec, stored: StepKey | None = None) -> None:
        self._columns = spec.key_columns
        self._stored = stored
        self._codec = KeyCodec(tuple(key_type_info(spec.schema.field(name).type, name) for name in spec.key_columns))

    def of(self, rows: pa.RecordBatch) -> list[int]:
        """Returns one signed 64-bit hash per row."""
        columns: list[Any] = [python_values(rows.column(name)) for name in self._columns]
        keys = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        return [self.of_key(key) for key in keys]

    def of_key(self, key: Any) -> int:
        """Returns the hash of a key, a tuple for several key columns."""
        encoded = self._codec.encode(key)
        if self._stored is None:
            return int.from_bytes(blake2b(encoded, digest_size=8).digest(), "big", signed=True)
        found = key_hash(self._stored, key)
        if found is None:
            raise InvalidInputError(
                f"a key is not of the types by which the savepoint's job hashes, {self._stored}", field="key", remedy="Correct the row"
            )
        return found


def check_stored_key(spec: InputSpec, stored: StepKey) -> None:
    """Raise if a step that reads ``spec`` would not find the state of the step with the key ``stored``.

    Raises:
        NotRestorableError: Names both keys.
    """
    columns = tuple(KeyColumn(name=name, type=_spark_type(spec.schema.field(name).type)) for name in spec.key_columns)
    now = StepKey(uid=stored.uid, hashing=stored.hashing, columns=columns)
    if not now.finds_state_of(stored):
        raise NotRestorableError(
            f"the key of step {stored.uid!r} is {stored} in the savepoint, and {now} in the test",
            field="key",
            remedy="Use the job's key columns",
        )


def _spark_type(kind: pa.DataType) -> str:
    """Spark's name of the type of a key column."""
    if pt.is_timestamp(kind):
        return "timestamp" if kind.tz is not None else "timestamp_ntz"
    if pt.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pt.is_date(kind):
        return "date"
    if pt.is_binary(kind) or pt.is_large_binary(kind):
        return "binary"
    if pt.is_boolean(kind):
        return "boolean"
    if pt.is_integer(kind):
        return {8: "tinyint", 16: "smallint", 32: "int"}.get(kind.bit_width, "bigint")
    return "string"
