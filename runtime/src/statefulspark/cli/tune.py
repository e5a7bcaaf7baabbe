"""``statefulspark tune``: look at the split of a running job's managed memory, or change it."""

from __future__ import annotations

from typing import Annotated

import typer

from statefulspark.cli.connect import JobOption, TimeoutOption, TokenFileOption, connect
from statefulspark.cli.job_tables import memory_table
from statefulspark.cli.output import Output, OutputOption, show
from statefulspark.driver.models import MemoryRequest
from statefulspark.errors import InvalidInputError
from statefulspark.sizes import parse_size


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="tune")(tune)


def tune(
    job: JobOption,
    managed: Annotated[
        str | None, typer.Option(help="Managed memory of each slot, for example 96Mi; at most what slots are sized for.")
    ] = None,
    write_buffer_ratio: Annotated[float | None, typer.Option(help="Share of it for write buffers, between 0 and 1.")] = None,
    high_prio_pool_ratio: Annotated[
        float | None, typer.Option(help="Share of the cache for index and filter blocks, 0 to below 1.")
    ] = None,
    token_file: TokenFileOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Divide the managed memory of a running job's slots anew, without a restart; without an option, show how it is divided.

    It holds until the driver ends: the next start takes the manifest's split.
    """
    change = MemoryRequest(
        managed_bytes=None if managed is None else _size(managed),
        write_buffer_ratio=_ratio("--write-buffer-ratio", write_buffer_ratio, zero=False),
        high_prio_pool_ratio=_ratio("--high-prio-pool-ratio", high_prio_pool_ratio, zero=True),
    )
    with connect(job, token_file) as client:
        answer = client.memory() if change == MemoryRequest() else client.tune_memory(change, timeout_s=timeout)
    show(answer.model_dump(mode="json"), output, memory_table(answer))
    if output is Output.TABLE:
        for warning in answer.warnings:
            typer.echo(f"warning: {warning}")


def _size(text: str) -> int:
    try:
        size_bytes = parse_size(text)
    except InvalidInputError as error:
        raise InvalidInputError(str(error), field="--managed") from error
    if size_bytes < 1:
        raise InvalidInputError("expected more than 0 bytes", field="--managed")
    return size_bytes


def _ratio(option: str, value: float | None, *, zero: bool) -> float | None:
    if value is not None and not (0 < value < 1 or (zero and value == 0)):
        raise InvalidInputError(f"{value:g} is not {'from 0 to below' if zero else 'between 0 and'} 1", field=option)
    return value
