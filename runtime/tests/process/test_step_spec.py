"""StepSpec: mistakes show where the step is declared, and the step travels to slots."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest

from statefulspark import KeyedProcessFunction
from statefulspark.errors import InvalidInputError
from statefulspark.process.rows.columns import python_values
from statefulspark.process.rows.keytypes import key_type_infos
from statefulspark.process.rows.step_spec import StepSpec
from statefulspark.state.encoding.keys import KeyCodec


class Nothing(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None: ...


GOOD: dict[str, Any] = {
    "uid": "turnaround",
    "function": Nothing(),
    "input_schema": pa.schema([("tailnum", pa.string()), ("at", pa.timestamp("us", "UTC")), ("distance", pa.float64())]),
    "output_schema": pa.schema([("tailnum", pa.string())]),
    "key_columns": ("tailnum",),
    "event_time": "at",
    "watermark_delay_ms": 1000,
    "max_parallelism": 128,
}


def test_a_step_travels_by_cloudpickle() -> None:
    """Also when its function's class is not importable in the slot."""

    class Local(Nothing):
        pass

    step = StepSpec(**{**GOOD, "function": Local()})
    again = cloudpickle.loads(cloudpickle.dumps(step))
    assert again.input_schema == step.input_schema
    assert type(again.function).__name__ == "Local"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"uid": ""}, "uid"),
        ({"function": object()}, "process_element"),
        ({"key_columns": ()}, "key_columns"),
        ({"key_columns": ("tail",)}, "tailnum, at, distance"),
        ({"key_columns": ("distance",)}, "cannot be a key"),
        ({"event_time": "when"}, "does not exist"),
        ({"event_time": "tailnum"}, "timestamp column"),
        ({"input_schema": pa.schema([("tailnum", pa.string()), ("tailnum", pa.string())]), "event_time": None}, "more than once"),
        ({"input_schema": pa.schema([("tailnum", pa.string()), ("__kh", pa.int64())]), "event_time": None}, "reserved"),
        ({"output_schema": pa.schema([])}, "output_type"),
        ({"output_schema": pa.schema([("a", pa.int64()), ("a", pa.int64())])}, "two columns"),
        ({"watermark_delay_ms": -1}, "watermark"),
        ({"max_parallelism": 0}, "max_parallelism"),
        ({"max_parallelism": 32769}, "32768"),
    ],
)
def test_a_mistake_is_named_with_its_remedy(change: dict[str, Any], says: str) -> None:
    """Every field of a step is checked before anything runs."""
    with pytest.raises(InvalidInputError, match=says):
        StepSpec(**{**GOOD, **change})


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.binary(),
        pa.bool_(),
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.date32(),
        pa.timestamp("us"),
        pa.timestamp("us", "UTC"),
        pa.decimal128(38, 6),
    ],
)
def test_every_key_type_of_spark_has_a_codec_that_takes_its_values(kind: pa.DataType) -> None:
    """Values as they come out of a column are encoded and decoded to themselves."""
    values: dict[str, list[Any]] = {
        "string": ["N14228", "", "\u00e9"],
        "binary": [b"x", b""],
        "bool": [True, False],
        "date32[day]": [date(2013, 1, 1), date(1900, 1, 1)],
        "decimal128(38, 6)": [Decimal("1.5"), Decimal("-12345678901234567890.123456")],
    }
    given = [datetime(2013, 1, 1, 5, 15), datetime(1969, 1, 1)] if pa.types.is_timestamp(kind) else values.get(str(kind), [1, -1, 127])  # noqa: DTZ001
    schema = pa.schema([("k", kind)])
    codec = KeyCodec(key_type_infos(StepSpec(**{**GOOD, "input_schema": schema, "key_columns": ("k",), "event_time": None})))
    keys = python_values(pa.array(given, kind))
    assert [codec.decode(codec.encode(key)) for key in keys] == keys
    assert len({codec.encode(key) for key in keys}) == len(keys)
