"""``GET /v1/state``: the states of the running job, and the state of single keys."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from statefulspark.api_server.models.job import ProblemModel
from statefulspark.api_server.models.state import StateEntriesModel, StateListModel, StateModel
from statefulspark.coordinator.controls import JobControls
from statefulspark.coordinator.query.queried_state import ENTRIES_MAX, StateQuery

_TEXT_MAX = 65_536


def state_routes(job: JobControls) -> APIRouter:
    """Return the routes; their router asks for the token, as all do."""
    router = APIRouter(prefix="/v1", tags=["state"])

    @router.get("/state", summary="The states of the job", responses=_refusals(401, 409, 500))
    def states() -> StateListModel:
        return StateListModel(states=[StateModel.of(info) for info in job.queries.states()])

    @router.get("/state/entries", summary="The state of one key", responses=_refusals(400, 401, 409, 422, 500, 503))
    def entries(
        uid: Annotated[str, Query(max_length=1024, description="The keyed step.", examples=["orders"])],
        state: Annotated[str, Query(max_length=1024, description="Name of the state.", examples=["cart"])],
        key: Annotated[
            str,
            Query(
                max_length=_TEXT_MAX,
                description="The key: a JSON list for several key columns, dates and times in ISO form, bytes in base64.",
                examples=["ada"],
            ),
        ],
        map_key: Annotated[str | None, Query(max_length=_TEXT_MAX, description="Only this entry of a map.")] = None,
        limit: Annotated[int, Query(ge=1, le=ENTRIES_MAX, description="At most so many entries of a map, or elements of a list.")] = 100,
        after: Annotated[str | None, Query(max_length=2 * _TEXT_MAX, description="`next` of the answer before.")] = None,
    ) -> StateEntriesModel:
        query = StateQuery(uid=uid, state=state, key=key, map_key=map_key, limit=limit, after=after)
        return StateEntriesModel.of(job.queries.read(query))

    return router


def _refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    meanings = {
        400: "There is no such uid, state or key; the message says what there is.",
        401: "No token, or not this job's.",
        409: "The job has ended.",
        422: "The request does not fit its schema.",
        500: "The driver failed on it.",
        503: "The slot of the key is starting, restoring or busy; try again after `Retry-After` seconds.",
    }
    return {status: {"model": ProblemModel, "description": meanings[status]} for status in statuses}
