"""Turns the key selectors of ``Job.key_by`` into columns that Spark computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame

from statefulspark.errors import InvalidInputError, type_name
from statefulspark.pipeline.column_names import quoted
from statefulspark.process.api.functions import KeySelector

_REMEDY = "Use columns of the row and pyspark.sql.functions only, or compute the key with withColumn and name the column"

Key = str | KeySelector | Callable[[Any], Any]


class RowOfColumns:
    """What a key selector gets instead of a row: its fields, by attribute, name or position, are Spark's columns."""

    def __init__(self, df: DataFrame) -> None:
        self._df = df
        self._names: dict[int, str] = {}
        self._columns: list[Column] = []

    def __getitem__(self, item: str | int) -> Column:
        names = self._df.columns
        name = names[item] if isinstance(item, int) else item
        if name not in names:
            raise KeyError(f"{name}: not a column of this row; the columns are {', '.join(names)}")
        column = self._df[quoted(name)]
        # Kept, so that no other column gets its id.
        self._columns.append(column)
        self._names[id(column)] = name
        return column

    def __getattr__(self, name: str) -> Column:
        if name.startswith("_") or name not in self._df.columns:
            raise AttributeError(name)
        return self[name]

    def name_of(self, column: Column) -> str | None:
        """The name of a column that was taken from this row; None for a computed one."""
        return self._names.get(id(column))


def keyed_by(df: DataFrame, keys: Sequence[Key]) -> tuple[DataFrame, tuple[str, ...], tuple[str, ...]]:
    """The key columns of a stream.

    Returns:
        The stream with the computed key columns at its end, the names of all key columns, and those of the computed ones.

    Raises:
        InvalidInputError: Spark cannot evaluate a selector, or what it computes changes from one evaluation to the next.
    """
    names: list[str] = []
    added: list[str] = []
    for key in keys:
        if isinstance(key, str):
            names.append(key)
            continue
        row = RowOfColumns(df)
        for column in _columns(key, row):
            name = row.name_of(column)
            if name is None:
                name = _computed_name(df, column)
                df = df.withColumn(name, column)
                added.append(name)
            names.append(name)
    return df, tuple(names), tuple(added)


def _columns(key: Any, row: RowOfColumns) -> tuple[Column, ...]:
    select = key.get_key if isinstance(key, KeySelector) else key
    if isinstance(select, type) or not callable(select):
        found = f"the class {select.__name__}" if isinstance(select, type) else type(select).__name__
        raise InvalidInputError(
            f"expected columns, a KeySelector or a function, got {found}",
            field="key_by",
            remedy="Pass column names, a KeySelector or a function of one row",
        )
    try:
        selected = select(row)
    except Exception as error:
        raise InvalidInputError(
            f"Spark cannot evaluate the key selector: {type(error).__name__}: {error}", field="key_by", remedy=_REMEDY
        ) from error
    columns = tuple(selected) if isinstance(selected, tuple | list) else (selected,)
    for column in columns:
        if not isinstance(column, Column):
            raise InvalidInputError(f"the key selector returned {type_name(type(column))}, not a column", field="key_by", remedy=_REMEDY)
    return columns


def _computed_name(df: DataFrame, column: Column) -> str:
    """The name that Spark gives the column; refuses what differs from one evaluation to the next, as a retried row would change its key."""
    computed = df.select(column)
    name: str = computed.columns[0]
    if name in df.columns:
        raise InvalidInputError(
            f"the key selector computes a column {name!r}, which already exists",
            field="key_by",
            remedy="Give it another name with .alias()",
        )
    plan: Any = computed._jdf.queryExecution().analyzed()  # noqa: SLF001  # pyspark has no public way to ask
    if not plan.expressions().head().deterministic():
        raise InvalidInputError(
            f"the key {name!r} changes from one evaluation to the next", field="key_by", remedy="Key by values of the row only"
        )
    return name
