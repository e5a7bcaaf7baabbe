"""KeyedTransformations: the methods of keyed streams that take a small function or none. Each makes one keyed step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812  Spark's own convention

from statefulspark.pipeline.output_types import OutputType, output_struct
from statefulspark.process.adapters.function_adapters import REDUCE_STATE, FilterAdapter, FlatMapAdapter, MapAdapter, ReduceAdapter
from statefulspark.process.adapters.rolling_aggregations import Aggregation, RollingAggregation
from statefulspark.process.api.functions import FilterFunction, FlatMapFunction, KeyedProcessFunction, MapFunction
from statefulspark.state.api.functions import ReduceFunction
from statefulspark.state.api.names import RuntimeName


class KeyedTransformations(ABC):
    """PyFlink's transformations of keyed streams, with its names.

    Every method takes a ``uid``, the stable name of the step by which its state is found, 1 to 200 characters. With ``event_time``, the name of
    a timestamp column, the rows of a key are processed in its order within a batch. Functions of the classes of their
    names may override ``open`` and ``close`` and use keyed state; they have no timers. Every method raises InvalidInputError, which
    names the argument and the remedy, before anything is started.
    """

    @abstractmethod
    def _step(self, function: KeyedProcessFunction, schema: T.StructType, uid: str, event_time: str | None) -> DataFrame:
        """Make the keyed step."""

    @abstractmethod
    def _input(self) -> tuple[T.StructType, pa.Schema]:
        """The columns of the stream, as Spark's schema and as slots get them."""

    @abstractmethod
    def _visible(self, df: DataFrame) -> DataFrame:
        """Drop key columns that a key selector computed from rows that are passed on."""

    def map(
        self, func: MapFunction | Callable[[Any], Any], output_type: OutputType, *, uid: str, event_time: str | None = None
    ) -> DataFrame:
        """Emit one row for each row.

        Example::

            totals = job.key_by(orders, "user").map(lambda row: (row.user, row.price * row.count), "user STRING, total DOUBLE", uid="totals")

        Args:
            func: returns the output row: a tuple, a ``Row`` or dict by name, or a bare value for one column.
            output_type: the columns of the output: DDL text, a StructType, or a type such as ``Types.ROW_NAMED(...)``.
            uid: stable name of the step.
            event_time: timestamp column in whose order the rows of a key are processed.
        """
        return self._step(MapAdapter(func), output_struct(output_type, "output_type"), uid, event_time)

    def flat_map(
        self,
        func: FlatMapFunction | Callable[[Any], Iterable[Any] | None],
        output_type: OutputType,
        *,
        uid: str,
        event_time: str | None = None,
    ) -> DataFrame:
        """Emit any number of rows for each row.

        Example::

            words = job.key_by(messages, "user").flat_map(lambda row: row.text.split(), "word STRING", uid="words")

        Args:
            func: yields output rows, or returns an iterable of them, or None.
            output_type: the columns of the output, as in `map`.
            uid: stable name of the step.
            event_time: timestamp column in whose order the rows of a key are processed.
        """
        return self._step(FlatMapAdapter(func), output_struct(output_type, "output_type"), uid, event_time)

    def filter(self, func: FilterFunction | Callable[[Any], object], *, uid: str, event_time: str | None = None) -> DataFrame:
        """Keep the rows for which ``func`` returns True.

        For a condition that needs no state, ``df.where(...)`` is faster: Spark evaluates it without Python and without a shuffle.

        Example::

            paid = job.key_by(orders, "user").filter(lambda row: row.price > 0, uid="paid")

        Args:
            func: decides on a row.
            uid: stable name of the step.
            event_time: timestamp column in whose order the rows of a key are processed.
        """
        schema, _ = self._input()
        return self._visible(self._step(FilterAdapter(func), schema, uid, event_time))

    def reduce(self, func: ReduceFunction[Any] | Callable[[Any, Any], Any], *, uid: str, event_time: str | None = None) -> DataFrame:
        """Combine all rows of a key, and emit the combination after each row.

        The first row of a key is emitted as it is. State is named ``_reduce``; it holds one row of the stream's columns per key, forever.

        Example::

            longest = job.key_by(calls, "user").reduce(lambda a, b: b if b.seconds > a.seconds else a, uid="longest")

        Args:
            func: combines the row kept so far, a ``Row``, and a new one into a row of the same columns. It may change the first and return it.
            uid: stable name of the step.
            event_time: timestamp column in whose order the rows of a key are processed.
        """
        return self._reduced(func, REDUCE_STATE, uid, event_time)

    def sum(self, position_to_sum: int | str = 0, *, uid: str, event_time: str | None = None) -> DataFrame:
        """Emit for each row the first row of its key, with the sum so far of one column.

        State is named ``_sum(column)``. Nulls are ignored. A sum that its column's type cannot hold fails the batch: cast the column first.

        Example::

            spent = job.key_by(orders, "user").sum("price", uid="spent")

        Args:
            position_to_sum: the column by name or position; a number, a decimal or an interval.
            uid: stable name of the step.
            event_time: timestamp column in whose order the rows of a key are processed.
        """
        return self._aggregated("sum", position_to_sum, uid, event_time)

    def min(self, position_to_min: int | str = 0, *, uid: str, event_time: str | None = None) -> DataFrame:
        """Emit for each row the first row of its key, with the least value so far of one column.

        State is named ``_min(column)``. Nulls are ignored, and NaN is greater than all numbers. See `min_by` for the whole row.

        Args:
            position_to_min: the column by name or position; not an array, map or struct.
            uid: stable name of the step.
            event_time: timestamp column in whose order the rows of a key are processed.
        """
        return self._aggregated("min", position_to_min, uid, event_time)

    def max(self, position_to_max: int | str = 0, *, uid: str, event_time: str | None = None) -> DataFrame:
        """Emit for each row the first row of its key, with the greatest value so far of one column.

        State is named ``_max(column)``. Nulls are ignored, and NaN is greater than all numbers. See `max_by` for the whole row.

        Args:
            position_to_max: the column by name or position; not an array, map or struct.
            uid: stable name of the step.
            event_time: timestamp column in whose order the rows of a key are processed.
        """
        return self._aggregated("max", position_to_max, uid, event_time)

    def min_by(self, position_to_min_by: int | str = 0, *, uid: str, event_time: str | None = None) -> DataFrame:
        """Emit for each row the row of its key with the least value so far in one column, the first of several.

        State is named ``_min_by(column)``. Nulls are greater than everything else, then NaN.

        Example::

            cheapest = job.key_by(offers, "product").min_by("price", uid="cheapest")

        Args:
            position_to_min_by: the column by name or position; not an array, map or struct.
            uid: stable name of the step.
            event_time: timestamp column in whose order the rows of a key are processed.
        """
        return self._aggregated("min_by", position_to_min_by, uid, event_time)

    def max_by(self, position_to_max_by: int | str = 0, *, uid: str, event_time: str | None = None) -> DataFrame:
        """Emit for each row the row of its key with the greatest value so far in one column, the first of several.

        State is named ``_max_by(column)``. Nulls are less than everything else; NaN is greater than all numbers.

        Args:
            position_to_max_by: the column by name or position; not an array, map or struct.
            uid: stable name of the step.
            event_time: timestamp column in whose order the rows of a key are processed.
        """
        return self._aggregated("max_by", position_to_max_by, uid, event_time)

    def _aggregated(self, kind: Aggregation, position: int | str, uid: str, event_time: str | None) -> DataFrame:
        _, columns = self._input()
        aggregation = RollingAggregation(kind, columns, position)
        return self._reduced(aggregation, aggregation.state_name, uid, event_time)

    def _reduced(
        self, func: ReduceFunction[Any] | Callable[[Any, Any], Any], state_name: RuntimeName, uid: str, event_time: str | None
    ) -> DataFrame:
        schema, columns = self._input()
        return self._visible(self._step(ReduceAdapter(func, columns, state_name=state_name), schema, uid, event_time))
