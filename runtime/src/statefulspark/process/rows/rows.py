"""Input rows: a tuple class created once per schema.

Attribute access is as fast as in a named tuple, also for columns called ``count`` or ``index``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, partial
from keyword import iskeyword
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final, SupportsIndex

from statefulspark.state.row import Row, rows_to_dicts

try:
    from _collections import _tuplegetter  # type: ignore[import-not-found]  # private to CPython, so without a stub
except ImportError:
    _tuplegetter = None

__all__ = ["InputRow", "Row", "row_class", "rows_of"]


_METHODS: Final = frozenset({"as_dict", "asDict"})


class InputRow(tuple[Any, ...]):
    """One row of a keyed step's input: immutable, by position, by name and by attribute.

    ``row.tailnum``, ``row["tailnum"]`` and ``row[0]`` are the same value; iteration and unpacking go by position. A
    column whose name is not an identifier (or starts with an underscore) or that of a method is reached by ``row["..."]`` only.
    """

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]] = ()
    _positions: ClassVar[dict[str, int]] = {}

    def __getitem__(self, item: SupportsIndex | slice | str) -> Any:
        if item.__class__ is str:
            try:
                return tuple.__getitem__(self, self._positions[item])
            except KeyError:
                raise KeyError(f"{item}: not a column of this row; the columns are {', '.join(self._fields)}") from None
        return tuple.__getitem__(self, item)  # type: ignore[index]  # a str cannot get here

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def as_dict(self, recursive: bool = False) -> dict[str, Any]:
        """Return the row as a dict by column name; with ``recursive`` nested rows become dicts too."""
        values: Sequence[Any] = [rows_to_dicts(value, InputRow | Row) for value in self] if recursive else self
        return dict(zip(self._fields, values, strict=True))

    def asDict(self, recursive: bool = False) -> dict[str, Any]:  # noqa: N802  PySpark's name
        """Return the row as a dict by column name, under the name that PySpark's rows have; with ``recursive`` nested rows become dicts too."""
        return self.as_dict(recursive)

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{name}={value!r}' for name, value in zip(self._fields, self, strict=True))})"

    def __reduce__(self) -> tuple[Any, ...]:
        # The class is generated, so pickle finds it again by its fields.
        return _restore, (self._fields, tuple(self))


@cache
def row_class(fields: tuple[str, ...]) -> type[InputRow]:
    """Make the input row class of these column names, in column order; the same names give the same class.

    A name that occurs twice means its first column; the others are reached by position.
    """
    positions: dict[str, int] = {}
    for index, name in enumerate(fields):
        positions.setdefault(name, index)
    members: dict[str, Any] = {"__slots__": (), "_fields": fields, "_positions": positions}
    for name, index in positions.items():
        if name.isidentifier() and not iskeyword(name) and not name.startswith("_") and name not in _METHODS:
            members[name] = _column(index, name)
    return type("InputRow", (InputRow,), members)


def rows_of(row: type[InputRow], columns: Sequence[Sequence[Any]]) -> Iterator[InputRow]:
    """Zip Python columns of equal length to rows of the class ``row``."""
    return map(partial(tuple.__new__, row), zip(*columns, strict=True))


def _column(index: int, name: str) -> Any:
    """A read-only attribute: the C descriptor behind named tuples, or a property where that is missing."""
    doc = f"Column {name}."
    return property(itemgetter(index), doc=doc) if _tuplegetter is None else _tuplegetter(index, doc)


def _restore(fields: tuple[str, ...], values: tuple[Any, ...]) -> InputRow:
    return tuple.__new__(row_class(fields), values)
