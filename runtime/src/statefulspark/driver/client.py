"""Client of the driver API: what the command line uses. Refusals come back as the errors of ``errors``."""

from __future__ import annotations

import ipaddress
import json
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from statefulspark.driver.models import (
    CheckpointListModel,
    CheckpointModel,
    MemoryModel,
    MemoryRequest,
    ProblemModel,
    SavepointRequest,
    StatusModel,
    StopModel,
    StopRequest,
)
from statefulspark.driver.problems import error_of
from statefulspark.errors import InvalidInputError, StatefulSparkError, UnavailableError
from statefulspark.job.controls import JobError

Model = TypeVar("Model", bound=BaseModel)

_CONNECT_S = 5.0
_LOOK_S = 15.0
_SLACK_S = 15.0  # the driver answers a little after the operation's own time limit


class JobClient:
    """Talks to one job; a context manager.

    Args:
        url: ``http://host:port`` or ``https://…`` of the driver.
        token: Its bearer token.

    Every method raises UnavailableError when the driver does not answer, InvalidInputError when the token or the request is
    refused, ConflictError when the job's state does not allow it now.
    """

    def __init__(self, url: str, token: str) -> None:
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL as exc:
            raise InvalidInputError(f"{url!r} is not a URL", field="--job") from exc
        if parsed.scheme not in {"http", "https"} or not parsed.host:
            raise InvalidInputError(f"{url!r} is not an http:// or https:// URL", field="--job")
        self._url = str(parsed.copy_with(userinfo=b""))
        # A proxy from the environment must not see requests to this machine (nor could it carry them out).
        self._http = httpx.Client(
            base_url=parsed,
            headers={"Authorization": f"Bearer {token}", "Accept": "application/json"},
            timeout=httpx.Timeout(_LOOK_S, connect=_CONNECT_S),
            trust_env=not _is_loopback(parsed.host),
        )

    def status(self) -> StatusModel:
        """Look at the job."""
        return self._call("GET", "/v1/status", StatusModel)

    def checkpoints(self) -> list[CheckpointModel]:
        """Retained checkpoints and this driver's savepoints, oldest first."""
        return self._call("GET", "/v1/checkpoints", CheckpointListModel).checkpoints

    def checkpoint(self, *, timeout_s: float) -> CheckpointModel:
        """Take a checkpoint now."""
        return self._call("POST", "/v1/checkpoints", CheckpointModel, timeout_s=timeout_s)

    def savepoint(self, *, target: str | None, timeout_s: float) -> CheckpointModel:
        """Take a savepoint below the URL ``target`` (None: the manifest's directory)."""
        return self._call("POST", "/v1/savepoints", CheckpointModel, body=SavepointRequest(target=target), timeout_s=timeout_s)

    def stop(self, *, savepoint: bool, target: str | None, drain: bool, timeout_s: float) -> StopModel:
        """End the job, keeping its state."""
        body = StopRequest(savepoint=savepoint, target=target, drain=drain)
        return self._call("POST", "/v1/stop", StopModel, body=body, timeout_s=timeout_s)

    def cancel(self, *, timeout_s: float) -> StatusModel:
        """End the job without a checkpoint."""
        return self._call("POST", "/v1/cancel", StatusModel, timeout_s=timeout_s)

    def rescale(self, parallelism: int, *, timeout_s: float) -> StatusModel:
        """Run with another number of slots. The driver checks the bounds, as it knows them."""
        return self._call("POST", "/v1/rescale", StatusModel, body={"parallelism": parallelism}, timeout_s=timeout_s)

    def memory(self) -> MemoryModel:
        """Look how slots divide their managed memory."""
        return self._call("GET", "/v1/memory", MemoryModel)

    def tune_memory(self, change: MemoryRequest, *, timeout_s: float) -> MemoryModel:
        """Divide the managed memory of running slots anew; returns once each of them has done so."""
        return self._call("PATCH", "/v1/memory", MemoryModel, body=change, timeout_s=timeout_s)

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close."""
        self.close()

    def _call(
        self, method: str, path: str, model: type[Model], *, body: BaseModel | dict[str, Any] | None = None, timeout_s: float | None = None
    ) -> Model:
        options: dict[str, Any] = {}
        if timeout_s is not None:
            options = {"params": {"timeout_s": timeout_s}, "timeout": httpx.Timeout(_LOOK_S, connect=_CONNECT_S, read=timeout_s + _SLACK_S)}
        if body is not None:
            options["json"] = body.model_dump(mode="json") if isinstance(body, BaseModel) else body
        try:
            response = self._http.request(method, path, **options)
        except httpx.TimeoutException as exc:
            raise UnavailableError(
                f"the job at {self._url} did not answer in time. Look again: the operation may still be running"
            ) from exc
        except httpx.TransportError as exc:
            raise UnavailableError(f"no job answers at {self._url} ({exc}). Is it running, and is the URL right?") from exc
        if response.status_code == 202:
            raise UnavailableError(
                f"the operation is still running in the driver; ask {response.headers.get('Location', path)} for its end"
            )
        if not response.is_success:
            raise self._error(response)
        try:
            return model.model_validate_json(response.content)
        except ValidationError as exc:
            raise InvalidInputError(f"{self._url} is not a statefulspark driver of this version", field="--job") from exc

    def _error(self, response: httpx.Response) -> StatefulSparkError:
        if response.status_code == 401:
            return InvalidInputError(
                f"the job at {self._url} refuses the token",
                field="token",
                remedy="Give the job's own by STATEFULSPARK_API_TOKEN, STATEFULSPARK_API_TOKEN_FILE or --token-file",
            )
        try:
            error = ProblemModel.model_validate_json(response.content).error
        except (ValidationError, json.JSONDecodeError):
            return InvalidInputError(f"{self._url} is not a statefulspark driver (HTTP {response.status_code})", field="--job")
        retry = response.headers.get("Retry-After", "")
        return error_of(
            response.status_code,
            JobError(reason=error.reason, message=error.message),
            retry_after_s=float(retry) if retry.isdigit() else 1.0,
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
