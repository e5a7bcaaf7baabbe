"""Row and RowKind: the output rows that users build. They behave like PyFlink's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from types import UnionType
from typing import Any, SupportsIndex, cast

__all__ = ["Row", "RowKind", "field_names"]


class RowKind(Enum):
    """The kind of change that a row describes.

    >>> str(RowKind.UPDATE_AFTER)
    '+U'
    """

    INSERT = 0
    """A new row; the kind of every row unless it is set."""
    UPDATE_BEFORE = 1
    """A row as it was before an update."""
    UPDATE_AFTER = 2
    """A row as it is after an update."""
    DELETE = 3
    """A row that is deleted."""

    def __str__(self) -> str:
        return ("+I", "-U", "+U", "-D")[self.value]


class Row:
    """A mutable row: ``Row("N14228", 3)`` by position or ``Row(tailnum="N14228", legs=3)`` by name.

    As in PyFlink, ``name in row`` asks for a field's name, rows by name are equal if their fields are, in any order, and a row of
    strings doubles as a row maker:

    >>> Row(tailnum="N14228", legs=3)
    Row(tailnum='N14228', legs=3)
    >>> Leg = Row("tailnum", "legs")
    >>> Leg("N14228", 3).tailnum
    'N14228'

    A named row is matched to the output schema by name, an unnamed one by position. State keeps the kind of a row. A DataFrame has no
    kinds, so a function may only emit rows of kind INSERT; emit the kind as a column instead.
    """

    __slots__ = ("_kind", "_names", "_values")
    _names: tuple[str, ...] | None
    _values: list[Any]
    _kind: RowKind

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and kwargs:
            raise ValueError("Row takes values by position or by name, not both")
        object.__setattr__(self, "_names", tuple(kwargs) if kwargs else None)
        object.__setattr__(self, "_values", list(kwargs.values()) if kwargs else list(args))
        object.__setattr__(self, "_kind", RowKind.INSERT)

    @property
    def _fields(self) -> tuple[str, ...]:
        if self._names is None:
            raise AttributeError("_fields")
        return self._names

    @staticmethod
    def of_kind(row_kind: RowKind, *args: Any, **kwargs: Any) -> Row:
        """Return a row of ``row_kind`` with these values by position or by name.

        >>> Row.of_kind(RowKind.DELETE, "N14228").get_row_kind().name
        'DELETE'
        """
        row = Row(*args, **kwargs)
        row.set_row_kind(row_kind)
        return row

    def get_row_kind(self) -> RowKind:
        """Return the kind, INSERT unless it was set."""
        return self._kind

    def set_row_kind(self, row_kind: RowKind) -> None:
        """Set the kind."""
        object.__setattr__(self, "_kind", RowKind(row_kind))

    def set_field_names(self, field_names: Sequence[str]) -> None:
        """Name the values; there must be as many names as values."""
        if len(field_names) != len(self._values):
            raise ValueError(f"{len(field_names)} field names for a row of {len(self._values)} values")
        object.__setattr__(self, "_names", tuple(field_names))

    def get_fields_by_names(self, names: Sequence[str]) -> list[Any]:
        """Return the values of these fields, in their order; all values if the row has no field names.

        Raises:
            KeyError: the row has no field of one of the names.
        """
        return list(self._values) if self._names is None else [self[name] for name in names]

    def as_dict(self, recursive: bool = False) -> dict[str, Any]:
        """Return the row as a dict; with ``recursive`` nested rows become dicts too.

        Raises:
            TypeError: the row has no field names.
        """
        if self._names is None:
            raise TypeError("a Row without field names cannot become a dict; build it by name: Row(name=value)")
        values = [rows_to_dicts(value, Row) for value in self._values] if recursive else self._values
        return dict(zip(self._names, values, strict=True))

    def asDict(self, recursive: bool = False) -> dict[str, Any]:  # noqa: N802  PySpark's name
        """Return the row as a dict, as `as_dict` does, under the name that PySpark's rows have.

        >>> Row(tailnum="N14228", legs=3).asDict()
        {'tailnum': 'N14228', 'legs': 3}

        Raises:
            TypeError: the row has no field names.
        """
        return self.as_dict(recursive)

    def __call__(self, *args: Any) -> Row:
        if len(args) > len(self._values):
            raise ValueError(f"{len(args)} values for a row of {len(self._values)} fields")
        return _named(tuple(self._values[: len(args)]), args, self._kind)

    def _position(self, name: str) -> int:
        if self._names is None or name not in self._names:
            raise KeyError(name)
        return self._names.index(name)

    def __getitem__(self, item: SupportsIndex | slice | str) -> Any:
        return self._values[self._position(item) if isinstance(item, str) else item]

    def __setitem__(self, key: SupportsIndex | slice | str, value: Any) -> None:
        self._values[self._position(key) if isinstance(key, str) else key] = value

    def __getattr__(self, name: str) -> Any:
        # Only reached for names that are not attributes of the class; dunder look-ups (pickle, copy) must fail fast.
        if not name.startswith("_") and self._names is not None and name in self._names:
            return self._values[self._names.index(name)]
        raise AttributeError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{name}: set a field with row[{name!r}] = ...")

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, item: object) -> bool:
        return item in (self._values if self._names is None else self._names)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row):
            return NotImplemented
        return self._kind is other._kind and self._comparable() == other._comparable()

    def __hash__(self) -> int:
        return hash(tuple(self._comparable()[1]))

    def _comparable(self) -> tuple[list[str] | None, list[Any]]:
        """The names and values, in the order of the names."""
        if self._names is None:
            return None, self._values
        order = sorted(range(len(self._names)), key=self._names.__getitem__)
        return [self._names[at] for at in order], [self._values[at] for at in order]

    def __repr__(self) -> str:
        if self._names is None:
            return f"<Row({', '.join(repr(value) for value in self._values)})>"
        return f"Row({', '.join(f'{name}={value!r}' for name, value in zip(self._names, self._values, strict=True))})"

    def __reduce__(self) -> tuple[Any, ...]:
        fields = (self._names, tuple(self._values))
        return _named, fields if self._kind is RowKind.INSERT else (*fields, self._kind)


def field_names(row: Row) -> tuple[str, ...] | None:
    """Return the row's field names, None for a row by position. A function, because every attribute may be a field's name."""
    return row._names  # noqa: SLF001  # the class of this module


def _named(names: tuple[str, ...] | None, values: Sequence[Any], kind: RowKind = RowKind.INSERT) -> Row:
    row = Row(*values)
    if names is not None:
        row.set_field_names(names)
    row.set_row_kind(kind)
    return row


def rows_to_dicts(value: Any, rows: type | UnionType) -> Any:
    """Return a value with the rows in it as dicts.

    Args:
        value: Lists and dicts in it are searched too.
        rows: The classes of rows; they have ``as_dict``.
    """
    if isinstance(value, rows):
        return cast("Any", value).as_dict(True)
    if isinstance(value, list):
        return [rows_to_dicts(each, rows) for each in value]
    if isinstance(value, dict):
        return {name: rows_to_dicts(each, rows) for name, each in value.items()}
    return value
