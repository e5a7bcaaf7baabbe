"""Row: the output row that users build. Behaves like PyFlink's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, SupportsIndex

__all__ = ["Row"]


class Row:
    """A mutable row: ``Row("N14228", 3)`` by position or ``Row(tailnum="N14228", legs=3)`` by name.

    As in PyFlink, fields given by name are kept sorted by name, and a row of strings doubles as a row maker:

    >>> Row(tailnum="N14228", legs=3)
    Row(legs=3, tailnum='N14228')
    >>> Leg = Row("tailnum", "legs")
    >>> Leg("N14228", 3).tailnum
    'N14228'

    A named row is matched to the output schema by name, an unnamed one by position.
    """

    __slots__ = ("_names", "_values")
    _names: tuple[str, ...] | None
    _values: list[Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and kwargs:
            raise ValueError("Row takes values by position or by name, not both")
        names = tuple(sorted(kwargs)) if kwargs else None
        object.__setattr__(self, "_names", names)
        object.__setattr__(self, "_values", [kwargs[name] for name in names] if names is not None else list(args))

    @property
    def _fields(self) -> tuple[str, ...]:
        if self._names is None:
            raise AttributeError("_fields")
        return self._names

    @property
    def names(self) -> tuple[str, ...] | None:
        """The field names, or None for a row by position (a field called ``names`` is read as ``row["names"]``)."""
        return self._names

    def set_field_names(self, field_names: Sequence[str]) -> None:
        """Name the values; there must be as many names as values."""
        if len(field_names) != len(self._values):
            raise ValueError(f"{len(field_names)} field names for a row of {len(self._values)} values")
        object.__setattr__(self, "_names", tuple(field_names))

    def as_dict(self, recursive: bool = False) -> dict[str, Any]:
        """Return the row as a dict; with ``recursive`` nested rows become dicts too.

        Raises:
            TypeError: the row has no field names.
        """
        if self._names is None:
            raise TypeError("a Row without field names cannot become a dict; build it by name: Row(name=value)")
        values = [_plain(value) for value in self._values] if recursive else self._values
        return dict(zip(self._names, values, strict=True))

    def __call__(self, *args: Any) -> Row:
        if len(args) > len(self._values):
            raise ValueError(f"{len(args)} values for a row of {len(self._values)} fields")
        return _named(tuple(self._values[: len(args)]), args)

    def _position(self, name: str) -> int:
        if self._names is None or name not in self._names:
            raise KeyError(name)
        return self._names.index(name)

    def __getitem__(self, item: SupportsIndex | slice | str) -> Any:
        return self._values[self._position(item) if isinstance(item, str) else item]

    def __setitem__(self, item: SupportsIndex | slice | str, value: Any) -> None:
        self._values[self._position(item) if isinstance(item, str) else item] = value

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

    def __contains__(self, value: object) -> bool:
        return value in self._values

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row):
            return NotImplemented
        return self._names == other._names and self._values == other._values

    def __hash__(self) -> int:
        return hash(tuple(self._values))

    def __repr__(self) -> str:
        if self._names is None:
            return f"<Row({', '.join(repr(value) for value in self._values)})>"
        return f"Row({', '.join(f'{name}={value!r}' for name, value in zip(self._names, self._values, strict=True))})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _named, (self._names, tuple(self._values))


def _named(names: tuple[str, ...] | None, values: Sequence[Any]) -> Row:
    row = Row(*values)
    if names is not None:
        row.set_field_names(names)
    return row


def _plain(value: Any) -> Any:
    if isinstance(value, Row):
        return value.as_dict(True)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return value
