"""The forms in which the columns of an output are declared, except for DDL text, which Spark parses."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import types as T  # noqa: N812  Spark's own convention

from statefulspark import Types
from statefulspark.errors import InvalidInputError
from statefulspark.pipeline.output_types import output_struct


def text(given: Any) -> str:
    return output_struct(given, "output_type").simpleString()


def test_a_schema_of_sparks_is_taken_as_it_is() -> None:
    """A StructType keeps its nullability."""
    schema = T.StructType([T.StructField("n", T.LongType(), nullable=False)])
    assert output_struct(schema, "output_type") is schema


def test_types_of_pyflink_become_columns() -> None:
    """Rows by name give their names; other types are called f0, f1, as in Flink."""
    flat = [
        Types.STRING(), Types.CHAR(), Types.BOOLEAN(), Types.BYTE(), Types.SHORT(), Types.INT(), Types.LONG(), Types.FLOAT(), Types.DOUBLE(),
        Types.BIG_INT(), Types.SQL_DATE(), Types.SQL_TIMESTAMP(), Types.PRIMITIVE_ARRAY(Types.BYTE()),
    ]  # fmt: skip
    names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m"]
    assert text(Types.ROW_NAMED(names, flat)) == (
        "struct<a:string,b:string,c:boolean,d:tinyint,e:smallint,f:int,g:bigint,h:float,i:double,j:decimal(38,0),k:date,l:timestamp_ntz,m:binary>"
    )
    assert text(Types.TUPLE([Types.STRING(), Types.LONG()])) == "struct<f0:string,f1:bigint>"
    assert text(Types.ROW([Types.STRING()])) == "struct<f0:string>"
    assert text(Types.LONG()) == "struct<f0:bigint>"
    nested = Types.LIST(Types.MAP(Types.STRING(), Types.ROW_NAMED(["n"], [Types.PRIMITIVE_ARRAY(Types.INT())])))
    assert text(nested) == "struct<f0:array<map<string,struct<n:array<int>>>>>"
    assert text(Types.BASIC_ARRAY(Types.LONG())) == text(Types.OBJECT_ARRAY(Types.LONG())) == "struct<f0:array<bigint>>"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (Types.PICKLED_BYTE_ARRAY(), r"Types.PICKLED_BYTE_ARRAY\(\) has no Spark equivalent"),
        (Types.TUPLE([Types.BIG_DEC()]), r"Types.BIG_DEC\(\) has no Spark equivalent"),
        (None, "expected DDL text or a type, got NoneType"),
        (T.LongType(), "expected DDL text or a type, got LongType"),
    ],
)
def test_other_declarations_are_refused(given: Any, says: str) -> None:
    """The text begins with the argument."""
    with pytest.raises(InvalidInputError, match=f"^output_type: {says}"):
        output_struct(given, "output_type")
