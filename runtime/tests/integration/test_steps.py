"""Several keyed steps in one query, and sinks that are not files."""

from __future__ import annotations

import json

from .oracles import by, counted, files, finals
from .work import Work


def test_a_second_step_is_keyed_by_what_the_first_gives_out(work: Work) -> None:
    """Both steps see every row once, in event-time order per key of their own, and keep their own state under the same name."""
    work.entrypoint = "chained"
    inputs = files(seed=1)
    for rows in inputs:
        work.write(rows)
    status = work.run()
    first = counted(by("account", inputs))
    second = counted((each["shop"], total) for each, (_, _, total) in zip([r for rows in inputs for r in rows], first, strict=True))
    assert work.rows() == sorted(second)
    assert work.state("by-account", "total") == finals(first, 2)
    assert work.state("by-shop", "total") == finals(second, 2)
    assert status.input_rows == 2 * len(first)


def test_two_branches_share_the_slots_and_one_stage(work: Work) -> None:
    """A union puts both steps' tasks into one stage: partition numbers of it are no slot numbers, and a slot serves both at once."""
    work.entrypoint = "branches"
    inputs = files(seed=2)
    for rows in inputs:
        work.write(rows)
    work.run()
    accounts, shops = counted(by("account", inputs)), counted(by("shop", inputs))
    assert work.rows() == sorted(accounts + shops)
    assert work.state("accounts", "number") == finals(accounts, 1)
    assert work.state("shops", "number") == finals(shops, 1)


def test_a_sink_that_evaluates_its_batch_twice_changes_state_once(work: Work) -> None:
    """ForeachBatch may count, then write: each evaluation sees the same rows, and the state has seen each row once."""
    work.entrypoint = "counted_twice"
    inputs = files(seed=3)
    for rows in inputs:
        work.write(rows)
    work.run()
    parts = [json.loads(path.read_text()) for path in sorted((work.folder / "out").glob("*.json"))]
    expected = counted(by("account", inputs))
    assert [part["count"] for part in parts] == [len(part["rows"]) for part in parts]
    assert sorted(tuple(row) for part in parts for row in part["rows"]) == sorted(expected)
    assert work.state("count", "number") == finals(expected, 1)
