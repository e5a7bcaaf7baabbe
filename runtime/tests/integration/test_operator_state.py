"""Operator state on a real Spark: rows in a buffer of a slot are emitted once, whatever dies, and move with the parallelism."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from statefulspark.checkpoint.inspect.reader import read_state
from statefulspark.checkpoint.inspect.verify import verify

from .operator_state import GROUP_SIZE
from .oracles import Input, files, row
from .work import Work

SCRIPT = Path(__file__).parent / "operator_state.py"


@pytest.fixture
def buffer(work: Work) -> Work:
    work.script = SCRIPT
    work.entrypoint = "buffered"
    work.parameters = {"marker": str(work.folder / "marker")}
    return work


def elements(work: Work, uid: str, state: str) -> list[tuple[int | None, Any]]:
    """Slot and element of each element in the newest checkpoint."""
    return [(entry.slot, entry.value) for entry in read_state(f"{work.storage}/{work.name}", uid, state, unpickle=True)]


def pairs(inputs: list[list[Input]]) -> Counter[tuple[str, int]]:
    return Counter((each["account"], each["amount"]) for rows in inputs for each in rows)


@pytest.mark.exhaustive
def test_buffered_rows_are_emitted_once_through_a_crash_and_two_parallelisms(buffer: Work) -> None:
    """A slot is killed with rows in its buffer; then the job continues with three slots, and with one. Nothing is lost or doubled."""
    inputs = files(seed=4, number=4, rows=30)
    inputs[1].append(row("account-0", 5_000_000, -1))
    for parallelism, written in ((2, inputs[:2]), (3, inputs[2:3]), (1, inputs[3:])):
        for rows in written:
            buffer.write(rows)
        buffer.run(parallelism=parallelism)
        emitted = Counter(buffer.rows())
        kept = [value for _, value in elements(buffer, "buffer", "buffered")]
        so_far = inputs[: inputs.index(written[-1]) + 1]
        assert emitted + Counter(kept) == pairs(so_far), "a row was lost or doubled"
        assert len(kept) <= parallelism * GROUP_SIZE + GROUP_SIZE * 2
        totals = [value for _, value in elements(buffer, "total", "_default_")]
        assert sum(totals) == sum(map(len, so_far))
        assert verify(f"{buffer.storage}/{buffer.name}").problems == ()
    assert (buffer.folder / "marker").exists(), "the slot was killed"
    assert elements(buffer, "buffer", "slots") == [(0, 0)]
