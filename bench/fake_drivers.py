"""Drivers that are not there: pods that no node runs are called running, and one server answers for all of them.

Pods get addresses of the loopback network (127.x.y.z), so a driver's API at its pod's address and port 8480 is one server of this machine.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

from lightkube import AsyncClient
from lightkube.resources.core_v1 import Pod
from lightkube.types import PatchType, on_error_retry

PORT = 8480
_CHECKPOINT_S = 10
_KEY_GROUPS = 128


class FakeDriver:
    """What one driver says."""

    def __init__(self, parallelism: int) -> None:
        self.parallelism = parallelism
        self.operations: dict[str, dict[str, Any]] = {}
        self._since = time.time()

    def status(self) -> dict[str, Any]:
        """The body of ``GET /v1/status``, with batches and checkpoints that go on."""
        running_s = time.time() - self._since
        number = int(running_s / _CHECKPOINT_S)
        checkpoint = {
            "id": number, "kind": "checkpoint", "path": f"file:///fake/chk-{number}", "batch": int(running_s), "duration_ms": 200, "sync_ms": 5,
            "completed_ms": int((self._since + number * _CHECKPOINT_S) * 1000), "size_bytes": 1 << 30, "uploaded_bytes": 1 << 20,
        }  # fmt: skip
        groups = [
            (slot * _KEY_GROUPS // self.parallelism, (slot + 1) * _KEY_GROUPS // self.parallelism - 1) for slot in range(self.parallelism)
        ]
        return {
            "job_id": "fake", "name": "fake", "state": "RUNNING", "since_ms": int(self._since * 1000), "parallelism": self.parallelism,
            "max_parallelism": _KEY_GROUPS, "attempt": 1, "batch": int(running_s * 2), "input_rows": 0, "output_rows": 0, "watermarks": {},
            "slots": [
                {"slot": slot, "first": first, "last": last, "state": "RUNNING", "epoch": 1, "executor": "1", "host": "fake", "pid": 1}
                for slot, (first, last) in enumerate(groups)
            ],
            "last_checkpoint": checkpoint if number else None, "last_savepoint": None, "restored_from": None, "failed_checkpoints": 0,
            "error": None,
        }  # fmt: skip


class FakeDrivers:
    """All drivers, by their pod's address.

    Args:
        asked: Told of each operation that a driver is asked for: address and kind.
    """

    def __init__(self, asked: Callable[[str, str], None]) -> None:
        self.by_address: dict[str, FakeDriver] = {}
        self._asked = asked

    async def serve(self) -> None:
        """Answer until cancelled."""
        server = await asyncio.start_server(self._connection, "0.0.0.0", PORT, backlog=1024)  # noqa: S104  all addresses of 127/8
        async with server:
            await server.serve_forever()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head.split("\r\n")[1:])}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                method, path = head.split(" ", 2)[:2]
                address = headers["host"].split(":")[0]
                answer = json.dumps(self._answer(address, method, path.split("?")[0], headers, body)).encode()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(answer) + answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _answer(self, address: str, method: str, path: str, headers: dict[str, str], body: bytes) -> Any:
        driver = self.by_address[address]
        if method == "GET":
            return {"operations": list(driver.operations.values())} if path.endswith("/operations") else driver.status()
        kind = path.rsplit("/", 1)[1]
        key = headers["idempotency-key"]
        if key not in driver.operations:
            self._asked(address, kind)
            if kind == "rescale":
                driver.parallelism = json.loads(body)["parallelism"]
            driver.operations[key] = {"id": key, "key": key, "kind": kind, "state": "SUCCEEDED", "checkpoint": None, "error": None}
        return driver.operations[key]


class FakeNode:
    """Calls each driver's pod of a namespace running as soon as it is there, at an address of its own."""

    def __init__(self, client: AsyncClient, namespace: str, drivers: FakeDrivers) -> None:
        self._client = client
        self._namespace = namespace
        self._drivers = drivers
        self.address_of: dict[str, str] = {}
        """By name of the pod."""

    async def run(self) -> None:
        """Watch until cancelled."""
        watched = self._client.watch(
            Pod, namespace=self._namespace, labels={"statefulspark.io/component": "driver"}, on_error=on_error_retry
        )
        async for change, pod in watched:
            if pod.metadata is not None and pod.metadata.name is not None and change == "ADDED":
                await self._start(pod.metadata.name)

    async def _start(self, name: str) -> None:
        number = len(self.address_of) + 1
        address = self.address_of.setdefault(name, f"127.1.{number >> 8}.{number & 255}")
        self._drivers.by_address.setdefault(address, FakeDriver(parallelism=1))
        status = {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "containerStatuses": [
                {
                    "name": "driver", "ready": True, "restartCount": 0, "image": "fake", "imageID": "fake",
                    "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                }
            ],
        }  # fmt: skip
        await self._client.patch(Pod.Status, name, {"status": status}, namespace=self._namespace, patch_type=PatchType.MERGE)
