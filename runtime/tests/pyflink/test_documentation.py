"""The examples of the public docstrings, of docs/pyflink.md and of docs/concepts/two-inputs.md run."""

from __future__ import annotations

import doctest
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statefulspark.public_names import HOMES
from statefulspark.testing import (
    BROADCAST,
    BroadcastInput,
    KeyedBroadcastProcessHarness,
    KeyedProcessHarness,
    KeyedTwoInputProcessHarness,
    SecondInput,
)

WITHOUT_SPARK = sorted(home for home in HOMES if not home.startswith("pipeline."))
PAGE = Path(__file__).parents[3] / "docs/pyflink.md"
TWO_INPUTS = Path(__file__).parents[3] / "docs/concepts/two-inputs.md"


@pytest.mark.parametrize("home", WITHOUT_SPARK)
def test_examples_of_docstrings_run(home: str) -> None:
    """Each module of public names that needs no Spark."""
    assert doctest.testmod(import_module(f"statefulspark.{home}")).failed == 0


def test_the_page_s_deduplication_works() -> None:
    """The first example keeps the first row of each key, and the next one an hour later."""
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    orders = pa.schema({"id": pa.string(), "user": pa.string()})
    with KeyedProcessHarness(names["Deduplicate"](), orders, orders, key="id") as harness:
        harness.process_elements([("1", "ada"), ("2", "bob"), ("1", "eve")])
        harness.set_processing_time(3_599_999)
        harness.process_element(("2", "eve"))
        assert harness.get_output() == [("1", "ada"), ("2", "bob")]
        harness.set_processing_time(3_599_999 + 3_600_000)
        harness.process_element(("2", "eve"))
        assert harness.get_output()[2:] == [("2", "eve")]


def test_the_page_s_enrichment_works() -> None:
    """A click gets the name that came before it."""
    code = next(each for each in re.findall(r"```python\n(.*?)```", TWO_INPUTS.read_text(), re.DOTALL) if "class Enrich" in each)
    names: dict[str, Any] = {}
    exec(compile(code, str(TWO_INPUTS), "exec"), names)
    profiles = SecondInput("id STRING, name STRING, changed TIMESTAMP", key="id", event_time="changed")
    clicks, output = "user STRING, page STRING, at TIMESTAMP", "user STRING, page STRING, name STRING"
    with KeyedTwoInputProcessHarness(names["Enrich"](), clicks, profiles, output, key="user", event_time="at") as harness:
        harness.process_element1(("u1", "/"), 5)
        harness.process_element2(("u1", "Ada"), 10)
        harness.process_element1(("u1", "/home"), 20)
        assert harness.get_output() == [("u1", "/", None), ("u1", "/home", "Ada")]


def test_the_page_s_rules_work() -> None:
    """A payment is compared with the limit that came with it or before, until the limit is removed."""
    code = next(each for each in re.findall(r"```python\n(.*?)```", TWO_INPUTS.read_text(), re.DOTALL) if "class OverLimit" in each)
    names: dict[str, Any] = {}
    exec(compile(code, str(TWO_INPUTS), "exec"), names)
    rules = BroadcastInput("currency STRING, limit DOUBLE", names["LIMITS"])
    payments, output = "card STRING, currency STRING, amount DOUBLE", "card STRING, amount DOUBLE"
    with KeyedBroadcastProcessHarness(names["OverLimit"](), payments, rules, output, key="card") as harness:
        harness.process_elements([("c1", "EUR", 5.0), ("c1", "EUR", 11.0), BROADCAST(("EUR", 10.0))])
        harness.process_broadcast_element(("EUR", None))
        harness.process_element(("c1", "EUR", 12.0))
        assert harness.get_output() == [("c1", 11.0)]
