"""`docs/benchmarks.md` keeps what other benchmarks and people wrote there; kept results read back as they were."""

from __future__ import annotations

import dataclasses

import pytest
from document import with_result
from results import Load, Result, Table, Target, from_json


def result(name: str = "speed", measured: float = 30.0, *, at_least: bool = True) -> Result:
    return Result(
        name=name,
        title=name.title(),
        about="What it is.",
        command=f"bench/{name}.py",
        started="2026-11-21T08:00:00+00:00",
        seconds=12.0,
        machine="2 cores",
        commit="abc",
        loads=(Load(before="ours 1", load_1m=0.5, busy=0.1),),
        targets=(Target(what=f"target of {name}", wanted=25.0, measured=measured, unit="x", at_least=at_least),),
        tables=(Table(columns=("a", "b"), rows=(("1 | 2", "3"),)),),
        figures={"rates": {"ours": [1.5]}},
        plot=f"{name}.png",
    )


def test_a_section_is_replaced_and_nothing_else_is_touched() -> None:
    """Words between the sections stay, sections keep their order, and a section exists once however often it is put in."""
    text = with_result(with_result("", result("speed"), pictures="images"), result("soak"), pictures="images")
    by_hand = text.replace("<!-- soak: begin -->", "Profile of the slot: see above.\n\n<!-- soak: begin -->")
    again = with_result(by_hand, result("speed", 20.0), pictures="images")
    assert again.replace("20.0 x", "30.0 x").replace("**missed by 20%**", "met by 20%") == by_hand
    assert again.index("## Speed") < again.index("Profile of the slot") < again.index("## Soak")
    assert with_result(again, result("speed"), pictures="images") == by_hand


def test_the_summary_has_every_target_with_its_newest_verdict() -> None:
    text = with_result(with_result("", result("speed"), pictures="images"), result("soak"), pictures="images")
    text = with_result(text, result("speed", 20.0), pictures="images")
    summary = text[: text.index("## Speed")]
    assert summary.count("target of speed") == summary.count("target of soak") == 1
    assert "| target of speed | at least 25 x | 20.0 x | **missed by 20%** |" in summary
    assert text.count("target of speed") == 2


@pytest.mark.parametrize(
    ("measured", "at_least", "said"), [(30, True, "met"), (20, True, "missed"), (20, False, "met"), (30, False, "missed")]
)
def test_a_verdict_knows_which_way_is_better(measured: float, at_least: bool, said: str) -> None:
    assert result(measured=measured, at_least=at_least).targets[0].verdict == f"{said} by 20%"


@pytest.mark.parametrize(("measured", "told"), [(1234.5, "1,234 x"), (30.04, "30.0 x"), (0.0542, "0.054 x")])
def test_a_figure_is_told_with_the_digits_it_needs(measured: float, told: str) -> None:
    assert f"| at least 25 x | {told} |" in with_result("", result(measured=measured), pictures="images")


def test_a_kept_result_reads_back() -> None:
    assert from_json(result().to_json()) == result()


def test_a_result_of_another_version_is_refused() -> None:
    with pytest.raises(ValueError, match="run the benchmark again"):
        from_json(dataclasses.replace(result(), version=2).to_json())
