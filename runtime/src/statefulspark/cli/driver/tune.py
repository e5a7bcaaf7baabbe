"""``statefulspark tune``: show or change the split of a running job's managed memory."""

from __future__ import annotations

from typing import Annotated

import typer

from statefulspark.api_server.models.job import MemoryRequest
from statefulspark.cli.common.connect import CaFileOption, JobOption, TimeoutOption, TokenFileOption, connect
from statefulspark.cli.common.job_command import JobCommand
from statefulspark.cli.common.job_tables import memory_table
from statefulspark.cli.common.output import Output, OutputOption, say, show
from statefulspark.errors import InvalidInputError
from statefulspark.sizes import parse_size


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="tune", cls=JobCommand)(tune)


def tune(
    job: JobOption = None,
    managed: Annotated[
        str | None, typer.Option(help="Managed memory of each slot, for example 96Mi (at most the size the slots were started with).")
    ] = None,
    write_buffer_ratio: Annotated[
        float | None, typer.Option(help="Fraction of managed memory for write buffers (between 0 and 1).")
    ] = None,
    high_prio_pool_ratio: Annotated[
        float | None, typer.Option(help="Fraction of the cache for index and filter blocks (from 0 to less than 1).")
    ] = None,
    token_file: TokenFileOption = None,
    ca_file: CaFileOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Change how a running job's slots split their managed memory, without a restart. Without options, show the current split.

    The change lasts until the driver stops; the next start uses the manifest's values again.
    """
    change = MemoryRequest(
        managed_bytes=None if managed is None else _size(managed),
        write_buffer_ratio=_ratio("--write-buffer-ratio", write_buffer_ratio, zero=False),
        high_prio_pool_ratio=_ratio("--high-prio-pool-ratio", high_prio_pool_ratio, zero=True),
    )
    with connect(job, token_file, ca_file) as client:
        answer = client.memory() if change == MemoryRequest() else client.tune_memory(change, timeout_s=timeout)
    show(answer.model_dump(mode="json"), output, memory_table(answer))
    if output is Output.TABLE:
        for warning in answer.warnings:
            say(f"warning: {warning}")


def _size(text: str) -> int:
    try:
        size_bytes = parse_size(text)
    except InvalidInputError as error:
        raise error.named("--managed") from error
    if size_bytes < 1:
        raise InvalidInputError("expected more than 0 bytes", field="--managed")
    return size_bytes


def _ratio(option: str, value: float | None, *, zero: bool) -> float | None:
    if value is not None and not (0 < value < 1 or (zero and value == 0)):
        raise InvalidInputError(f"{value:g} is not {'from 0 to below' if zero else 'between 0 and'} 1", field=option)
    return value
