"""Before Spark runs a batch, the tick source has the coordinator make it durable."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from statefulspark.errors import FencedError, StatefulSparkError, UnavailableError
from statefulspark.exchange.endpoint import Endpoint
from statefulspark.pipeline.tick_reader import TickReader
from statefulspark.rpc.listener import FlightListener
from statefulspark.rpc.messages.batches import Planned, Wait

Answer = Wait | Exception | None


class Coordinator:
    """Gives the answers it was told to give, one by one."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.service = FlightListener(None, "s", [Planned.served_by(self.planned)])

    def planned(self, _: Planned) -> Wait | None:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def reader(self) -> TickReader:
        return TickReader(Endpoint(location=self.service.location, secret="s"), "uid")


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    made = Coordinator()
    yield made
    made.service.shutdown()


def test_a_batch_waits_as_long_as_it_is_told_to(coordinator: Coordinator) -> None:
    """Also when storage fails now and then in between."""
    coordinator.answers = [
        Wait(reason="paused"),
        *[UnavailableError("storage")] * 3,
        Wait(reason="paused"),
        *[UnavailableError("storage")] * 3,
        None,
    ]
    coordinator.reader().commit({"tick": 0})
    assert coordinator.answers == []


@pytest.mark.parametrize(("error", "times"), [(UnavailableError, 4), (FencedError, 1)])
def test_a_batch_that_must_not_run_fails(coordinator: Coordinator, error: type[StatefulSparkError], times: int) -> None:
    """When storage does not answer, or another driver has taken over: the query ends with that error."""
    coordinator.answers = [*[error("storage is gone")] * times, None]
    with pytest.raises(error, match="storage is gone"):
        coordinator.reader().commit({"tick": 0})
    assert coordinator.answers == [None]


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("statefulspark.pipeline.tick_reader", {"pydantic", "numpy", "pyarrow", "rocksdict", "yaml"}),
        ("statefulspark.exchange.task", {"rocksdict", "yaml", "boto3", "statefulspark.config.job"}),
    ],
)
def test_spark_s_processes_import_little(module: str, heavy: set[str]) -> None:
    """Spark starts several Python processes for each query, and a job that recovers waits for them."""
    code = f"import sys, {module}; print(sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
