"""Small functions on keyed streams, in a real query."""

from __future__ import annotations

from pathlib import Path

import pytest

from .oracles import Input, files
from .work import Work


def summed(rows: list[Input]) -> list[tuple[str, str, int]]:
    """What the pipeline emits for rows in event-time order, with plain dicts."""
    seen: set[str] = set()
    sums: dict[str, tuple[str, int]] = {}
    emitted = []
    for row in rows:
        key = row["account"].upper()
        if key in seen:
            account, total = sums.get(row["shop"], (row["account"], 0))
            sums[row["shop"]] = account, total + row["amount"]
            emitted.append((row["shop"], account, total + row["amount"]))
        seen.add(key)
    return emitted


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_pipeline_of_small_functions_keeps_its_state_when_rescaled(work: Work) -> None:
    """A key that Spark computes, state of a filter function and of a sum, and an output declared with Types; restarted with more slots."""
    work.script, work.entrypoint = Path(__file__).parent / "transformations.py", "pipeline"
    inputs = files(seed=11, number=4)
    for rows in inputs[:2]:
        work.write(rows)
    work.run()
    for rows in inputs[2:]:
        work.write(rows)
    work.run(parallelism=3)
    expected = summed([row for rows in inputs for row in rows])
    assert work.rows() == sorted(expected)
    sums = {shop: (account, total) for shop, account, total in expected}
    assert {key: (value["account"], value["amount"]) for key, value in work.state("sums", "_sum(amount)")} == sums
