"""Configuration reads settings as PyFlink's getters do, and refuses what it would have to guess."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark import Configuration
from statefulspark.errors import InvalidInputError

DOUBTFUL = [
    "",
    " ",
    "ten",
    "1 2",
    "1_000",
    "0x10",
    "1.5.2",
    "32kb",
    "nan",
    "inf",
    "-inf",
    "1e999",
    "\x00",
    "on",
    "yes",
    "1",
    "t",
    "²",
    "9" * 5000,
]
GETTERS: list[tuple[Callable[[Configuration], object], Callable[[str], object]]] = [
    (lambda found: found.get_integer("my.setting", -7), lambda text: int(text) if text == "1" else None),
    (lambda found: found.get_float("my.setting", -7.0), lambda text: 1.0 if text == "1" else None),
    (lambda found: found.get_boolean("my.setting", True), lambda text: None),
]


@given(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.text())
def test_what_was_written_is_read(number: int, share: float, flag: bool, text: str) -> None:
    """As the manifest writes YAML's scalars: ``str``, and true and false in small letters."""
    found = Configuration({"a.number": str(number), "a.share": str(share), "a.flag": "true" if flag else "false", "a.text": text})
    assert found.get_integer("a.number", number + 1) == number
    assert math.copysign(1, found.get_float("a.share", share + 1)) == math.copysign(1, share)
    assert found.get_float("a.share", share + 1) == share
    assert found.get_boolean("a.flag", not flag) is flag
    assert found.get_string("a.text", text + "x") == text
    assert found.contains_key("a.text")


def test_defaults_hold_for_what_is_not_given() -> None:
    """Each of its kind; an empty text is given."""
    empty = Configuration()
    assert (empty.get_string("a", "x"), empty.get_integer("a", 0), empty.get_float("a", 0.5), empty.get_boolean("a", False)) == (
        "x",
        0,
        0.5,
        False,
    )
    assert not empty.contains_key("a")
    assert Configuration({"a": ""}).get_string("a", "x") == ""


@pytest.mark.parametrize("text", DOUBTFUL)
def test_what_is_no_number_and_no_boolean_is_refused(text: str) -> None:
    """Naming the setting as the manifest does, with the remedy, and not repeating the text, which may be secret."""
    for read, expected in GETTERS:
        value = expected(text)
        if value is not None:
            assert read(Configuration({"my.setting": text})) == value
            continue
        with pytest.raises(InvalidInputError) as caught:
            read(Configuration({"my.setting": text}))
        assert caught.value.field == "spec.stateBackend.options.my.setting"
        assert caught.value.remedy
        assert len(text) < 2 or text not in caught.value.message


def test_nobody_can_change_it() -> None:
    """Neither through what it was made of nor through what it gives out."""
    settings = {"a.b": "1"}
    found = Configuration(settings)
    settings["a.b"] = "2"
    found.to_dict()["a.b"] = "3"
    assert found.to_dict() == {"a.b": "1"}


@pytest.mark.parametrize("wrong", [{"a.b": 1}, {1: "a"}, {"a.b": None}])
def test_only_text_is_taken(wrong: dict[Any, Any]) -> None:
    """A unit test of a factory meets the types that a slot will."""
    with pytest.raises(InvalidInputError, match=r"^Configuration: expected text for names and settings, found an? \w+\. Use str\(\)$"):
        Configuration(wrong)
