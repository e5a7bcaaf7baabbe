"""The classes that users extend and the contexts they receive: PyFlink's names and signatures.

A PyFlink ``KeyedProcessFunction`` runs here after changing only its imports. ``contexts.py`` implements the contexts; this module
has no behavior.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any

from statefulspark.state.api.functions import Function
from statefulspark.state.api.keyed_state_store import KeyedStateStore

if TYPE_CHECKING:
    from statefulspark.keygroups import KeyGroupRange
    from statefulspark.process.api.metrics import MetricGroup

__all__ = [
    "FilterFunction",
    "FlatMapFunction",
    "KeySelector",
    "KeyedProcessFunction",
    "MapFunction",
    "RuntimeContext",
    "TimeDomain",
    "TimerService",
]


class TimeDomain(Enum):
    """The clock of a timer."""

    EVENT_TIME = 0
    """The watermark, which comes from the rows."""
    PROCESSING_TIME = 1
    """The wall clock, fixed once per batch."""


class TimerService(ABC):
    """The clocks and timers of the current key.

    Times are milliseconds since the epoch, as those of ``ctx.timestamp()``. A ``datetime`` of a row is in UTC and has no zone:
    ``(value.at - datetime(1970, 1, 1)) // timedelta(milliseconds=1)`` makes milliseconds of it. Its ``timestamp()`` does not,
    because Python takes it as local time.

    >>> class Reminder(KeyedProcessFunction):
    ...     def process_element(self, value, ctx):
    ...         ctx.timer_service().register_event_time_timer(ctx.timestamp() + 60_000)
    ...
    ...     def on_timer(self, timestamp, ctx):
    ...         yield ctx.get_current_key(), timestamp

    A timer is one (key, time domain, timestamp): registering it twice fires once. Timers are state: they are part of
    checkpoints and move with their key.
    """

    @abstractmethod
    def current_processing_time(self) -> int:
        """Return the processing time in milliseconds since the epoch; constant within a batch, so that a retry sees the same."""

    @abstractmethod
    def current_watermark(self) -> int:
        """Return the event-time watermark in milliseconds since the epoch, -9223372036854775808 before there is one."""

    @abstractmethod
    def register_event_time_timer(self, timestamp: int) -> None:
        """Call ``on_timer`` for the current key once the watermark has reached ``timestamp`` (milliseconds since the epoch).

        Raises:
            InvalidInputError: the step has no event-time column, or ``timestamp`` is not a whole number of 64 bits.
        """

    @abstractmethod
    def register_processing_time_timer(self, timestamp: int) -> None:
        """Call ``on_timer`` for the current key once processing time has reached ``timestamp`` (milliseconds since the epoch)."""

    @abstractmethod
    def delete_event_time_timer(self, timestamp: int) -> None:
        """Forget the current key's event-time timer of ``timestamp``; without such a timer nothing happens."""

    @abstractmethod
    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Forget the current key's processing-time timer of ``timestamp``; without such a timer nothing happens."""


class RuntimeContext(KeyedStateStore):
    """Passed to ``open``: describes where the function runs, and gives access to its keyed state.

    State handles are taken once, in ``open``; each access means the value of the key that is being processed.

    >>> from statefulspark import MapStateDescriptor, Types
    >>> class Pages(MapFunction):
    ...     def open(self, runtime_context):
    ...         self.seen = runtime_context.get_map_state(MapStateDescriptor("seen", Types.STRING(), Types.LONG()))
    ...         self.unknown = runtime_context.get_job_parameter("unknown-page", "?")
    ...
    ...     def map(self, value):
    ...         self.seen.put(value.page or self.unknown, 1)
    ...         return value.user, len(list(self.seen.keys()))
    """

    @abstractmethod
    def get_task_name(self) -> str:
        """Return the name of the step: its uid."""

    @abstractmethod
    def get_number_of_parallel_subtasks(self) -> int:
        """Return the parallelism: the number of slots."""

    @abstractmethod
    def get_max_number_of_parallel_subtasks(self) -> int:
        """Return max_parallelism: the number of key groups."""

    @abstractmethod
    def get_index_of_this_subtask(self) -> int:
        """Return the slot's number, 0..parallelism-1."""

    @abstractmethod
    def get_key_group_range(self) -> KeyGroupRange:
        """Return the key groups of this slot, for functions with raw keyed state. In Flink, the keyed state backend has it."""

    @abstractmethod
    def get_current_key_group_index(self) -> int:
        """Return the key group of the current key. In Flink, the keyed state backend has it.

        Raises:
            InvalidInputError: There is no current key.
        """

    @abstractmethod
    def get_attempt_number(self) -> int:
        """Return the attempt number of this copy of the function, as in Flink: 0 for the first that was opened in its slot.

        Every later copy has a greater one: after the slot was restarted, and after a batch was rolled back. Rescaling starts at 0 again.
        """

    @abstractmethod
    def get_task_name_with_subtasks(self) -> str:
        """Return the name with the slot counted from 1, such as ``turnaround (1/2)``."""

    @abstractmethod
    def get_job_parameter(self, key: str, default_value: str) -> str:
        """Return a global job parameter, from ``spec.job.parameters`` of the manifest; ``default_value`` if the job does not have it."""

    @abstractmethod
    def get_metrics_group(self) -> MetricGroup:
        """Return the group in which the function registers its own counters and gauges."""


class MapFunction(Function):
    """Makes one output row of each row, for `KeyedStream.map`.

    >>> class Shout(MapFunction):
    ...     def map(self, value):
    ...         return value.user.upper()
    """

    @abstractmethod
    def map(self, value: Any) -> Any:
        """Return the output row of ``value``: a tuple, a ``Row`` or dict by name, or a bare value for one column."""


class FlatMapFunction(Function):
    """Makes any number of output rows of each row, for `KeyedStream.flat_map`.

    >>> class Words(FlatMapFunction):
    ...     def flat_map(self, value):
    ...         yield from value.text.split()
    """

    @abstractmethod
    def flat_map(self, value: Any) -> Iterable[Any] | None:
        """Yield the output rows of ``value``, or return an iterable of them, or None."""


class FilterFunction(Function):
    """Decides which rows a stream keeps, for `KeyedStream.filter`.

    >>> class Paid(FilterFunction):
    ...     def filter(self, value):
    ...         return value.amount > 0
    """

    @abstractmethod
    def filter(self, value: Any) -> bool:
        """Return True to keep ``value``."""


class KeySelector(Function):
    """Names the key of a row, for `Job.key_by`.

    Spark computes the key, before rows reach a slot: ``get_key`` is called once, in the driver, with a row whose fields are Spark's columns.

    >>> class ByUser(KeySelector):
    ...     def get_key(self, value):
    ...         return value.user
    """

    @abstractmethod
    def get_key(self, value: Any) -> Any:
        """Return the key's column, or a tuple of columns, made of the columns of ``value`` and Spark's functions."""


class KeyedProcessFunction(Function):
    """A function over a keyed stream, with state and timers.

    ``process_element`` and ``on_timer`` are generators that yield output rows, or return an iterable of them, or None.
    An output row is a tuple in the order of the output schema, a ``Row`` or dict by name, or a bare value when the output
    schema has one column. One instance lives per slot; it is called by one thread.

    >>> from statefulspark import Types, ValueStateDescriptor
    >>> class Count(KeyedProcessFunction):
    ...     def open(self, runtime_context):
    ...         self.n = runtime_context.get_state(ValueStateDescriptor("n", Types.LONG()))
    ...
    ...     def process_element(self, value, ctx):
    ...         self.n.update((self.n.value() or 0) + 1)
    ...         yield value.user, self.n.value()

    `KeyedStream.process` runs it in a pipeline, ``statefulspark.testing.KeyedProcessHarness`` in a test.

    Only state and timers are exactly-once. Attributes of the instance are neither stored nor rolled back: when a batch is rolled back, because
    it failed here or elsewhere in the job, the instance is closed and a fresh copy of the one passed to ``process()`` is opened for the
    retry. So an attribute may cache what state holds, and what must last belongs into state. Class attributes and module globals
    are shared by all copies in a process and survive.
    """

    class Context(ABC):
        """Context of one element."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """Return the key: a value for one key column, a tuple for several."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """Return the element's event time in milliseconds since the epoch; None without an event-time column or value.

            In ``on_timer`` it is the timer's timestamp.
            """

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Return the clocks and timers of the current key."""

    class OnTimerContext(Context):
        """Context of one timer."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Return the clock that fired the timer."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Prepare the function in its slot, before the first element: take state handles here."""

    @abstractmethod
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any] | None:
        """Process one row; rows of one key come in event-time order within a batch.

        Args:
            value: The row: ``value.user``, ``value["user"]`` or ``value[0]``. A column of type timestamp is a ``datetime`` in UTC without a zone;
                ``ctx.timestamp()`` and timers are milliseconds since the epoch.
            ctx: The key, its timers and the row's event time.

        Returns:
            Output rows. A ``datetime`` without a zone is taken as UTC in an output column of type timestamp.
        """

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any] | None:  # noqa: ARG002  # for overriding
        """Process a timer of the current key that has become due; ``timestamp`` is the one it was registered with."""
        return None

    def close(self) -> None:
        """Release what ``open`` acquired: the slot is about to stop, or a batch was rolled back and a fresh copy takes over."""
