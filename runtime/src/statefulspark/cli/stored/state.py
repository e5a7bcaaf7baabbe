"""``statefulspark state``: list the states in a checkpoint or of a running job, or the entries of one of them."""

from __future__ import annotations

from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from statefulspark.checkpoint.inspect.plain_values import plain
from statefulspark.cli.common.connect import CaFileOption, TokenFileOption, connect
from statefulspark.cli.common.output import Output, OutputOption, TableView, say, show
from statefulspark.cli.common.storage_options import (
    BackendOption,
    EndpointOption,
    PathStyleOption,
    RegionOption,
    bytes_text,
    storage_opener,
    time_text,
)
from statefulspark.cli.driver.running_state import OptionalJobOption, refuse_options, show_running
from statefulspark.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from statefulspark.checkpoint.inspect.decoding import StateEntry
    from statefulspark.checkpoint.inspect.reader import StateSize
    from statefulspark.storage.base import ObjectStore

_DEFAULT_LIMIT = 100
OptionalCheckpointArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[PATH]", help="URL or path of a checkpoint or savepoint, or of a job's directory to use its latest checkpoint."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="state")(state)


def state(
    path: OptionalCheckpointArgument = None,
    job: OptionalJobOption = None,
    uid: Annotated[str | None, typer.Option(help="uid of a keyed step. With --state, show the entries of that state.")] = None,
    state_name: Annotated[
        str | None, typer.Option("--state", help="Name of the state, or event-timers or processing-timers to show timers.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Show only this key, written as in the output; use a JSON list for several key columns.")
    ] = None,
    map_key: Annotated[str | None, typer.Option(help="Show only this entry of a map. Only with --job.")] = None,
    after: Annotated[str | None, typer.Option(help="Continue a map after the entries shown before. Only with --job.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of entries to show.")] = _DEFAULT_LIMIT,
    unpickle: Annotated[
        bool, typer.Option(help="Decode pickled values. Unpickling can run arbitrary code: use it only with checkpoints you trust.")
    ] = False,
    output: OutputOption = Output.TABLE,
    endpoint: EndpointOption = None,
    region: RegionOption = None,
    path_style: PathStyleOption = None,
    backend: BackendOption = None,
    token_file: TokenFileOption = None,
    ca_file: CaFileOption = None,
) -> None:
    """Show the uids, states, types, entry counts and sizes. With --uid and --state, show the entries of that state.

    PATH is a checkpoint or savepoint, or a job's directory to use its latest checkpoint. With --job instead, show the states of a running job, and with --uid, --state and
    --key the state of one key, as committed batches have left it.
    """
    if job is not None:
        refuse_options(path=path, unpickle=unpickle, endpoint=endpoint, region=region, path_style=path_style, backend=backend)
        with connect(job, token_file, ca_file) as client:
            show_running(client, job, uid, state_name, key, output, map_key=map_key, after=after, limit=limit)
        return
    if path is None:
        raise InvalidInputError("missing", field="PATH", remedy="Pass a checkpoint, savepoint or directory, or --job for a running job.")
    if map_key is not None or after is not None:
        raise InvalidInputError("is only for running jobs", field="--map-key" if map_key is not None else "--after", remedy="Add --job.")
    opener = storage_opener(endpoint, region, path_style, backend=backend)
    if state_name is None:
        if key is not None:
            raise InvalidInputError("requires --uid and --state", field="--key", remedy="Add --uid and --state.")
        _show_states(path, uid, opener, output)
    elif uid is None:
        raise InvalidInputError("state names are only unique within a uid", field="--state", remedy="Add --uid.")
    else:
        _show_entries(path, uid, state_name, key, opener, output, limit=limit, unpickle=unpickle)


def _show_states(path: str, uid: str | None, opener: Callable[[str], ObjectStore], output: Output) -> None:
    from statefulspark.checkpoint.inspect.decoding import type_text
    from statefulspark.checkpoint.inspect.reader import state_sizes

    def as_json(size: StateSize) -> dict[str, Any]:
        return size.info.to_json() | {"entries": size.entries, "size_bytes": size.size_bytes}

    def as_row(size: StateSize) -> tuple[object, ...]:
        info = size.info
        keys = ", ".join(type_text(each) for each in info.key_type)
        return (info.uid, info.name, info.kind, keys, type_text(info.type) or None, info.ttl_ms, size.entries, bytes_text(size.size_bytes))

    every = state_sizes(path, open_store=opener)
    sizes = [size for size in every if uid in (None, size.info.uid)]
    if uid is not None and not sizes:
        uids = ", ".join(sorted({size.info.uid for size in every})) or "none"
        raise InvalidInputError(f"{path} has no uid {uid!r}", field="--uid", remedy=f"Use one of: {uids}.")
    columns = ("uid", "state", "kind", "key", "type", "ttl ms", "entries", "size")
    show({"states": [as_json(size) for size in sizes]}, output, TableView(path, columns, [as_row(size) for size in sizes]))


def _show_entries(
    path: str,
    uid: str,
    state_name: str,
    key: str | None,
    opener: Callable[[str], ObjectStore],
    output: Output,
    *,
    limit: int,
    unpickle: bool,
) -> None:
    from statefulspark.checkpoint.catalog import open_checkpoint
    from statefulspark.checkpoint.inspect.decoding import parse_key
    from statefulspark.checkpoint.inspect.reader import find_state, read_state
    from statefulspark.state.operator.entries import is_broadcast, is_operator_state

    info = find_state(open_checkpoint(path, opener), uid, state_name)
    in_slots = is_operator_state(info)
    # Operator state has no keys; `read_state` says so.
    wanted = key if key is None or in_slots else parse_key(info, key)
    with closing(read_state(path, uid, state_name, key=wanted, unpickle=unpickle, open_store=opener)) as entries:
        found = list(islice(entries, limit + 1))
    shown, more = found[:limit], len(found) > limit
    if is_broadcast(info):
        rows: list[tuple[object, ...]] = [(entry.user_key, entry.value) for entry in shown]
    else:
        rows = [(entry.slot, entry.value) if in_slots else _as_row(entry) for entry in shown]
    in_lists = ("map key", "value") if is_broadcast(info) else ("slot", "value")
    columns = in_lists if in_slots else ("key group", "key", "map key", "value", "due (UTC)", "expires (UTC)")
    show({"entries": [_as_json(entry) for entry in shown], "more": more}, output, TableView(f"{uid} / {state_name}", columns, rows))
    if more:
        say(f"only the first {limit} entries are shown; raise --limit for more", err=True)


def _as_json(entry: StateEntry) -> dict[str, Any]:
    if entry.slot is not None:
        return {"slot": entry.slot, "value": plain(entry.value)}
    if entry.key_group is None:
        return {"user_key": plain(entry.user_key), "value": plain(entry.value)}
    return {
        "key_group": entry.key_group,
        "key": plain(entry.key),
        "user_key": plain(entry.user_key),
        "value": plain(entry.value),
        "timestamp_ms": entry.timestamp_ms,
        "expires_ms": entry.expires_ms,
    }


def _as_row(entry: StateEntry) -> tuple[object, ...]:
    return (
        entry.key_group,
        entry.key,
        entry.user_key,
        entry.value,
        time_text(entry.timestamp_ms),
        time_text(entry.expires_ms),
    )
