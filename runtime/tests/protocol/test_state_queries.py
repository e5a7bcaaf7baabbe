"""Queries of a running job's state while slots and drivers die: each answer is what a committed batch left, and none is older than one before.

A new driver runs the last batch again if it does not know that Spark has committed it, so its first answers may be those of the batch before.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest
from runtime.tests.depth import left_to_test_all

from statefulspark.coordinator.query.queried_state import StateQuery
from statefulspark.coordinator.query.state_queries import StateQueries
from statefulspark.errors import ClosedError, InvalidInputError, UnavailableError
from statefulspark.keygroups import key_group_of_hash
from statefulspark.testing.key_hash import KeyHash

from .conftest import Start
from .test_lives import _KEYS, Life, rows_of
from .world import KEY_GROUPS, STEP, UID, Driver, World

_SEEDS = [("memory", 1), ("rocksdb", 0), *left_to_test_all([("memory", 0)])]


@pytest.fixture(autouse=True)
def _hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are hashed as the test's rows are, which Spark has not seen."""
    hashes = KeyHash(STEP.inputs[0])
    monkeypatch.setattr(StateQueries, "_key_group", lambda _self, _info, key: key_group_of_hash(hashes.of_key(key), KEY_GROUPS))


class Reader:
    """Reads random keys whenever somebody reaches a point of the protocol, and all the time besides; judges each answer."""

    def __init__(self, world: World, chance: Random) -> None:
        self.world = world
        self.chance = chance
        self.driver: Driver | None = None
        self.answers: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.newest: Counter[str] = Counter()
        self._judging = threading.Lock()
        self._pool = ThreadPoolExecutor(2)
        self._ended = threading.Event()
        self._steady = threading.Thread(target=self._read_on)
        self._steady.start()

    def _read_on(self) -> None:
        while not self._ended.wait(0.01):
            self.read(steady=True)

    def at_point(self) -> None:
        """Read from another thread while this one stands at its point."""
        self._pool.submit(self.read).result()

    def close(self) -> None:
        self._ended.set()
        self._steady.join()
        self._pool.shutdown()

    def read(self, *, steady: bool = False) -> None:
        driver = self.driver
        if driver is None:
            return
        with self._judging:  # one client, which reads one key after the other
            if driver is not self.driver:
                return
            key = f"key-{self.chance.randrange(_KEYS)}"
            known = driver.coordinator._batches.committed
            try:
                answer = driver.coordinator.queries.read(StateQuery(uid=UID, state="number", key=key))
            except (UnavailableError, ClosedError, InvalidInputError) as error:
                self.answers[type(error).__name__] += 1
                return
            number = answer.entries[0].value if answer.entries else 0
            least, most = self._count(driver, key, known), self._count(driver, key, committed(driver))
            if not max(least, self.newest[key]) <= number <= most:
                self.wrong.append(f"{key}: {number}, at least {least} and {self.newest[key]}, at most {most}")
            self.newest[key] = number
            self.answers["steady" if steady else "at a point"] += 1

    def _count(self, driver: Driver, key: str, batch: int) -> int:
        """The oracle: rows of the key in the input up to a batch."""
        if batch < 0:
            return 0
        until = _plan(driver, batch)["until"]
        return sum(each == key for each, _ in self.world.input[:until])


def committed(driver: Driver) -> int:
    """Last batch that Spark has committed."""
    folder = driver.location / "commits"
    return max((int(path.name) for path in folder.iterdir()), default=-1) if folder.exists() else -1


def _plan(driver: Driver, batch: int) -> dict[str, Any]:
    plan: dict[str, Any] = json.loads((driver.location / "offsets" / str(batch)).read_text())
    return plan


class ReadLife(Life):
    """A life whose present driver is read."""

    def __init__(self, reader: Reader, *arguments: Any) -> None:
        self.reader = reader
        super().__init__(*arguments)

    def _started(self) -> Driver:
        with self.reader._judging:
            self.reader.driver = None
            self.reader.newest.clear()
        driver = super()._started()
        self.reader.driver = driver
        return driver


@pytest.mark.parametrize(("world", "seed"), _SEEDS, indirect=["world"])
def test_answers_are_what_committed_batches_left(world: World, start: Start, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever dies when, through checkpoints, retries, rescales and new drivers."""
    chance = Random(seed)
    world.input = rows_of(chance)
    reader = Reader(world, Random(seed))

    def reach(point: str) -> None:
        reader.at_point()
        world.reach(point)

    monkeypatch.setattr("statefulspark.failpoints.reach", reach)
    try:
        life = ReadLife(reader, world, start, chance)
        life.live()
        life.finish()
        driver = life.driver
        found = {}
        for key in {key for key, _ in world.input}:
            answer = driver.coordinator.queries.read(StateQuery(uid=UID, state="number", key=key))
            found[key] = answer.entries[0].value
    finally:
        reader.close()
    assert not reader.wrong, (reader.wrong, world.deaths)
    assert reader.answers["at a point"] > 20, reader.answers
    assert found == Counter(key for key, _ in world.input)


def test_an_ended_driver_refuses(world: World, start: Start) -> None:
    """It no longer knows what is committed."""
    driver = start(1)
    driver.close()
    with pytest.raises(ClosedError):
        driver.coordinator.queries.read(StateQuery(uid=UID, state="number", key="a"))
