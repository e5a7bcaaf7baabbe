"""Hashes of keys for tests: a stand-in for the column that Spark computes."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import pyarrow as pa

from statefulspark.process.columns import python_values
from statefulspark.process.keytypes import key_type_info
from statefulspark.process.step_spec import InputSpec
from statefulspark.state.encoding.keys import KeyCodec


class KeyHash:
    """Hashes the keys of the rows of one input. The hashes are stable, but not the ones that Spark computes."""

    def __init__(self, spec: InputSpec) -> None:
        self._columns = spec.key_columns
        self._codec = KeyCodec(tuple(key_type_info(spec.schema.field(name).type, name) for name in spec.key_columns))

    def of(self, rows: pa.RecordBatch) -> list[int]:
        """Returns one signed 64-bit hash per row."""
        columns: list[Any] = [python_values(rows.column(name)) for name in self._columns]
        keys = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        return [self.of_key(key) for key in keys]

    def of_key(self, key: Any) -> int:
        """Returns the hash of a key, a tuple for several key columns."""
        return int.from_bytes(blake2b(self._codec.encode(key), digest_size=8).digest(), "big", signed=True)
