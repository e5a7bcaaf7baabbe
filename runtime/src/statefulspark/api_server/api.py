"""The REST API of one running job, as a FastAPI application.

Its clients are the command line, the Kubernetes operator, Prometheus, and browsers. All paths except the health probes
require the bearer token (``authentication``). Long requests are operations (``operations``): the response arrives
when they end, or at once (202) with an id to poll.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from statefulspark.api_server import pages
from statefulspark.api_server.authentication import BearerGate
from statefulspark.api_server.bodies import BodyLimit
from statefulspark.api_server.log_routes import log_routes
from statefulspark.api_server.models.history import SAMPLES_MAX, HistoryModel
from statefulspark.api_server.models.job import (
    CancelRequest,
    CheckpointListModel,
    CheckpointModel,
    HealthModel,
    MemoryModel,
    MemoryRequest,
    OperationListModel,
    OperationModel,
    ProblemModel,
    ReadyModel,
    SavepointRequest,
    StatusModel,
    StopModel,
    StopRequest,
)
from statefulspark.api_server.models.rescale import Parallelism, RescalePlanModel, RescaleRequest
from statefulspark.api_server.operations import OperationKind, Operations, Work
from statefulspark.api_server.problems import Problem, problem_of
from statefulspark.api_server.prometheus import CONTENT_TYPE, exposition
from statefulspark.api_server.state_routes import state_routes
from statefulspark.api_server.tokens import TokenCheck
from statefulspark.coordinator.controls import CheckpointInfo, JobControls, JobError, JobState, JobStatus, MemoryChange
from statefulspark.errors import InvalidInputError, StatefulSparkError
from statefulspark.logs.tail import LogTail

_log = logging.getLogger(__name__)

TIMEOUT_S_MAX = 86_400.0

_DESCRIPTION = (
    "Monitor and control a running statefulspark job: checkpoints, savepoints, rescaling, stopping. "
    "Send `Authorization: Bearer <token>` with every request but the health probes. "
    'Every refusal has the body `{"error": {"reason", "message"}}`.'
)

Wait = Annotated[bool, Query(description="false: answer 202 at once; ask `/v1/operations/{id}` how it went.")]
Timeout = Annotated[
    float,
    Query(gt=0, le=TIMEOUT_S_MAX, description="Operation timeout in seconds (503); the job continues.", examples=[600]),
]
Since = Annotated[int, Query(ge=0, description="Leave out what ended at this time or before; milliseconds since the epoch.")]
Samples = Annotated[
    int, Query(ge=1, le=SAMPLES_MAX, description="Join neighboring samples until at most so many are left.", examples=[200])
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=200,
        description="A repeated request with the same key gets the first one's operation instead of starting a second.",
    ),
]


@dataclass(frozen=True, slots=True)
class _Call:
    """How a client starts an operation."""

    wait: Wait = True
    timeout_s: Timeout = 600.0
    idempotency_key: IdempotencyKey = None


Call = Annotated[_Call, Depends()]


def _responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    meanings = {
        202: "Started; ask the operation in `Location` how it went.",
        400: "The job refuses the request; the message says what to change.",
        401: "No token, or not this job's.",
        404: "There is no such thing here.",
        409: "The job's state does not allow it now.",
        422: "The request does not fit its schema.",
        500: "The job or the driver failed on it.",
        503: "Storage or a slot did not answer in time; try again after `Retry-After` seconds.",
    }
    return {status: {"model": OperationModel if status == 202 else ProblemModel, "description": meanings[status]} for status in statuses}


_LONG = _responses(202, 400, 401, 409, 422, 500, 503)


def create_app(job: JobControls, *, token: str, clock_ms: Callable[[], int], tail: LogTail | None = None) -> FastAPI:
    """Build the application.

    Args:
        job: The job to monitor and control.
        token: The bearer token it accepts (16 to 4096 printable ASCII characters).
        clock_ms: Milliseconds since the epoch.
        tail: The log records that it shows; None shows none.
    """
    app = FastAPI(
        title="statefulspark driver API",
        version=version("statefulspark"),
        description=_DESCRIPTION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    app.add_middleware(_LastResort)
    app.add_middleware(BodyLimit)
    app.add_middleware(BearerGate, check=TokenCheck(token), login_page=pages.status_page(), login_policy=pages.status_policy())
    _handle_errors(app)
    operations = Operations(clock_ms)
    # The gate enforces the token; this dependency only makes OpenAPI say so.
    documented = [Depends(HTTPBearer(auto_error=False, description="The job's token."))]
    app.include_router(_health_routes(job))
    app.include_router(_monitoring_routes(job, operations), dependencies=documented)
    app.include_router(_steer_routes(job, operations), dependencies=documented)
    app.include_router(log_routes(tail or LogTail()), dependencies=documented)
    app.include_router(state_routes(job), dependencies=documented)
    app.include_router(_memory_routes(job), dependencies=documented)
    app.include_router(_page_routes(app, job, clock_ms), dependencies=documented)
    return app


def _health_routes(job: JobControls) -> APIRouter:
    router = APIRouter(tags=["health"])
    asked: asyncio.Future[JobStatus] | None = None

    @router.get("/healthz", summary="Liveness: the process responds")
    async def healthz() -> HealthModel:
        return HealthModel()

    @router.get("/readyz", summary="Readiness: batches are running", responses={503: {"model": ReadyModel, "description": "Not running."}})
    async def readyz(response: Response) -> ReadyModel:
        nonlocal asked
        # Requests without a token must not make the others wait for the job's locks: those that come meanwhile share one answer.
        if asked is None or asked.done():
            asked = asyncio.ensure_future(asyncio.to_thread(job.status))
        state = (await asyncio.shield(asked)).state
        ready = state is JobState.RUNNING
        if not ready:
            response.status_code = 503
        return ReadyModel(ready=ready, state=state)

    return router


def _monitoring_routes(job: JobControls, operations: Operations) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["monitor"])

    @router.get("/status", summary="State of the job and its slots", responses=_responses(401, 500))
    def status() -> StatusModel:
        return StatusModel.of(job.status())

    @router.get("/checkpoints", summary="Retained checkpoints and this driver's savepoints", responses=_responses(401, 500, 503))
    def checkpoints() -> CheckpointListModel:
        return CheckpointListModel(checkpoints=[CheckpointModel.model_validate(info) for info in job.checkpoints()])

    @router.get("/history", summary="What the job has done over time", responses=_responses(401, 422, 500))
    def history(since_ms: Since = 0, samples: Samples = SAMPLES_MAX) -> HistoryModel:
        return HistoryModel.of(job.history(), since_ms=since_ms, samples=samples)

    @router.get("/operations", summary="Recent operations of the driver", responses=_responses(401, 500))
    def list_operations() -> OperationListModel:
        return OperationListModel(operations=[OperationModel.of(operation) for operation in operations.all()])

    @router.get("/operations/{operation_id}", summary="One operation", responses=_responses(401, 404, 422, 500))
    def get_operation(operation_id: str) -> OperationModel:
        operation = operations.get(operation_id)
        if operation is None:
            raise HTTPException(404, f"operation {operation_id!r} is unknown to this driver; it may have been started before a restart")
        return OperationModel.of(operation)

    return router


async def _run(operations: Operations, kind: OperationKind, request: str, work: Work, call: _Call, model: Callable[[Any], Any]) -> Any:
    """Start an operation. Answer with its result as ``model`` returns it, or at once with the operation."""
    _log.info("%s requested through the API: %s", kind, request)
    operation = operations.submit(kind, request, work, key=call.idempotency_key)
    if call.wait:
        ended = asyncio.wrap_future(operation.done)
        # The job keeps its own time limit; some slack lets its error (which says what hangs) come first.
        done, _ = await asyncio.wait({ended}, timeout=call.timeout_s + 5)
        if done:
            if error := ended.exception():
                return _reply(problem_of(error))  # the operation has logged it
            return await asyncio.to_thread(lambda: model(operation.result))
    return JSONResponse(OperationModel.of(operation).model_dump(mode="json"), 202, headers={"Location": f"/v1/operations/{operation.id}"})


def _check_parallelism(job: JobControls, parallelism: int) -> None:
    limit = job.status().max_parallelism
    if parallelism > limit:
        raise InvalidInputError(
            f"{parallelism} exceeds the job's max_parallelism {limit}",
            field="parallelism",
            remedy=f"Choose 1 to {limit}; the number of key groups is fixed for a job's life",
        )


def _steer_routes(job: JobControls, operations: Operations) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["steer"])

    run = partial(_run, operations)

    @router.post("/checkpoints", summary="Take a checkpoint now", responses=_LONG, response_model=CheckpointModel)
    async def checkpoint(call: Call) -> Any:
        return await run("checkpoint", "{}", lambda: job.trigger_checkpoint(call.timeout_s), call, CheckpointModel.model_validate)

    @router.post("/savepoints", summary="Take a savepoint", responses=_LONG, response_model=CheckpointModel)
    async def savepoint(call: Call, body: SavepointRequest | None = None) -> Any:
        asked = body or SavepointRequest()

        def work() -> CheckpointInfo:
            return job.trigger_savepoint(asked.target, call.timeout_s, asked.format)

        return await run("savepoint", asked.model_dump_json(), work, call, CheckpointModel.model_validate)

    @router.post("/stop", summary="Stop the job and keep its state", responses=_LONG, response_model=StopModel)
    async def stop(call: Call, body: StopRequest | None = None) -> Any:
        asked = body or StopRequest()

        def work() -> CheckpointInfo | None:
            return job.stop(savepoint=asked.savepoint, target=asked.target, drain=asked.drain, timeout_s=call.timeout_s, form=asked.format)

        def model(taken: CheckpointInfo | None) -> StopModel:
            return StopModel.model_validate({"state": job.status().state, "checkpoint": taken})

        return await run("stop", asked.model_dump_json(), work, call, model)

    @router.post("/cancel", summary="Cancel the job without a checkpoint", responses=_LONG, response_model=StatusModel)
    async def cancel(call: Call, body: CancelRequest | None = None) -> Any:
        asked = body or CancelRequest()

        def work() -> None:
            job.cancel(retain=asked.retain)

        return await run("cancel", asked.model_dump_json(), work, call, lambda _: StatusModel.of(job.status()))

    @router.post("/rescale", summary="Rescale the job", responses=_LONG, response_model=StatusModel)
    async def rescale(call: Call, body: RescaleRequest) -> Any:
        await asyncio.to_thread(_check_parallelism, job, body.parallelism)

        def work() -> JobStatus:
            return job.rescale(body.parallelism, call.timeout_s)

        return await run("rescale", body.model_dump_json(), work, call, StatusModel.model_validate)

    @router.get("/rescale-plan", summary="What a rescale would do", responses=_responses(400, 401, 409, 422, 500))
    def rescale_plan(parallelism: Parallelism) -> RescalePlanModel:
        _check_parallelism(job, parallelism)
        return RescalePlanModel.model_validate(job.rescale_plan(parallelism))

    return router


def _memory_routes(job: JobControls) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["memory"])

    @router.get("/memory", summary="Memory split of the slots", responses=_responses(401, 409, 500))
    def memory() -> MemoryModel:
        return MemoryModel.model_validate(job.memory())

    @router.patch("/memory", summary="Change the memory split of running slots", responses=_responses(400, 401, 409, 422, 500, 503))
    def tune_memory(body: MemoryRequest, timeout_s: Timeout = 30.0) -> MemoryModel:
        _log.info("memory split change requested through the API: %s", body.model_dump_json(exclude_none=True))
        return MemoryModel.model_validate(job.tune_memory(MemoryChange(**body.model_dump()), timeout_s))

    return router


def _page_routes(app: FastAPI, job: JobControls, clock_ms: Callable[[], int]) -> APIRouter:
    router = APIRouter(tags=["pages"])

    @router.get("/metrics", summary="Prometheus metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    def prometheus() -> Response:
        return Response(exposition(job, now_ms=clock_ms), media_type=CONTENT_TYPE)

    @router.get("/", summary="Status page", response_class=HTMLResponse)
    async def page() -> HTMLResponse:
        return HTMLResponse(pages.status_page(), headers={"Content-Security-Policy": pages.status_policy()})

    @router.get("/openapi.json", summary="This document", response_class=JSONResponse)
    async def openapi() -> JSONResponse:
        return JSONResponse(app.openapi())

    @router.get("/docs", summary="This document as a page", response_class=HTMLResponse)
    async def docs() -> HTMLResponse:
        return HTMLResponse(pages.reference_page(app.openapi()), headers={"Content-Security-Policy": pages.REFERENCE_POLICY})

    return router


def _reply(problem: Problem) -> JSONResponse:
    return JSONResponse(problem.body(), problem.status, headers=dict(problem.headers))


class _LastResort:
    """ASGI middleware: a defect becomes an answer and a log record.

    Starlette's own would pass the exception on to uvicorn, which then drops the connection under the client's next request.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as exc:
            if started or scope["type"] != "http":
                raise
            _log.exception("%s %s failed", scope["method"], scope["path"])
            await _reply(problem_of(exc))(scope, receive, send)


def _handle_errors(app: FastAPI) -> None:
    @app.exception_handler(StatefulSparkError)
    async def own(_: Request, error: StatefulSparkError) -> JSONResponse:
        return _reply(problem_of(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        # Where and why, but not the value: it may be anything the client sent.
        sentences = [f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}" for item in error.errors()]
        return _reply(Problem(422, JobError(reason="InvalidInput", message="; ".join(sentences))))

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> JSONResponse:
        reasons = {404: "NotFound", 405: "MethodNotAllowed"}
        message = error.detail
        if message in {"Not Found", "Method Not Allowed"}:
            message = f"{request.method} {request.url.path} is not part of this API; GET /docs lists what is"
        return _reply(
            Problem(
                error.status_code, JobError(reason=reasons.get(error.status_code, "InvalidInput"), message=message), error.headers or {}
            )
        )
