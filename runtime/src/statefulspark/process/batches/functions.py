"""The class that users extend to process many keys with one call, as Arrow batches, and what it works with.

``contexts.py`` implements the contexts; this module has no behavior.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from statefulspark.process.api.functions import RuntimeContext
from statefulspark.state.api.functions import Function
from statefulspark.state.api.states import ValueState

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from statefulspark.process.api.functions import TimeDomain
    from statefulspark.state.api.descriptors import ValueStateDescriptor

__all__ = ["BatchKeyedProcessFunction", "BatchRuntimeContext", "BatchTimerService", "BatchValueState", "Produced"]

Produced: TypeAlias = "Iterable[pa.RecordBatch | pa.Table] | pa.RecordBatch | pa.Table | None"
"""The results that a batch function may return."""


class BatchValueState(ValueState[Any]):
    """One value for each key of a call; `BatchRuntimeContext.get_state` returns it.

    Stored values are those of a ``ValueState`` of the same name and type, so a row function can become a batch function and back.
    """

    @abstractmethod
    def get_batch(self) -> pa.Array:
        """Return the value of each key of the call, in the order of the keys; null for a key without one.

        The Arrow type follows from the state's type: ``Types.LONG()`` is int64, ``Types.BIG_DEC()`` decimal128(38, 18), a row is a struct.
        """

    @abstractmethod
    def put_batch(self, values: pa.Array) -> None:
        """Replace the value of each key of the call; null removes it.

        Args:
            values: One value per key: an Arrow array, or what ``pyarrow.array`` takes, such as a NumPy array. A type that differs from that of
                `get_batch` is cast if nothing is lost.

        Raises:
            InvalidInputError: The number of values or their type does not fit; names the state and the step.
        """


class BatchRuntimeContext(RuntimeContext):
    """Passed to ``open`` of a batch function: as `RuntimeContext`, but its states are those of many keys."""

    @abstractmethod
    def get_state(self, state_descriptor: ValueStateDescriptor) -> BatchValueState:
        """Return the state of a descriptor, for all keys of the call that runs.

        Raises:
            InvalidInputError: The descriptor has a time to live, or a type without an Arrow type.
        """


class BatchTimerService(ABC):
    """The clocks, and the timers of the keys of a call.

    A method for timers takes one timestamp per key, in milliseconds since the epoch, as an Arrow or NumPy array of integers, or as an Arrow array
    of timestamps; null is no timer. InvalidInputError if their number is not that of the keys.
    """

    @abstractmethod
    def current_processing_time(self) -> int:
        """Return the processing time in milliseconds since the epoch; constant within a batch."""

    @abstractmethod
    def current_watermark(self) -> int:
        """Return the event-time watermark in milliseconds since the epoch, -9223372036854775808 before there is one."""

    @abstractmethod
    def register_event_time_timers(self, timestamps: pa.Array) -> None:
        """Call ``on_timers`` for each key once the watermark has reached its timestamp; InvalidInputError for a step without event time."""

    @abstractmethod
    def delete_event_time_timers(self, timestamps: pa.Array) -> None:
        """Forget the event-time timer of each key at its timestamp; a key without such a timer is left as it is."""

    @abstractmethod
    def register_processing_time_timers(self, timestamps: pa.Array) -> None:
        """Call ``on_timers`` for each key once processing time has reached its timestamp."""

    @abstractmethod
    def delete_processing_time_timers(self, timestamps: pa.Array) -> None:
        """Forget the processing-time timer of each key at its timestamp; a key without such a timer is left as it is."""


class BatchKeyedProcessFunction(Function):
    """A function over a keyed stream that gets many keys with one call, as Arrow arrays.

    Each method yields record batches or tables of the output schema, or returns one, or None.

    >>> import numpy as np, pyarrow as pa, pyarrow.compute as pc
    >>> from statefulspark import Types, ValueStateDescriptor
    >>> class Total(BatchKeyedProcessFunction):
    ...     def open(self, runtime_context):
    ...         self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
    ...
    ...     def process_batch(self, keys, batch, ctx):
    ...         added = np.add.reduceat(batch["amount"].to_numpy(), ctx.offsets()[:-1])
    ...         total = pc.add(pc.fill_null(self.total.get_batch(), 0), pa.array(added))
    ...         self.total.put_batch(total)
    ...         yield pa.record_batch([keys, total], schema=ctx.output_schema())

    `KeyedStream.process` runs it, and ``statefulspark.testing.KeyedProcessHarness`` tests it. State, timers, checkpoints and the life of an instance
    are those of `KeyedProcessFunction`; ``docs/batch-functions.md`` says when to use which.
    """

    class Context(ABC):
        """Context of one call of ``process_batch``."""

        @abstractmethod
        def offsets(self) -> np.ndarray[Any, np.dtype[np.int64]]:
            """Return where the rows of each key begin, and at the end the number of rows: key ``n`` has the rows ``offsets[n]:offsets[n + 1]``."""

        @abstractmethod
        def key_numbers(self) -> np.ndarray[Any, np.dtype[np.int64]]:
            """Return the number of its key for each row, from 0 and ascending."""

        @abstractmethod
        def timer_service(self) -> BatchTimerService:
            """Return the clocks and the timers of the keys."""

        @abstractmethod
        def output_schema(self) -> pa.Schema:
            """Return the schema of what the function yields."""

    class OnTimersContext(ABC):
        """Context of one call of ``on_timers``."""

        @abstractmethod
        def timer_service(self) -> BatchTimerService:
            """Return the clocks and the timers of the keys."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Return the clock that fired the timers."""

        @abstractmethod
        def output_schema(self) -> pa.Schema:
            """Return the schema of what the function yields."""

    def open(self, runtime_context: BatchRuntimeContext) -> None:
        """Prepare the function in its slot, before the first call: take state handles here."""

    @abstractmethod
    def process_batch(self, keys: pa.Array, batch: pa.RecordBatch, ctx: BatchKeyedProcessFunction.Context) -> Produced:
        """Process all rows that some keys have in a batch of the job.

        Args:
            keys: The keys, each once; of several key columns a struct.
            batch: The columns of the stream. The rows of a key stand together, in the order of the keys and within a key by event time. A key
                has all of its rows of the batch in one call.
            ctx: Where the rows of each key are, and the timers.
        """

    def on_timers(self, keys: pa.Array, timestamps: pa.Array, ctx: BatchKeyedProcessFunction.OnTimersContext) -> Produced:  # noqa: ARG002
        """Handle timers that have become due, one of each key.

        The timers of a key come in the order of their timestamps, in one call each.

        Args:
            keys: The keys, each once.
            timestamps: The timestamps that they were registered with, milliseconds since the epoch (int64).
            ctx: The clocks, and the timers of the keys.
        """
        return None

    def close(self) -> None:
        """Release what ``open`` acquired: the slot is about to stop, or a batch was rolled back and a fresh copy takes over."""
