"""The REST API of drivers, as the operator uses it. The only home of aiohttp in the operator."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

import aiohttp

from statefulspark.errors import ConflictError, InvalidInputError, UnavailableError
from statefulspark_operator.api.drivers import Driver, Failure, Operation, Slot
from statefulspark_operator.api.jobs import SnapshotInfo

_CONNECT_S: Final = 2.0
_LOOK_S: Final = 5.0
_IDLE_S: Final = 4.0
_CONNECTIONS: Final = 200
"""At once; others wait."""


class Drivers:
    """Talks to the drivers of all jobs over one pool of connections.

    Every method raises UnavailableError when the driver does not answer, InvalidInputError when it refuses the request.
    """

    def __init__(self) -> None:
        """Open nothing yet."""
        self._session: aiohttp.ClientSession | None = None

    async def look(self, url: str, token: str, *, operations: bool, checkpoints: bool = False) -> Driver:
        """Ask for the status and, with ``operations``, for what the driver was asked before, with ``checkpoints`` for those it keeps."""
        status = await self._call("GET", f"{url}/v1/status", token)
        listed = (await self._call("GET", f"{url}/v1/operations", token))["operations"] if operations else []
        kept = (await self._call("GET", f"{url}/v1/checkpoints", token))["checkpoints"] if checkpoints else None
        return _driver(status, listed, kept)

    async def ask(self, url: str, token: str, kind: str, key: str, body: dict[str, Any] | None, timeout_s: int) -> None:
        """Ask for an operation and do not wait; asking again with ``key`` finds the first one."""
        path = {"stop": "stop", "cancel": "cancel", "rescale": "rescale", "savepoint": "savepoints", "checkpoint": "checkpoints"}[kind]
        await self._call(
            "POST", f"{url}/v1/{path}", token, json=body, params={"wait": "false", "timeout_s": timeout_s}, headers={"Idempotency-Key": key}
        )

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def _call(self, method: str, url: str, token: str, *, headers: dict[str, str] | None = None, **options: Any) -> Any:
        if self._session is None:
            # A proxy from the environment must not see the tokens of pods. Drivers close idle connections after 5 s.
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=_LOOK_S, sock_connect=_CONNECT_S),
                connector=aiohttp.TCPConnector(limit=_CONNECTIONS, keepalive_timeout=_IDLE_S),
                trust_env=False,
            )
        sent = {"Authorization": f"Bearer {token}", **(headers or {})}
        try:
            async with self._session.request(method, url, headers=sent, allow_redirects=False, **options) as response:
                status, body = response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise UnavailableError(f"the driver at {url} does not answer ({type(error).__name__})") from error
        return _answer(status, body)


def _answer(status: int, body: bytes) -> Any:
    try:
        said = json.loads(body)
    except ValueError:
        said = None
    if status < HTTPStatus.MULTIPLE_CHOICES and said is not None:
        return said
    error = said.get("error") if isinstance(said, dict) else None
    message = error.get("message") if isinstance(error, dict) else f"HTTP {status}"
    if status == HTTPStatus.CONFLICT:
        raise ConflictError(f"the driver: {message}")
    if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
        raise InvalidInputError(f"the driver refuses: {message}")
    raise UnavailableError(f"the driver: {message}")


def _driver(status: dict[str, Any], operations: list[dict[str, Any]], kept: list[dict[str, Any]] | None) -> Driver:
    return Driver(
        state=status["state"],
        attempt=status["attempt"],
        batch=status["batch"],
        parallelism=status["parallelism"],
        max_parallelism=status["max_parallelism"],
        slots=tuple(_slot(slot) for slot in status["slots"]),
        last_checkpoint=_snapshot(status.get("last_checkpoint")),
        last_savepoint=_snapshot(status.get("last_savepoint")),
        restored_from=status.get("restored_from"),
        failed_checkpoints=status.get("failed_checkpoints", 0),
        restarts=status.get("restarts", 0),
        error=_failure(status.get("error")),
        operations={entry["key"]: _operation(entry) for entry in operations if entry.get("key")},
        retained=tuple(_described(info) for info in kept if info["kind"] == "checkpoint") if kept is not None else None,
    )


def _slot(slot: dict[str, Any]) -> Slot:
    memory = slot.get("memory") or {}
    return Slot(
        slot=slot["slot"],
        first=slot["first"],
        last=slot["last"],
        state=slot["state"],
        executor=slot.get("executor"),
        host=slot.get("host"),
        oom_kills=memory.get("container_oom_kills") or 0,
        limit_bytes=memory.get("container_limit_bytes"),
    )


def _operation(entry: dict[str, Any]) -> Operation:
    return Operation(id=entry["id"], state=entry["state"], snapshot=_snapshot(entry.get("checkpoint")), error=_failure(entry.get("error")))


def _failure(error: dict[str, Any] | None) -> Failure | None:
    return Failure(reason=error["reason"], message=error["message"]) if error else None


def _snapshot(info: dict[str, Any] | None) -> SnapshotInfo | None:
    return _described(info) if info else None


def _described(info: dict[str, Any]) -> SnapshotInfo:
    return SnapshotInfo(
        id=info["id"],
        path=info["path"],
        completed_at=datetime.fromtimestamp(info["completed_ms"] / 1000, UTC),
        size_bytes=info.get("size_bytes"),
        uploaded_bytes=info.get("uploaded_bytes"),
        duration_ms=info.get("duration_ms"),
        batch=info.get("batch"),
    )
