"""WindowHarness: makes harnesses for windowed streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from statefulspark.process.windows.assigners import WindowAssigner
from statefulspark.process.windows.late_rows import LateRow
from statefulspark.process.windows.window_operator import WindowOperator
from statefulspark.process.windows.windowed_transformations import StepTimes, WindowedTransformations
from statefulspark.testing.harness import KeyedProcessHarness
from statefulspark.testing.schemas import Schema, arrow_schema

__all__ = ["WindowHarness"]


class WindowHarness(WindowedTransformations[KeyedProcessHarness]):
    """Stands for a windowed stream in a test: what is made of it is a `KeyedProcessHarness`. Needs neither Spark nor Java.

    >>> from statefulspark import Time, TumblingEventTimeWindows
    >>> minutes = WindowHarness(TumblingEventTimeWindows.of(Time.minutes(1)), "user STRING, n BIGINT, at TIMESTAMP", key="user")
    >>> with minutes.reduce(lambda a, b: (a.user, a.n + b.n, b.at), uid="sum", event_time="at") as harness:
    ...     harness.process_element(("ada", 1), 10_000)
    ...     harness.process_element(("ada", 2), 50_000)
    ...     harness.process_watermark(60_000)
    ...     [(row.user, row.n) for row in harness.get_output()]
    [('ada', 3)]

    Args:
        window_assigner: Gives each row its windows.
        input_schema: The columns of the stream: an Arrow schema, a dict of Arrow types, DDL text or a StructType.
        key: The key column, or several.
        max_parallelism: Number of key groups, 1..32768.
    """

    def __init__(
        self, window_assigner: WindowAssigner, input_schema: Schema, *, key: str | Sequence[str], max_parallelism: int = 128
    ) -> None:
        super().__init__(window_assigner)
        self._schema = arrow_schema(input_schema)
        self._key = key
        self._max_parallelism = max_parallelism

    def _columns(self) -> pa.Schema:
        return self._schema

    def _late_row(self) -> Callable[[Any], Any]:
        return LateRow(tuple(range(len(self._schema.names))))

    def _made(self, operator: WindowOperator, output_type: Any, times: StepTimes) -> KeyedProcessHarness:
        return KeyedProcessHarness(
            operator,
            self._schema,
            self._schema if output_type is None else output_type,
            key=self._key,
            event_time=times.event_time,
            max_parallelism=self._max_parallelism,
            side_outputs=times.side_outputs or (),
        )
