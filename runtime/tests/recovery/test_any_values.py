"""Keys and values that look odd are kept as they are, through every backend, failure, rescale and kind of savepoint, and no two keys meet.

The model is a plain dict by the key's repr: it knows nothing of encodings, hashes or key groups.
"""

# ruff: noqa: DTZ001  times in rows and in state have no zone
from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Context, Decimal
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from runtime.tests.depth import left_to_test_all

from statefulspark import (
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    Row,
    RuntimeContext,
    Types,
    ValueStateDescriptor,
    state_tables,
)
from statefulspark.process.rows.columns import python_values
from statefulspark.state.times import Instant
from statefulspark.state.types.types import TypeInformation
from statefulspark.state_tables.canonical.conversion import convert_to_canonical
from statefulspark.storage.open import open_store
from statefulspark.testing import CHECKPOINT, KILL_DRIVER, KILL_SLOT, RESCALE, RESTORE_FROM_SAVEPOINT, RETRY_BATCH, SAVEPOINT, TestingJob

NAN = float("nan")
LONG_TEXT = "k" * 70_000
KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "string": (
        pa.string(),
        ["", "\0", "\0\0", "a", "a\0", "\0a", "A", "é", "e\u0301", "\U0001f600", "\uffff", "\ufeff", " ", "null", "None", LONG_TEXT],
    ),
    "binary": (pa.binary(), [b"", b"\0", b"\0\0", b"\xff", b"\xff\xff", b"\0\xff", b"\0\0\0\0", b"a", b"\x80", b"\0" * 70_000]),
    "boolean": (pa.bool_(), [False, True]),
    "tinyint": (pa.int8(), [-128, -1, 0, 1, 127]),
    "bigint": (pa.int64(), [-(1 << 63), -1, 0, 1, 255, 256, (1 << 63) - 1]),
    "date": (pa.date32(), [date.min, date(1582, 10, 4), date(1969, 12, 31), date(1970, 1, 1), date.max]),
    "timestamp_ntz": (
        pa.timestamp("us"),
        [
            datetime(1, 1, 1),
            datetime(1969, 12, 31, 23, 59, 59, 999_999),
            datetime(1970, 1, 1),
            datetime(2026, 10, 25, 2, 30),
            datetime(9999, 12, 31, 23, 59, 59, 999_999),
        ],
    ),
    "decimal(38,18)": (
        pa.decimal128(38, 18),
        [
            Decimal(text).quantize(Decimal("1e-18"), context=Context(prec=38))
            for text in ("0", "-1", "1", "1e-18", "-1e-18", "10", "99999999999999999999")
        ],
    ),
}
VALUES: list[tuple[TypeInformation, list[Any]]] = [
    (Types.STRING(), ["", "\0", "e\u0301", "é", LONG_TEXT]),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), [b"", b"\0", b"\xff" * 9]),
    (Types.LONG(), [0, -1, (1 << 63) - 1, -(1 << 63)]),
    (Types.BIG_INT(), [0, -1, 10**400, -(10**400)]),
    (Types.DOUBLE(), [0.0, -0.0, NAN, float("inf"), 5e-324]),
    (Types.FLOAT(), [0.0, -0.0, NAN, float("-inf")]),
    (Types.BOOLEAN(), [False, True]),
    (Types.BIG_DEC(), [Decimal(0), Decimal("-0.00"), Decimal("1.0"), Decimal("1.00"), Decimal("NaN"), Decimal("sNaN"), Decimal("1E+6000")]),
    (Types.SQL_DATE(), [date.min, date(1969, 12, 31), date.max]),
    (Types.SQL_TIME(), [time.min, time.max]),
    (Types.SQL_TIMESTAMP(), [datetime(1, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(9999, 12, 31, 23, 59, 59, 999_999)]),
    (Types.INSTANT(), [Instant(-1, 999_999_999), Instant(0, 0)]),
    (Types.LIST(Types.STRING()), [[], [None], ["", None, "\0"]]),
    (Types.MAP(Types.STRING(), Types.DOUBLE()), [{}, {"": None, "\0": NAN}, {None: 0.0}]),
    (Types.TUPLE([Types.BOOLEAN(), Types.LONG()]), [(False, 0), (None, None)]),
    (Types.ROW_NAMED(["a", "b"], [Types.LIST(Types.LONG()), Types.MAP(Types.LONG(), Types.STRING())]), [Row(a=None, b=None), Row(a=[], b={}), Row(a=[None, 0], b={0: None})]),
    (Types.PICKLED_BYTE_ARRAY(), [0, False, "", (), {}, [None], NAN, {1: {2}}, timedelta(microseconds=-1)]),
]  # fmt: skip


class Keeper(KeyedProcessFunction):
    """Gives out, as text, what the key had in a value, a list and a map of each type; then keeps others. Text tells -0.0 from 0.0, and 1.0 from 1.00."""

    def open(self, runtime_context: RuntimeContext) -> None:
        context, kinds = runtime_context, list(enumerate(VALUES))
        self.values = [context.get_state(ValueStateDescriptor(f"value {place}", type_)) for place, (type_, _) in kinds]
        self.lists = [context.get_list_state(ListStateDescriptor(f"list {place}", type_)) for place, (type_, _) in kinds]
        self.maps = [context.get_map_state(MapStateDescriptor(f"map {place}", Types.STRING(), type_)) for place, (type_, _) in kinds]
        self.mark = context.get_state(ValueStateDescriptor("mark", Types.BOOLEAN()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        kept = [
            (state.value(), list(elements.get()), dict(entries.items()))
            for state, elements, entries in zip(self.values, self.lists, self.maps, strict=True)
        ]
        yield repr(ctx.get_current_key()), repr(kept)
        for (_, values), state, elements, entries in zip(VALUES, self.values, self.lists, self.maps, strict=True):
            new = values[value.index % len(values)]
            state.update(new)
            elements.add(new)
            entries.put("", new)
            entries.put("\0", None)
        self.mark.update(False)


class Model:
    """What `Keeper` keeps, in dicts."""

    def __init__(self) -> None:
        self.kept: dict[str, list[int]] = {}
        self.output: list[tuple[str, str]] = []

    def row(self, key: Any, index: int) -> None:
        before = self.kept.setdefault(repr(key), [])
        kept: list[tuple[Any, list[Any], dict[str, Any]]] = []
        for _, values in VALUES:
            elements = [values[each % len(values)] for each in before]
            kept.append((elements[-1], elements, {"": elements[-1], "\0": None}) if elements else (None, [], {}))
        self.output.append((repr(key), repr(kept)))
        before.append(index)


def _event(random: Random) -> Any:
    return random.choice([CHECKPOINT, KILL_DRIVER, KILL_SLOT(0), RETRY_BATCH, RESCALE(random.randint(1, 3))])


def _cases() -> list[Any]:
    quick = [("memory", "string"), ("filesystem", "decimal(38,18)"), ("rocksdb", "binary")]
    rest = [case for case in product(("memory", "filesystem", "rocksdb"), KEYS) if case not in quick]
    return [*quick, *left_to_test_all(rest)]


@pytest.mark.parametrize(("backend", "kind"), _cases())
def test_odd_keys_and_values_stay_what_they_are(backend: str, kind: str, tmp_path: Path) -> None:
    """Type included, and after a savepoint; the canonical one and the tables have every key once."""
    column, keys = KEYS[kind]
    random, model = Random(kind), Model()
    schema = {"key": column, "index": pa.int64()}
    with TestingJob(Keeper(), schema, "key STRING, kept STRING", key="key", backend=backend, max_parallelism=8) as job:
        for events in ([_event(random)], [SAVEPOINT, RESTORE_FROM_SAVEPOINT(3)], []):
            rows = [(key, random.randrange(60)) for key in keys]
            for row in rows:
                model.row(*row)
            job.run([*rows, *events])
        for found, expected in zip(sorted(map(tuple, job.output)), sorted(model.output), strict=True):
            assert found == expected
        assert {repr(key) for key in job.state("mark")} == set(model.kept)
        savepoint = job.savepoints[0]
        canonical = convert_to_canonical(savepoint, tmp_path.as_uri(), open_store=open_store)
        assert {state: reason for (_, state), reason in canonical.without_table.items() if "which no table holds" not in reason} == {}
        for url in (savepoint, canonical.url):
            found = state_tables.read_arrow(url, "testing", "mark")
            assert sorted(map(repr, python_values(found.column("key").combine_chunks()))) == sorted(map(repr, keys))
