"""Types: PyFlink's names for the types of state, e.g. ``Types.LONG()``."""

# ruff: noqa: N802  # PyFlink's names

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final

from statefulspark.state.times import Instant
from statefulspark.state.types import scalars
from statefulspark.state.types.base import TypeInformation, type_from_json
from statefulspark.state.types.composites import ListTypeInfo, MapTypeInfo, PrimitiveArray, RowTypeInfo, TupleTypeInfo
from statefulspark.state.types.pickled import PICKLED
from statefulspark.state.types.type_variables import K, T, V

__all__ = ["TypeInformation", "Types", "type_from_json"]

_SCALARS: Final = {scalar.name: scalar for scalar in scalars.SCALARS}


class Types:
    """Maker of `TypeInformation`, with the names of ``pyflink.common.Types``."""

    @staticmethod
    def STRING() -> TypeInformation[str]:
        """``str``."""
        return _SCALARS["STRING"]

    @staticmethod
    def BOOLEAN() -> TypeInformation[bool]:
        """``bool``."""
        return _SCALARS["BOOLEAN"]

    @staticmethod
    def BYTE() -> TypeInformation[int]:
        """``int`` of 1 byte, -128 .. 127."""
        return scalars.BYTE

    @staticmethod
    def SHORT() -> TypeInformation[int]:
        """``int`` of 2 bytes."""
        return scalars.SHORT

    @staticmethod
    def INT() -> TypeInformation[int]:
        """``int`` of 4 bytes."""
        return scalars.INT

    @staticmethod
    def LONG() -> TypeInformation[int]:
        """``int`` of 8 bytes."""
        return scalars.LONG

    @staticmethod
    def FLOAT() -> TypeInformation[float]:
        """``float`` rounded to 4 bytes."""
        return _SCALARS["FLOAT"]

    @staticmethod
    def DOUBLE() -> TypeInformation[float]:
        """``float``."""
        return _SCALARS["DOUBLE"]

    @staticmethod
    def CHAR() -> TypeInformation[str]:
        """``str`` of one character."""
        return _SCALARS["CHAR"]

    @staticmethod
    def BIG_INT() -> TypeInformation[int]:
        """``int`` of any size."""
        return _SCALARS["BIG_INT"]

    @staticmethod
    def BIG_DEC() -> TypeInformation[Decimal]:
        """``decimal.Decimal``."""
        return _SCALARS["BIG_DEC"]

    @staticmethod
    def SQL_DATE() -> TypeInformation[date]:
        """``datetime.date``."""
        return _SCALARS["SQL_DATE"]

    @staticmethod
    def SQL_TIME() -> TypeInformation[time]:
        """``datetime.time`` without a zone, microseconds."""
        return _SCALARS["SQL_TIME"]

    @staticmethod
    def SQL_TIMESTAMP() -> TypeInformation[datetime]:
        """``datetime.datetime`` without a zone, microseconds."""
        return _SCALARS["SQL_TIMESTAMP"]

    @staticmethod
    def INSTANT() -> TypeInformation[Instant]:
        """`Instant`, nanoseconds."""
        return _SCALARS["INSTANT"]

    @staticmethod
    def PICKLED_BYTE_ARRAY() -> TypeInformation:
        """Any object that pickles."""
        return PICKLED

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: TypeInformation) -> TypeInformation:
        """``bytes`` for BYTE; a list of numbers without None for the other numbers and BOOLEAN."""
        return PrimitiveArray(element_type)

    @staticmethod
    def BASIC_ARRAY(element_type: TypeInformation[T]) -> TypeInformation[list[T]]:
        """``list`` of single values."""
        return ListTypeInfo("BASIC_ARRAY", element_type)

    @staticmethod
    def OBJECT_ARRAY(element_type: TypeInformation[T]) -> TypeInformation[list[T]]:
        """``list`` of anything."""
        return ListTypeInfo("OBJECT_ARRAY", element_type)

    @staticmethod
    def LIST(element_type_info: TypeInformation[T]) -> TypeInformation[list[T]]:
        """``list``."""
        return ListTypeInfo("LIST", element_type_info)

    @staticmethod
    def MAP(key_type_info: TypeInformation[K], value_type_info: TypeInformation[V]) -> TypeInformation[dict[K, V]]:
        """``dict``."""
        return MapTypeInfo(key_type_info, value_type_info)

    @staticmethod
    def TUPLE(field_types: Sequence[TypeInformation]) -> TupleTypeInfo:
        """``tuple``, one type per place."""
        return TupleTypeInfo(field_types)

    @staticmethod
    def ROW(field_types: Sequence[TypeInformation]) -> RowTypeInfo:
        """`Row` by position."""
        return RowTypeInfo(field_types)

    @staticmethod
    def ROW_NAMED(
        field_names: Sequence[str], field_types: Sequence[TypeInformation], *, defaults: Mapping[str, Any] | None = None
    ) -> RowTypeInfo:
        """`Row` by name.

        Args:
            field_names: Distinct names.
            field_types: One type per name.
            defaults: By name of the field, the value of rows in state that were stored before the field was added. Other new fields
                are None in them. PyFlink has no defaults.

        >>> Types.ROW_NAMED(["sku", "currency"], [Types.STRING(), Types.STRING()], defaults={"currency": "EUR"}).default_of("currency")
        'EUR'

        Raises:
            InvalidInputError: The names are not one per type, a default is of no field, or not of the field's type.
        """
        return RowTypeInfo(field_types, field_names, defaults)
