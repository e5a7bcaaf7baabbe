"""The public classes have PyFlink's names and signatures, except where ``differences.py`` says why not."""

from __future__ import annotations

import json
import urllib.error
from collections import Counter

import pytest

import statefulspark

from .comparison import differences
from .differences import DIFFERENCES
from .signatures import TABLE, Classes, download, table_of, written


@pytest.fixture(scope="module")
def classes() -> Classes:
    """PyFlink's classes, as the table has them."""
    return dict(json.loads(TABLE.read_text())["classes"])


def test_every_difference_is_listed_with_its_reason(classes: Classes) -> None:
    """A new difference fails, and so does a listed one that no longer exists."""
    listed = Counter(line for lines in DIFFERENCES.values() for line in lines)
    found = differences(classes)
    assert sorted(found - listed.keys()) == [], "not listed in differences.py"
    assert sorted(listed.keys() - found) == [], "listed in differences.py, but no longer a difference: remove the line"
    assert [line for line, count in listed.items() if count > 1] == []


@pytest.mark.parametrize(
    ("name", "members", "difference"),
    [
        (
            "TimerService",
            {"current_watermark": "(self, key)"},
            "differs: TimerService.current_watermark is (self, key) in PyFlink, (self) here",
        ),
        ("TimerService", {"now": "(self)"}, "only in PyFlink: TimerService.now"),
        ("Types", {"LONG": "()"}, "differs: Types.LONG is () in PyFlink, static () here"),
        ("MapFunction", {"map": "attribute"}, "differs: MapFunction.map is attribute in PyFlink, (self, value) here"),
        ("NoSuchClass", {}, "only in PyFlink: NoSuchClass"),
        (
            "StateTtlConfig.Builder",
            {"build": "(self, x=1)"},
            "differs: StateTtlConfig.Builder.build is (self, x=1) in PyFlink, (self) here",
        ),
    ],
)
def test_the_comparison_sees(classes: Classes, name: str, members: dict[str, str], difference: str) -> None:
    """Another parameter, kind of member or class, nested or not, is a difference."""
    known = classes.get(name, {"bases": [], "members": {}})
    changed = classes | {name: {**known, "members": known["members"] | members}}
    assert differences(changed) - differences(classes) == {difference}


def test_the_comparison_sees_missing_bases_and_extra_names(classes: Classes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A base class that PyFlink's has and ours has not, and members and classes that only we have, are differences."""
    before = differences(classes)
    other_base = classes | {"Time": {**classes["Time"], "bases": ["State"]}}
    assert "differs: Time is a State in PyFlink" in differences(other_base) - before
    without = {name: described for name, described in classes.items() if name != "Counter"}
    assert differences(without) - before == {"only here: Counter"}
    monkeypatch.setattr(statefulspark.Time, "weeks", staticmethod(lambda weeks: weeks), raising=False)
    assert differences(classes) - before == {"only here: Time.weeks"}


@pytest.mark.exhaustive
def test_the_table_is_that_of_the_release_on_pypi() -> None:
    """Reading the pinned release again gives the stored table, to the byte."""
    try:
        archive = download()
    except urllib.error.URLError as error:
        pytest.skip(f"PyPI cannot be reached: {error}")
    assert written(table_of(archive)) == TABLE.read_text()
