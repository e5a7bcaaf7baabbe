"""Every kind of state on every state backend, through a restart with another number of slots."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from .oracles import Input, files
from .work import Work


def expected_states(inputs: list[list[Input]]) -> list[tuple[str, str]]:
    """What ``AllStates`` gives out; ``seen`` lives for less than the time between two files."""
    amounts: dict[str, list[int]] = defaultdict(list)
    shops: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    out = []
    for rows in inputs:
        seen: dict[str, int] = defaultdict(int)
        for row in rows:
            key = row["account"]
            seen[key] += 1
            amounts[key].append(row["amount"])
            shops[key][row["shop"]] += 1
            state: dict[str, Any] = {
                "seen": seen[key],
                "amounts": list(amounts[key]),
                "shops": dict(sorted(shops[key].items())),
                "largest": max(amounts[key]),
                "mean": sum(amounts[key]) / len(amounts[key]),
            }
            out.append((key, json.dumps(state)))
    return sorted(out)


# A slot keeps `filesystem` in the same store as `memory`, as state/test_stores.py shows.
@pytest.mark.parametrize("backend", [*(pytest.param(each, marks=pytest.mark.exhaustive) for each in ("memory", "filesystem")), "rocksdb"])
def test_all_kinds_of_state_go_on_after_a_restart_and_expire_by_the_jobs_clock(work: Work, backend: str) -> None:
    """Value with time to live, list, map, reducing and aggregating state; the second run has three slots and a clock an hour ahead."""
    work.script, work.entrypoint = Path(__file__).parent / "every_state.py", "all_states"
    work.spec = {"stateBackend": {"type": backend}}
    inputs = files(seed=10, number=2)
    work.write(inputs[0])
    work.run()
    work.write(inputs[1])
    work.shift_clock(hours=1)
    work.run(parallelism=3)
    assert work.rows() == expected_states(inputs)
    largest: dict[str, int] = defaultdict(int)
    for row in [row for rows in inputs for row in rows]:
        largest[row["account"]] = max(largest[row["account"]], row["amount"])
    assert work.state("all", "largest") == sorted(largest.items())
