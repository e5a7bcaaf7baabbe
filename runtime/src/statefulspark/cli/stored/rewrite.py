"""``statefulspark rewrite``: make a savepoint with other uids, states or key groups."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any

import typer

from statefulspark.cli.common.output import Output, OutputOption, TableView, say, show
from statefulspark.cli.common.storage_options import (
    BackendOption,
    CheckpointArgument,
    EndpointOption,
    NewSavepointArgument,
    PathStyleOption,
    RegionOption,
    storage_opener,
)
from statefulspark.errors import InvalidInputError


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="rewrite")(rewrite_savepoint)


def rewrite_savepoint(
    path: CheckpointArgument,
    directory: NewSavepointArgument,
    rename_uid: Annotated[list[str] | None, typer.Option(metavar="OLD=NEW", help="Give a keyed step another uid. Repeatable.")] = None,
    rename_state: Annotated[list[str] | None, typer.Option(metavar="UID:OLD=NEW", help="Give a state another name. Repeatable.")] = None,
    remove_uid: Annotated[
        list[str] | None, typer.Option(metavar="UID", help="Leave out a keyed step with everything it has. Repeatable.")
    ] = None,
    remove_state: Annotated[list[str] | None, typer.Option(metavar="UID:NAME", help="Leave out a state. Repeatable.")] = None,
    max_parallelism: Annotated[
        int | None, typer.Option(metavar="N", help="Move all keys to the key groups that they have among N.")
    ] = None,
    output: OutputOption = Output.TABLE,
    endpoint: EndpointOption = None,
    region: RegionOption = None,
    path_style: PathStyleOption = None,
    backend: BackendOption = None,
) -> None:
    """Make a canonical savepoint with other uids, states or key groups. PATH is not changed.

    All names are those in PATH. Write names that have a colon or an equals sign as a JSON list, such as '["old=uid", "new"]'.
    """
    from statefulspark.checkpoint.catalog import open_checkpoint
    from statefulspark.state_tables.write.changes import Changes
    from statefulspark.state_tables.write.rewriting import rewrite

    opener = storage_opener(endpoint, region, path_style, backend=backend)
    changes = Changes(
        uids=_new_names([_names(each, "=", "--rename-uid") for each in rename_uid or ()], "--rename-uid"),
        states=_new_names([_names(each, ":=", "--rename-state") for each in rename_state or ()], "--rename-state"),
        removed_uids=frozenset(remove_uid or ()),
        removed_states=frozenset((uid, name) for uid, name in (_names(each, ":", "--remove-state") for each in remove_state or ())),
    )
    origin = open_checkpoint(path, opener)
    done = rewrite(
        origin,
        directory,
        changes,
        max_parallelism=max_parallelism,
        open_store=opener,
        progress=lambda what: say(f"writing {what}", err=True),
    )
    states = [{"uid": uid, "state": state} for uid, state in done.states]
    document = {"path": done.url, "entries": done.entries, "states": states}
    show(document, output, TableView(done.url, ("uid", "state"), list(done.states)))


def _names(text: str, separators: str, option: str) -> tuple[str, ...]:
    """Take the names of an option apart: each of the separators stands between two of them, in this order."""
    if text.startswith("["):
        with suppress(ValueError):
            names = json.loads(text)
            if len(names) == len(separators) + 1 and all(isinstance(name, str) for name in names):
                return tuple(names)
    name = "([^:=]+)" if len(separators) > 1 else f"([^{separators}]+)"
    found = re.fullmatch(name + "".join(each + name for each in separators), text, re.DOTALL)
    if found is None:
        raise InvalidInputError(
            f"{text!r} does not name {len(separators) + 1} things", field=option, remedy="Write it as in the help, or as a JSON list"
        )
    return found.groups()


def _new_names(names: Sequence[tuple[str, ...]], option: str) -> dict[Any, str]:
    """Return the last of the names by those before it; a single one stands for itself."""
    found: dict[Any, str] = {}
    for *old, new in names:
        key = tuple(old) if len(old) > 1 else old[0]
        if found.setdefault(key, new) != new:
            raise InvalidInputError(f"{key!r} has two new names", field=option, remedy="Give it one")
    return found
