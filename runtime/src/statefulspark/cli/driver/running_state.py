"""``statefulspark state --job``: the states of a running job, and the state of one key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from statefulspark.cli.common.output import Output, TableView, say, show
from statefulspark.cli.common.storage_options import time_text
from statefulspark.coordinator.query.queried_state import ENTRIES_MAX, StateQuery
from statefulspark.errors import InvalidInputError

if TYPE_CHECKING:
    from statefulspark.api_server.client import JobClient
    from statefulspark.api_server.models.state import StateEntryModel

OptionalJobOption = Annotated[
    str | None,
    typer.Option(
        "--job", help="Read a running job instead: its name, if it runs on this machine, or the URL of its driver.", show_default=False
    ),
]


def refuse_options(**given: object) -> None:
    """Refuse options that are for checkpoints.

    Raises:
        InvalidInputError: One of them was passed.
    """
    for name, value in given.items():
        if value not in (None, False):
            field = "PATH" if name == "path" else f"--{name.replace('_', '-')}"
            raise InvalidInputError("is for checkpoints and savepoints", field=field, remedy="Leave it out with --job.")


def show_running(
    client: JobClient,
    job: str,
    uid: str | None,
    state: str | None,
    key: str | None,
    output: Output,
    *,
    map_key: str | None,
    after: str | None,
    limit: int,
) -> None:
    """Print the states of a job, or the state of a key."""
    if state is None:
        if key is not None or map_key is not None:
            raise InvalidInputError("requires --uid and --state", field="--key", remedy="Add --uid and --state.")
        _show_states(client, job, uid, output)
        return
    if uid is None:
        raise InvalidInputError("state names are only unique within a uid", field="--state", remedy="Add --uid.")
    if key is None:
        raise InvalidInputError(
            "a running job shows the state of one key at a time", field="--key", remedy="Add --key, or take a savepoint to read all keys."
        )
    query = StateQuery(uid=uid, state=state, key=key, map_key=map_key, limit=min(limit, ENTRIES_MAX), after=after)
    answer = client.state(query)
    columns = ("window", "map key", "value", "expires (UTC)")
    title = f"{uid} / {state} (slot {answer.slot}, key group {answer.key_group}, after batch {answer.committed})"
    show(answer.model_dump(mode="json"), output, TableView(title, columns, [_row(entry) for entry in answer.entries]))
    if not answer.entries and not answer.remarks:
        say("the key has no such state", err=True)
    for remark in answer.remarks:
        say(f"note: {remark}", err=True)
    if answer.next is not None:
        say(f"continue with --after {answer.next}", err=True)


def _show_states(client: JobClient, job: str, uid: str | None, output: Output) -> None:
    every = client.states()
    found = [each for each in every if uid in (None, each.uid)]
    if uid is not None and not found:
        uids = ", ".join(sorted({each.uid for each in every})) or "none yet"
        raise InvalidInputError(f"the job has no state of uid {uid!r}", field="--uid", remedy=f"Use one of: {uids}.")
    rows = [(each.uid, each.state, each.kind, each.key_type, each.type or None, each.ttl_ms) for each in found]
    document = {"states": [each.model_dump(mode="json") for each in found]}
    show(document, output, TableView(job, ("uid", "state", "kind", "key", "type", "ttl ms"), rows))


def _row(entry: StateEntryModel) -> tuple[object, ...]:
    window = ", ".join(f"{name} {number}" for name, number in entry.window.items()) or None
    return window, entry.map_key, entry.value, time_text(entry.expires_ms)
