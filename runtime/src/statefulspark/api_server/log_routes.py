"""``GET /v1/logs``: the last log records of the job."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from statefulspark.api_server.models.job import ProblemModel
from statefulspark.api_server.models.log import LogRecordModel, LogsModel
from statefulspark.logs.levels import LogLevel
from statefulspark.logs.tail import RECORDS_MAX, LogTail


def log_routes(tail: LogTail) -> APIRouter:
    """Return the route; its router asks for the token, as all do."""
    router = APIRouter(prefix="/v1", tags=["monitor"])
    refusals: dict[int | str, dict[str, Any]] = {
        401: {"model": ProblemModel, "description": "No token, or not this job's."},
        422: {"model": ProblemModel, "description": "The request does not fit its schema."},
    }

    @router.get("/logs", summary="The last log records of driver and slots", responses=refusals)
    def logs(
        after: Annotated[int, Query(ge=0, description="Only records with a greater number.")] = 0,
        records: Annotated[int, Query(ge=1, le=RECORDS_MAX, description="At most so many, the newest ones.", examples=[100])] = 100,
        level: Annotated[LogLevel, Query(description="Minimum level.")] = LogLevel.DEBUG,
        slot: Annotated[int | None, Query(ge=0, description="Only records of this slot.")] = None,
        uid: Annotated[str | None, Query(max_length=1024, description="Only records of this keyed step.")] = None,
    ) -> LogsModel:
        found, last = tail.read(after=after, most=records, level=level.number, slot=slot, uid=uid)
        return LogsModel(records=[LogRecordModel.of(one) for one in found], last=last, elsewhere=tail.elsewhere)

    return router
