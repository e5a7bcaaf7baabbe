"""Client of the driver API, used by the command line. Error responses are raised as the errors of ``errors``."""

from __future__ import annotations

import ipaddress
import json
import ssl
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from statefulspark.api_server.models.history import HistoryModel
from statefulspark.api_server.models.job import (
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
from statefulspark.api_server.models.log import LogsModel
from statefulspark.api_server.models.rescale import RescalePlanModel
from statefulspark.api_server.models.state import StateEntriesModel, StateListModel, StateModel
from statefulspark.api_server.problems import error_of
from statefulspark.config.savepoints import SavepointFormat
from statefulspark.coordinator.controls import JobError
from statefulspark.coordinator.query.queried_state import StateQuery
from statefulspark.errors import InvalidInputError, StatefulSparkError, UnavailableError

Model = TypeVar("Model", bound=BaseModel)

_CONNECT_S = 5.0
_REQUEST_S = 15.0
_SLACK_S = 15.0  # the driver answers a little after the operation's own time limit


class JobClient:
    """Talks to one job; a context manager.

    Args:
        url: ``http://host:port`` or ``https://…`` of the driver.
        token: Its bearer token.
        ca_file: PEM file with the authority of its certificate; None for those that this machine trusts.
        request_s: Timeout in seconds of requests that answer at once.

    Every method raises UnavailableError when the driver does not answer, InvalidInputError when the token or the request is
    refused, ConflictError when the job's state does not allow it now.
    """

    def __init__(self, url: str, token: str, *, ca_file: Path | None = None, request_s: float = _REQUEST_S) -> None:
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL as exc:
            raise InvalidInputError(f"{url!r} is not a URL", field="--job") from exc
        if parsed.scheme not in {"http", "https"} or not parsed.host:
            raise InvalidInputError(f"{url!r} is not an http:// or https:// URL", field="--job")
        self._url = str(parsed.copy_with(userinfo=b""))
        self._token = token
        # A proxy from the environment must not see requests to this machine (nor could it carry them out).
        self._http = httpx.Client(
            base_url=parsed,
            headers={"Authorization": f"Bearer {token}", "Accept": "application/json"},
            timeout=httpx.Timeout(request_s, connect=min(request_s, _CONNECT_S)),
            trust_env=not _is_loopback(parsed.host),
            verify=_verification(ca_file),
        )

    def status(self) -> StatusModel:
        """Look at the job."""
        return self._call("GET", "/v1/status", StatusModel)

    def page_url(self) -> str:
        """URL of the job's status page, with the token in the fragment: anyone who has it may control the job."""
        return f"{self._url.rstrip('/')}/#token={quote(self._token, safe='')}"

    def checkpoints(self) -> list[CheckpointModel]:
        """Retained checkpoints and this driver's savepoints, oldest first."""
        return self._call("GET", "/v1/checkpoints", CheckpointListModel).checkpoints

    def history(self, *, since_ms: int, samples: int) -> HistoryModel:
        """Return what the job has done since a time, with at most so many samples."""
        return self._call("GET", f"/v1/history?since_ms={since_ms}&samples={samples}", HistoryModel)

    def logs(self, *, after: int, records: int, level: str, slot: int | None, uid: str | None) -> LogsModel:
        """Return the last log records with a number greater than ``after``; None: of all slots, of all keyed steps."""
        options: dict[str, int | str | None] = {"after": after, "records": records, "level": level, "slot": slot, "uid": uid}
        given = httpx.QueryParams({name: value for name, value in options.items() if value is not None})
        return self._call("GET", f"/v1/logs?{given}", LogsModel)

    def checkpoint(self, *, timeout_s: float) -> CheckpointModel:
        """Take a checkpoint now."""
        return self._call("POST", "/v1/checkpoints", CheckpointModel, timeout_s=timeout_s)

    def savepoint(self, *, target: str | None, timeout_s: float, form: SavepointFormat = "native") -> CheckpointModel:
        """Take a savepoint below the URL ``target`` (None: the manifest's directory)."""
        # A driver of an earlier release does not know the format.
        body = SavepointRequest(target=target, format=form).model_dump(mode="json", exclude_defaults=True)
        return self._call("POST", "/v1/savepoints", CheckpointModel, body=body, timeout_s=timeout_s)

    def stop(
        self, *, savepoint: bool | None, target: str | None, drain: bool, timeout_s: float, form: SavepointFormat | None = None
    ) -> StopModel:
        """End the job, keeping its state."""
        # A driver of an earlier release does not know the format.
        body = StopRequest(savepoint=savepoint, target=target, drain=drain, format=form).model_dump(mode="json", exclude_defaults=True)
        return self._call("POST", "/v1/stop", StopModel, body=body, timeout_s=timeout_s)

    def cancel(self, *, timeout_s: float) -> StatusModel:
        """End the job without a checkpoint."""
        return self._call("POST", "/v1/cancel", StatusModel, timeout_s=timeout_s)

    def rescale(self, parallelism: int, *, timeout_s: float) -> StatusModel:
        """Run with another number of slots. The driver checks the bounds, as it knows them."""
        return self._call("POST", "/v1/rescale", StatusModel, body={"parallelism": parallelism}, timeout_s=timeout_s)

    def rescale_plan(self, parallelism: int) -> RescalePlanModel:
        """Return what a rescale would do."""
        return self._call("GET", f"/v1/rescale-plan?parallelism={parallelism}", RescalePlanModel)

    def states(self) -> list[StateModel]:
        """Return the states of the job."""
        return self._call("GET", "/v1/state", StateListModel).states

    def state(self, query: StateQuery) -> StateEntriesModel:
        """Return the state of one key."""
        given = httpx.QueryParams({name: value for name, value in asdict(query).items() if value is not None})
        return self._call("GET", f"/v1/state/entries?{given}", StateEntriesModel)

    def memory(self) -> MemoryModel:
        """Look how slots divide their managed memory."""
        return self._call("GET", "/v1/memory", MemoryModel)

    def tune_memory(self, change: MemoryRequest, *, timeout_s: float) -> MemoryModel:
        """Change the memory split of running slots; returns when each of them has applied it."""
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
            options = {
                "params": {"timeout_s": timeout_s},
                "timeout": httpx.Timeout(_REQUEST_S, connect=_CONNECT_S, read=timeout_s + _SLACK_S),
            }
        if body is not None:
            options["json"] = body.model_dump(mode="json") if isinstance(body, BaseModel) else body
        try:
            response = self._http.request(method, path, **options)
        except httpx.TimeoutException as exc:
            raise UnavailableError(
                f"the job at {self._url} did not respond in time. Check the status again: the operation may still be running"
            ) from exc
        except httpx.ConnectError as exc:
            raise self._no_connection(exc) from exc
        except httpx.TransportError as exc:
            raise UnavailableError(f"no response from {self._url} ({exc}). Check that the job is running and the URL is correct") from exc
        if response.status_code == 202:
            raise UnavailableError(
                f"the operation is still running in the driver. Poll {response.headers.get('Location', path)} for its result"
            )
        if not response.is_success:
            raise self._error(response)
        try:
            return model.model_validate_json(response.content)
        except ValidationError as exc:
            raise InvalidInputError(f"{self._url} is not a statefulspark driver of this version", field="--job") from exc

    def _no_connection(self, error: httpx.ConnectError) -> StatefulSparkError:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return InvalidInputError(
                f"the certificate of {self._url} is not trusted ({error})",
                field="--ca-file",
                remedy="Pass the ca.crt of the job's Secret <job>-tls; to reach the job under another name, use kubectl port-forward",
            )
        return UnavailableError(f"no response from {self._url} ({error}). Check that the job is running and the URL is correct")

    def _error(self, response: httpx.Response) -> StatefulSparkError:
        if response.status_code == 401:
            return InvalidInputError(
                f"the job at {self._url} rejected the token",
                field="token",
                remedy="Pass the job's own token with STATEFULSPARK_API_TOKEN, STATEFULSPARK_API_TOKEN_FILE or --token-file",
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


def _verification(ca_file: Path | None) -> ssl.SSLContext | bool:
    if ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as exc:
        raise InvalidInputError(
            f"{ca_file} cannot be read as certificates ({type(exc).__name__})",
            field="--ca-file",
            remedy="Pass a PEM file with the certificate authority",
        ) from exc


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
