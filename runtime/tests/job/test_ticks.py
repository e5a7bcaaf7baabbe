"""Before Spark runs a batch, the tick source has the coordinator make it durable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from statefulspark.errors import FencedError, StatefulSparkError, UnavailableError
from statefulspark.exchange.config import Endpoint
from statefulspark.exchange.flight import FlightService
from statefulspark.job.ticks import TickReader

Answer = dict[str, Any] | Exception


class Coordinator:
    """Gives the answers it was told to give, one by one."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.service = FlightService("grpc+tcp://127.0.0.1:0", "s", {"planned": self.planned})

    def planned(self, body: dict[str, Any]) -> dict[str, Any]:
        assert body == {}
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def reader(self) -> TickReader:
        return TickReader(Endpoint(location=f"grpc+tcp://127.0.0.1:{self.service.port}", secret="s"), "uid")


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    made = Coordinator()
    yield made
    made.service.shutdown()


def test_a_batch_waits_as_long_as_it_is_told_to(coordinator: Coordinator) -> None:
    """Also when storage fails now and then in between."""
    coordinator.answers = [
        {"wait": "paused"},
        *[UnavailableError("storage")] * 3,
        {"wait": "paused"},
        *[UnavailableError("storage")] * 3,
        {},
    ]
    coordinator.reader().commit({"tick": 0})
    assert coordinator.answers == []


@pytest.mark.parametrize(("error", "times"), [(UnavailableError, 4), (FencedError, 1)])
def test_a_batch_that_must_not_run_fails(coordinator: Coordinator, error: type[StatefulSparkError], times: int) -> None:
    """When storage does not answer, or another driver has taken over: the query ends with that error."""
    coordinator.answers = [*[error("storage is gone")] * times, {}]
    with pytest.raises(error, match="storage is gone"):
        coordinator.reader().commit({"tick": 0})
    assert coordinator.answers == [{}]
