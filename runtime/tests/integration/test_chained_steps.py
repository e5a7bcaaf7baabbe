"""Keyed steps after each other on real Spark: what the first one emits from its timers is not late in the next one, and a drain brings all of it."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest

from statefulspark.coordinator.controls import JobState

from .oracles import START_MS, Input, row
from .work import Work

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
GAP_MS = 30 * MINUTE_MS


def clicks(seed: int) -> list[Input]:
    """A day of clicks in order."""
    chance = random.Random(seed)
    found: list[tuple[int, str]] = []
    for account in range(8):
        at_ms = chance.randrange(HOUR_MS)
        while at_ms < DAY_MS:
            found.append((at_ms, f"u{account}"))
            at_ms += int(chance.expovariate(1 / (25 * MINUTE_MS)))
    return [row(account, at_ms) for at_ms, account in sorted(found)]


def session_hours(rows: list[Input], times_ms: list[int]) -> list[tuple[str, int, int, int]]:
    """Sessions and clicks by the hour in which the session ends."""
    last: dict[str, tuple[int, int]] = {}
    ended: list[tuple[int, int]] = []
    for each, at_ms in zip(rows, times_ms, strict=True):
        number, end_ms = last.get(each["account"], (0, at_ms))
        if number and at_ms >= end_ms:
            ended.append((end_ms, number))
            number = 0
        last[each["account"]] = (number + 1, at_ms + GAP_MS)
    ended += [(end_ms, number) for number, end_ms in last.values()]
    sessions, total = Counter[int](), Counter[int]()
    for end_ms, number in ended:
        sessions[end_ms // HOUR_MS] += 1
        total[end_ms // HOUR_MS] += number
    return [("sessions", START_MS + hour * HOUR_MS, sessions[hour], total[hour]) for hour in sessions]


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_all_sessions_come_out_of_their_hours(work: Work, seed: int) -> None:
    """Through a restart with another number of slots; and rows that are late are counted, once, where they are dropped."""
    work.script, work.entrypoint = Path(__file__).with_name("chained_steps.py"), "chained"
    rows = clicks(seed)
    times_ms = [_ms(each) for each in rows]
    per = len(rows) // 5 + 1
    parts = [rows[first : first + per] for first in range(0, len(rows), per)]
    for part in parts[:3]:
        work.write(part)
    work.run()
    assert {name for name, *_ in work.rows()} == {"sessions"}, "no day has passed"
    parts[3].append(row("late", times_ms[0], shop="windows"))
    for part in parts[3:]:
        work.write(part)
    job = work.start(until_idle=True, drain=True, parallelism=3)
    assert job.wait(240) is JobState.FINISHED, job.status().error
    got = work.rows()
    assert [each for each in got if each[0] == "sessions"] == sorted(session_hours(rows, times_ms))
    assert [each for each in got if each[0] == "rows"] == [("rows", START_MS, len({at_ms // HOUR_MS for at_ms in times_ms}), len(rows))]
    late = {sample.labels["uid"]: sample.value for sample in job.metrics() if sample.name == "step_late_rows_dropped" and sample.value}
    assert late == {"minutes": 1}


def _ms(each: Input) -> int:
    return int(datetime.fromisoformat(each["at"]).timestamp() * 1000) - START_MS
