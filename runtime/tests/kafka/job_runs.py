"""Runs the payments example on a real broker, as a person would, and compares what a consumer sees with an oracle."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from .broker import CONNECTOR_LOCK, Broker, fetched

EXAMPLE = Path(__file__).parents[3] / "examples" / "14-kafka"
Payment = tuple[str, int]


def payments(seed: int, count: int) -> list[Payment]:
    """Payments of 40 accounts."""
    numbers = random.Random(seed)
    return [(f"account-{numbers.randrange(40)}", numbers.randrange(-500, 1000)) for _ in range(count)]


@dataclass
class PaymentsJob:
    """The job with its topics and its storage, over any number of driver processes."""

    broker: Broker
    folder: Path
    spec: dict[str, Any] = field(default_factory=dict)
    sent: list[Payment] = field(default_factory=list)
    address: str = ""
    """Address of the broker; by default without TLS."""
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.source, self.target = self.broker.topic(2), self.broker.topic(3)
        self.log = self.folder / "driver.log"

    def send(self, seed: int, count: int) -> None:
        """Write payments, those of an account to one partition."""
        found = payments(seed, count)
        self.broker.produce(self.source, [(account, json.dumps({"account": account, "cents": cents})) for account, cents in found])
        self.sent += found

    def variables(self) -> dict[str, str]:
        """Environment of the job and of commands about it."""
        home, connectors = str(self.folder / "home"), str(fetched(CONNECTOR_LOCK, "kafka-connector"))
        return os.environ | {"STATEFULSPARK_HOME": home, "STATEFULSPARK_CONNECTORS": connectors} | self.environment

    def command(self, *arguments: str) -> str:
        """Standard output of a command."""
        command = [sys.executable, "-m", "statefulspark.cli.main", *arguments]
        done = subprocess.run(command, env=self.variables(), cwd=self.folder, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextmanager
    def driver(self, *options: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
        """A driver process, killed at the end of the block if it has not ended."""
        document = yaml.safe_load((EXAMPLE / "job.yaml").read_text())
        spec = document["spec"]
        spec["job"] = {"script": str(EXAMPLE / "payments.py"), "args": [self.address or self.broker.address, self.source, self.target]}
        spec["checkpointing"] = {"dir": f"file://{self.folder}/storage", "interval": "5s"}
        spec |= {"driver": {"memory": "1Gi"}, "stateBackend": {"type": "memory"}} | self.spec
        path = self.folder / "job.yaml"
        path.write_text(yaml.safe_dump(document))
        command = [sys.executable, "-m", "statefulspark.cli.main", "run", str(path), "--no-progress", *options]
        with self.log.open("ab") as log:
            process = subprocess.Popen(command, env=self.variables() | environment, stdout=log, stderr=log, cwd=self.folder)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def finish(self, *options: str, **environment: str) -> None:
        """Run the job until it has read everything."""
        with self.driver("--until-idle", *options, **environment) as process:
            code = process.wait(480)
        assert code == 0, self.log.read_text(errors="replace")[-6000:]

    def wait_for_rows(self, count: int, process: subprocess.Popen[bytes]) -> None:
        """Wait until the topic has that many rows, committed or not."""
        end_s = time.monotonic() + 300
        while len(self.broker.read(self.target, committed=False)) < count:
            assert time.monotonic() < end_s, self.log.read_text(errors="replace")[-6000:]
            assert process.poll() is None, self.log.read_text(errors="replace")[-6000:]
            time.sleep(0.2)

    def check(self) -> None:
        """A consumer that reads committed messages sees each balance once and those of an account in order."""
        found: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for message in self.broker.read(self.target):
            row = json.loads(message.value() or b"")
            assert (message.key() or b"").decode() == row["account"]
            found[row["account"]].append((row["count"], row["cents"]))
        assert found == expected(self.sent)


def expected(sent: list[Payment]) -> dict[str, list[tuple[int, int]]]:
    """Number and balance after each payment of each account."""
    balances: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for account, cents in sent:
        before = balances[account][-1] if balances[account] else (0, 0)
        balances[account].append((before[0] + 1, before[1] + cents))
    return balances
