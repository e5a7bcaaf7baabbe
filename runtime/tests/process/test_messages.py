"""How messages name the types of Python values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

import statefulspark
from statefulspark.errors import type_name


@pytest.mark.parametrize(
    ("kind", "named"), [(int, "an int"), (str, "a str"), (OSError, "an OSError"), (Mapping, "a Mapping"), (type("UUID", (), {}), "a UUID")]
)
def test_a_type_has_its_article(kind: type, named: str) -> None:
    """Nothing is "a int"."""
    assert type_name(kind) == named


def test_no_message_writes_an_article_of_its_own() -> None:
    """An article before the name of a type that is only known when the message is made is wrong for half of the types."""
    written = re.compile(r"\b[Aa]n? \{[^}]*__name__\}")
    package = Path(statefulspark.__file__).parent
    found = [str(path) for path in package.rglob("*.py") if written.search(path.read_text())]
    assert found == []
