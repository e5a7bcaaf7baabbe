"""Drivers that are not there: pods that no node runs are called running, and one server answers for all of them.

Pods get addresses of the loopback network (127.x.y.z), so each driver's API is served by this machine at its pod's address and port 8480, over TLS
with the certificate that the operator made for the job.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

from kubernetes.aio.client import ApiClient, CoreV1Api
from kubernetes.aio.watch import Watch

PORT = 8480
MERGE = "application/merge-patch+json"
"""A patch that replaces fields."""
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
        self._servers: list[asyncio.Server] = []
        self._asked = asked

    async def serve(self, address: str, secret: Mapping[str, bytes | str]) -> None:
        """Answer at one address, with the certificate of a Secret's data, for as long as the loop runs."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.NamedTemporaryFile() as chain:
            chain.write(b"".join(base64.b64decode(secret[name]) for name in ("tls.crt", "tls.key")))
            chain.flush()
            context.load_cert_chain(chain.name)
        self._servers.append(await asyncio.start_server(self._connection, address, PORT, ssl=context))

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

    def __init__(self, client: ApiClient, namespace: str, drivers: FakeDrivers) -> None:
        self._client = client
        self._namespace = namespace
        self._drivers = drivers
        self.address_of: dict[str, str] = {}
        """By name of the pod."""

    async def run(self) -> None:
        """Watch until cancelled."""
        list_pods = CoreV1Api(self._client).list_namespaced_pod
        # Any: the package's watch has no types. Without a time limit it opens the stream anew by itself.
        watch: Any = Watch()  # type: ignore[no-untyped-call]  # the package's
        async for event in watch.stream(list_pods, namespace=self._namespace, label_selector="statefulspark.io/component=driver"):
            if event["type"] == "ADDED":
                await self._start(event["raw_object"]["metadata"]["name"])

    async def _start(self, name: str) -> None:
        number = len(self.address_of) + 1
        address = self.address_of.setdefault(name, f"127.1.{number >> 8}.{number & 255}")
        if address not in self._drivers.by_address:
            self._drivers.by_address[address] = FakeDriver(parallelism=1)
            # The operator makes it before the pod.
            secret = await CoreV1Api(self._client).read_namespaced_secret(f"{name.removesuffix('-driver')}-tls", self._namespace)
            await self._drivers.serve(address, secret.data or {})
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
        await CoreV1Api(self._client).patch_namespaced_pod_status(name, self._namespace, {"status": status}, _content_type=MERGE)
