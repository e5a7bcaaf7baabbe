"""Input rows, and what the pipelines must make of them, computed with plain dicts."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

START = datetime(2026, 1, 1, tzinfo=UTC)
START_MS = int(START.timestamp() * 1000)
Input = dict[str, Any]
Counted = tuple[str, int, int]


def row(account: str, at_ms: int, amount: int = 1, shop: str = "s") -> Input:
    """One input row, ``at_ms`` after the start."""
    return {"account": account, "at": (START + timedelta(milliseconds=at_ms)).isoformat(), "amount": amount, "shop": shop}


def files(*, seed: int, number: int = 3, rows: int = 40, accounts: int = 15) -> list[list[Input]]:
    """Files of rows in event-time order, no two rows at the same time."""
    chance = random.Random(seed)
    clock = iter(range(10, 10_000_000, 10))
    return [
        [
            row(f"account-{chance.randrange(accounts)}", next(clock), chance.randrange(100), f"shop-{chance.randrange(7)}")
            for _ in range(rows)
        ]
        for _ in range(number)
    ]


def counted(rows: Iterable[tuple[str, int]]) -> list[Counted]:
    """What ``Count`` gives out for (key, amount) in event-time order."""
    numbers: dict[str, int] = defaultdict(int)
    totals: dict[str, int] = defaultdict(int)
    out = []
    for key, amount in rows:
        numbers[key] += 1
        totals[key] += amount
        out.append((key, numbers[key], totals[key]))
    return out


def by(key: str, inputs: Sequence[Sequence[Input]]) -> list[tuple[str, int]]:
    """(key, amount) of each row."""
    return [(each[key], each["amount"]) for rows in inputs for each in rows]


def finals(rows: Iterable[Counted], column: int) -> list[tuple[str, int]]:
    """The last value per key: what the state holds at the end."""
    return sorted({each[0]: int(each[column]) for each in rows}.items())
