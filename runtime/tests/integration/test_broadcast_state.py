"""A broadcast stream on a real Spark: every slot has all rules, through a crash and other parallelisms."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pandas as pd

from statefulspark.checkpoint.inspect.verify import verify

from .oracles import row
from .work import Work

SCRIPT = Path(__file__).parent / "broadcast_rules.py"


class Streams:
    """Writes a file of each source for each batch, and knows what the job makes of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.expected: list[tuple[str, int, int, str]] = []
        self._chance = random.Random(7)
        self._discounts: dict[str, int] = {}
        self._counts: dict[str, int] = {}
        self._clock = 0
        self._files = 0

    def write(self, changes: list[tuple[str, int | None]], orders: int) -> None:
        """The discounts of a batch, in the order of their times but not of their lines, and its orders."""
        lines = []
        for name, n in changes:
            self._clock += 10
            lines.append({"at": row("", self._clock)["at"], "name": name, "n": n})
            if name == "restart":
                self._counts = {}
            elif n is None:
                self._discounts.pop(name, None)
            else:
                self._discounts[name] = n
        discounts = ",".join(f"{name}={n}" for name, n in sorted(self._discounts.items()))
        self._chance.shuffle(lines)
        self._write("discounts", lines)
        rows = []
        for _ in range(orders):
            self._clock += 10
            shop, amount = f"shop-{self._chance.randrange(20)}", self._chance.randrange(1_000)
            self._counts[shop] = self._counts.get(shop, 0) + 1
            self.expected.append((shop, self._counts[shop], amount, discounts))
            rows.append({"shop": shop, "at": row("", self._clock)["at"], "amount": amount})
        self._write("orders", rows)
        self._files += 1

    def _write(self, kind: str, rows: list[Any]) -> None:
        path = self.folder / kind / f"{self._files:04}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden = path.with_name(f".{path.name}")
        hidden.write_text("".join(json.dumps(each) + "\n" for each in rows))
        os.utime(hidden, (1_700_000_000 + self._files,) * 2)  # Spark takes files in order of their times
        hidden.rename(path)


def results(work: Work) -> list[tuple[Any, ...]]:
    return sorted((shop, number, amount, "" if pd.isna(discounts) else discounts) for shop, number, amount, discounts in work.rows())


def test_every_order_sees_the_discounts_of_its_batch(work: Work) -> None:
    """Two slots, then three with a crash among the rules, then one: new slots have the rules of batches that they have not seen."""
    work.script, work.entrypoint = SCRIPT, "discounted"
    work.parameters = {"marker": str(work.folder / "marker")}
    streams = Streams(work.folder / "in")
    streams.write([("a", 1), ("b", 2), ("a", 3)], 30)
    streams.write([("b", None), ("c", 4)], 30)
    work.run(parallelism=2)
    assert results(work) == sorted(streams.expected)
    streams.write([("kill", -1), ("restart", None), ("a", 5)], 30)
    work.run(parallelism=3)
    assert (work.folder / "marker").exists(), "a slot was killed"
    assert results(work) == sorted(streams.expected)
    streams.write([], 30)
    work.run(parallelism=1)
    assert results(work) == sorted(streams.expected)
    assert verify(f"{work.storage}/{work.name}").problems == ()
