"""Writes the outputs of a keyed step with side outputs: one query whose sink persists each batch and hands each output its rows.

Spark would evaluate the step once per sink, and once per branch of a plan (docs/rfcs/0001-side-outputs.md), so there is one of each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from statefulspark.errors import InvalidInputError
from statefulspark.failpoints import reach
from statefulspark.pipeline.column_names import quoted
from statefulspark.pipeline.tagged_streams import TaggedStream

WriteOutput: TypeAlias = Callable[[DataFrame, int], object]
"""``write(df, batch_id)`` writes one batch of one output; see `Job.outputs`."""


def outputs_writer(stream: TaggedStream, writers: Mapping[str, WriteOutput | None]) -> DataStreamWriter:
    """See `Job.outputs`."""
    names = stream.outputs
    for name in names:
        if name not in writers:
            raise InvalidInputError(
                f"nothing consumes the output {name!r} of the step {stream.uid!r}",
                field="outputs",
                remedy=f"Pass a function for it, or discard its rows: outputs(..., **{{{name!r}: None}})",
            )
    for name, write in writers.items():
        if name not in names:
            raise InvalidInputError(
                f"the step {stream.uid!r} has no output {name!r}", field="outputs", remedy=f"Its outputs are {', '.join(names)}"
            )
        if write is not None and not callable(write):
            raise InvalidInputError(
                f"expected a function for {name!r}, got {type(write).__name__}",
                field="outputs",
                remedy="Pass a function write(df, batch_id), or None",
            )
    wanted = [(name, write) for name in names if (write := writers[name]) is not None]
    if not wanted:
        raise InvalidInputError(
            f"all outputs of the step {stream.uid!r} are discarded", field="outputs", remedy="Pass a function for at least one output"
        )
    return stream.df.writeStream.foreachBatch(lambda batch, batch_id: _write(batch, batch_id, wanted))


def _write(batch: DataFrame, batch_id: int, wanted: list[tuple[str, WriteOutput]]) -> None:
    """Write one batch. Counting it runs every partition, so that no output has any of it before its changelogs are durable."""
    batch.persist()
    try:
        batch.count()
        for number, (name, write) in enumerate(wanted):
            if number:
                reach("driver.output.written")
            rows = batch.where(f"{quoted(name)} IS NOT NULL").select(f"{quoted(name)}.*")
            try:
                write(rows, batch_id)
            except Exception as error:
                error.add_note(f"The output {name!r} of batch {batch_id} failed.")
                raise
    finally:
        batch.unpersist()
