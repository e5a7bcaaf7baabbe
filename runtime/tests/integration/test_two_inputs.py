"""Two keyed inputs on a real Spark: a join as of event time, through a crash, other parallelisms, and a release that brings the second input."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from statefulspark.checkpoint.inspect.verify import verify

from .oracles import START_MS, row
from .work import Work

SCRIPT = Path(__file__).parent / "two_inputs.py"
_SHOPS = 8


class Streams:
    """Writes files of both sources, and knows what the join makes of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.orders: list[tuple[int, str, int]] = []
        self.prices: list[tuple[int, str, int]] = []
        self._chance = random.Random(12)
        self._clock = 0
        self._files = 0

    def write(self, *, orders: int, prices: int, fatal: bool = False) -> None:
        """One file of each input that has rows; many rows have equal times, across inputs too."""
        new: dict[str, list[Any]] = {"orders": [], "prices": []}
        kinds = ["orders"] * orders + ["prices"] * prices
        self._chance.shuffle(kinds)
        last_price = max((place for place, kind in enumerate(kinds) if kind == "prices"), default=-1)
        for place, kind in enumerate(kinds):
            self._clock += self._chance.choice((0, 0, 200))
            value = -1 if fatal and place == last_price else self._chance.randrange(1_000_000)
            new[kind].append((self._clock, f"shop-{self._chance.randrange(_SHOPS)}", value))
        self._clock += 200
        for kind, rows in new.items():
            getattr(self, kind).extend(rows)
            if rows:
                self._write(kind, rows)
        self._files += 1

    def _write(self, kind: str, rows: list[tuple[int, str, int]]) -> None:
        names = ("shop", "amount") if kind == "orders" else ("store", "price")
        lines = [json.dumps({"at": row("", at)["at"], names[0]: shop, names[1]: value}) + "\n" for at, shop, value in rows]
        path = self.folder / kind / f"{self._files:04}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden = path.with_name(f".{path.name}")
        hidden.write_text("".join(lines))
        os.utime(hidden, (1_700_000_000 + self._files,) * 2)  # Spark takes files in order of their times
        hidden.rename(path)

    def expected(self, *, without_prices: int = 0) -> list[tuple[str, int, int, int | None]]:
        """Each order with its number and the latest price before it; the first so many orders were joined with nothing."""
        numbers: dict[str, int] = {}
        latest: dict[str, int] = {}
        joined = []
        first = [(at, 0, place, shop, amount) for place, (at, shop, amount) in enumerate(self.orders)]
        second = [(at, 1, place, shop, price) for place, (at, shop, price) in enumerate(self.prices)]
        for _, kind, place, shop, value in sorted(first + second):
            if kind:
                latest[shop] = value
                continue
            numbers[shop] = numbers.get(shop, 0) + 1
            joined.append((shop, numbers[shop], value, None if place < without_prices else latest.get(shop)))
        return sorted(joined, key=repr)


@pytest.fixture
def join(work: Work) -> Work:
    work.script = SCRIPT
    work.entrypoint = "joined"
    work.parameters = {"marker": str(work.folder / "marker")}
    return work


def results(work: Work) -> tuple[list[Any], list[tuple[str, int]]]:
    """Joined orders, and shop and time of the timers that have fired."""
    rows = [(shop, number, amount, None if pd.isna(price) else int(price)) for shop, number, amount, price in work.rows()]
    return sorted((each for each in rows if each[1]), key=repr), sorted((shop, at) for shop, number, at, _ in rows if not number)


def test_a_second_input_comes_to_a_running_job(join: Work) -> None:
    """Orders are numbered without prices; then prices come with a third slot, a slot is killed, and the job continues with one."""
    streams = Streams(join.folder / "in")
    join.entrypoint = "counted"
    streams.write(orders=30, prices=0)
    join.run(parallelism=2)
    join.entrypoint = "joined"
    before = len(streams.orders)
    timers: list[tuple[str, int]] = []
    for parallelism, prices in ((3, 20), (1, 15)):
        streams.write(orders=25, prices=prices, fatal=parallelism == 3)
        join.run(parallelism=parallelism)
        orders, timers = results(join)
        assert orders == streams.expected(without_prices=before)
        # The slower input is prices, whose watermark is half a second behind.
        end = min(streams.orders[-1][0], streams.prices[-1][0] - 500)
        assert timers == sorted({(shop, START_MS + at + 1_000) for at, shop, _ in streams.prices if at + 1_000 <= end})
        assert verify(f"{join.storage}/{join.name}").problems == ()
    assert (join.folder / "marker").exists(), "the slot was killed"
    assert len(timers) > 0
