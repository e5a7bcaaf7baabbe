"""A job whose pipeline changes between two runs: every step goes on with its state, and every source with its position."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from statefulspark.checkpoint.formats.pipeline import EXACT
from statefulspark.coordinator.durable.durable_job import DurableJob

from .oracles import files
from .work import Work

Row = dict[str, Any]


def _write(work: Work, folder: str, name: str, rows: list[Row]) -> None:
    path = work.folder / "in" / folder
    path.mkdir(parents=True, exist_ok=True)
    (path / f"{name}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def _numbered(step: str, keys: list[str]) -> list[tuple[str, str, int]]:
    seen: Counter[str] = Counter()
    result = []
    for key in keys:
        seen[key] += 1
        result.append((step, key, seen[key]))
    return result


@pytest.mark.exhaustive
def test_a_job_of_a_release_that_did_not_store_its_pipeline(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its int key keeps the hash under which its state was stored, and a step can be added to its only source."""
    work.script = Path(__file__).parent / "evolving.py"
    ones = files(seed=53, number=2)
    with monkeypatch.context() as earlier:
        earlier.setattr("statefulspark.pipeline.job.WIDENED", EXACT)
        earlier.setattr(DurableJob, "pipeline", property(lambda _: None, lambda _, __: None), raising=False)
        work.entrypoint = "only_amounts"
        _write(work, "one", "0", ones[0])
        work.run()
    work.entrypoint = "first"
    _write(work, "one", "1", ones[1])
    work.run()
    amounts = _numbered("amounts", [str(row["amount"]) for rows in ones for row in rows])
    assert work.rows() == sorted(amounts + _numbered("accounts", [row["account"] for row in ones[1]]))


def test_steps_and_sources_are_added_dropped_and_change_places(work: Work) -> None:
    """Rows are numbered without a gap and without a repetition for every key of every step, through all three versions."""
    work.script = Path(__file__).parent / "evolving.py"
    work.spec = {"allowNonRestoredState": True}
    ones, twos = files(seed=51, number=3), files(seed=52, number=3)
    for run, entrypoint in enumerate(("first", "second", "third")):
        work.entrypoint = entrypoint
        _write(work, "one", f"{run}", ones[run])
        _write(work, "two", f"{run}", twos[run])
        work.run()
    read = {"accounts": ("account", ones), "amounts": ("amount", ones[:2]), "shops": ("shop", twos)}
    expected = [
        row for step, (column, inputs) in read.items() for row in _numbered(step, [str(row[column]) for rows in inputs for row in rows])
    ]
    assert work.rows() == sorted(expected)
