"""How many requests a job makes to S3: the table of docs/how-to/s3.md is what an S3 server counted here."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from runtime.tests.counted_s3 import Requests, counted_s3
from runtime.tests.s3_server import ACCESS_KEY, BUCKET

from statefulspark.checkpoint.lineage.identity import ensure_job
from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.rpc.messages.batches import Acknowledge
from statefulspark.storage.open import open_store
from statefulspark.storage.storage_settings import StorageSettings
from statefulspark.testing.inputs import ExchangeRows
from statefulspark.testing.local_job import JOB

from .changing import ChangingDriver, ChangingWorld

DOCS = Path(__file__).parents[3] / "docs" / "how-to" / "s3.md"
CASES: list[tuple[int, int, str, dict[str, Any], int]] = [
    (1, 1, "`exactly-once`", {}, 2),
    (4, 3, "`exactly-once`", {}, 1 + 4 * 3),
    (4, 3, "with `changelogInlineThreshold`", {"inline": 1 << 20}, 2),
    (4, 3, "`at-least-once`", {"at_least_once": True}, 1),
]
"""Slots, uids, name of the mode, options of `measured`, and PUTs of a batch by the formula."""
_BATCHES = 2
_UIDS = ("a", "b", "c")
_KINDS = ("PUT", "COPY", "POST", "LIST", "GET", "HEAD", "DELETE")


@dataclass(kw_only=True)
class S3World(ChangingWorld):
    """A job whose folder is in a bucket."""

    settings: StorageSettings

    def __post_init__(self) -> None:
        self.store = open_store(f"s3://{BUCKET}/{self.folder.name}/{JOB}", self.settings)
        ensure_job(self.store, JOB, self.step.max_parallelism)
        self._rows = ExchangeRows(self.step)


class CountedDriver(ChangingDriver):
    """Makes no requests of its own, as other tests do to look for what must be there."""

    def _acknowledged(self, ack: Acknowledge) -> None:
        self._take_acknowledgement(ack)

    def check_durable(self) -> None:
        pass


@dataclass(frozen=True)
class Costs:
    """Requests by kind."""

    batch: Counter[str]
    """Of one batch with rows in every slot."""
    checkpoint: Counter[str]
    """Of the second checkpoint, with the deletion of the first."""
    start: Counter[str]
    """Of a driver and its slots that start from a checkpoint and the batches after it."""


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[StorageSettings, Requests]]:
    with counted_s3() as (s3, requests):
        yield (
            StorageSettings(endpoint=s3.endpoint, region="us-east-1", access_key_id=ACCESS_KEY, secret_access_key=ACCESS_KEY),
            requests,
        )


def begin(driver: CountedDriver) -> int:
    """Plan the next batch and write its record."""
    batch = driver.plan(64)
    assert batch is not None
    driver.begin()
    return batch


def measured(
    server: tuple[StorageSettings, Requests], folder: Path, slots: int, uids: int, *, inline: int = 0, at_least_once: bool = False
) -> Costs:
    settings, requests = server
    world = S3World(folder=folder, settings=settings, backend="rocksdb", at_least_once=at_least_once)
    world.inline_up_to(inline)
    world.input = [(f"key-{n % 64}", n) for n in range(64 * 16)]
    steps = _UIDS[:uids]
    driver = CountedDriver(world, steps, slots)
    try:
        # The first batch of a job opens more than the others.
        driver.run(begin(driver))
        driver.run(begin(driver))
        assert isinstance(driver.checkpoint(), CheckpointInfo)
        batch = begin(driver)
        requests.take()
        for _ in range(_BATCHES):
            driver.run(batch)
            batch = begin(driver)
        batches = requests.take()
        driver.run(batch)
        driver.complete()
        requests.take()
        info = driver.checkpoint()
        assert isinstance(info, CheckpointInfo)
        checkpoint = requests.take()
        batch = begin(driver)
        for _ in range(_BATCHES):
            driver.run(batch)
            batch = begin(driver)
        driver.run(batch)
    finally:
        driver.close()
    requests.take()
    again = CountedDriver(world, steps, slots)
    again.close()
    assert all(count % _BATCHES == 0 for count in batches.values()), batches
    return Costs(Counter({kind: count // _BATCHES for kind, count in batches.items()}), checkpoint, requests.take())


def told(requests: Counter[str]) -> str:
    """As the documentation writes it."""
    return ", ".join(f"{requests[kind]} {kind}" for kind in _KINDS if requests[kind])


@pytest.mark.parametrize(("slots", "uids", "name", "options", "puts"), CASES)
def test_the_documented_requests_are_those_that_a_server_counts(
    server: tuple[StorageSettings, Requests], tmp_path: Path, slots: int, uids: int, name: str, options: dict[str, Any], puts: int
) -> None:
    """And what batches cost follows the formula there."""
    costs = measured(server, tmp_path, slots, uids, **options)
    assert costs.batch == Counter(PUT=puts, GET=1, HEAD=1)
    row = f"| {slots} | {uids} | {name} | {told(costs.batch)} | {told(costs.checkpoint)} | {told(costs.start)} |"
    assert row in DOCS.read_text().splitlines()


def test_the_documented_dollars_follow_from_the_requests() -> None:
    """4 slots, 3 uids, a batch per second and a checkpoint per minute, for 30 days."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in DOCS.read_text().splitlines() if line.startswith("|")]
    requests = {row[2]: [_parsed(cell) for cell in row[3:5]] for row in rows if row[:2] == ["4", "3"]}
    dollars = {row[0]: row[1:] for row in rows if row[0] in {name for _, _, name, _, _ in CASES} and row[1].startswith("$")}
    assert len(requests) == len(dollars) == 3
    for name, (batch, checkpoint) in requests.items():
        wanted = [_month(batch, every_s, checkpoint) for every_s in (1, 10)]
        assert dollars[name] == [f"${each:,.0f}" for each in wanted], name


def _parsed(text: str) -> Counter[str]:
    return Counter({kind: int(count) for count, kind in re.findall(r"(\d+) ([A-Z]+)", text)})


def _month(batch: Counter[str], every_s: int, checkpoint: Counter[str]) -> float:
    """Dollars, by the list prices in the documentation."""
    seconds = 30 * 86_400
    return seconds / every_s * _price(batch) + seconds / 60 * _price(checkpoint)


def _price(requests: Counter[str]) -> float:
    return ((requests["PUT"] + requests["COPY"] + requests["LIST"]) * 0.005 + (requests["GET"] + requests["HEAD"]) * 0.0004) / 1000
