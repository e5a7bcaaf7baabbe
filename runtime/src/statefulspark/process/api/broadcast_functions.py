"""The classes that users extend for a keyed stream that is connected with a broadcast stream: PyFlink's names and signatures.

This module has no behavior.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from statefulspark.process.api.functions import RuntimeContext, TimeDomain, TimerService
from statefulspark.state.api.functions import Function

if TYPE_CHECKING:
    from statefulspark.state.api.broadcast_state import BroadcastState, ReadOnlyBroadcastState
    from statefulspark.state.api.descriptors import MapStateDescriptor, StateDescriptor
    from statefulspark.state.types.type_variables import K, V

__all__ = ["BaseBroadcastProcessFunction", "KeyedBroadcastProcessFunction", "KeyedStateFunction"]


class KeyedStateFunction(Function):
    """Visits the keyed state of every key of a slot, for ``apply_to_keyed_state``. A function of key and state does as well."""

    @abstractmethod
    def process(self, key: Any, state: Any) -> None:
        """Read or change the state of ``key``.

        Args:
            key: a value for one key column, a tuple for several.
            state: what ``RuntimeContext.get_state`` and its siblings return for the descriptor.
        """


class BaseBroadcastProcessFunction(Function):
    """Base of functions with a broadcast input."""

    class BaseContext(ABC):
        """Context of one element of either input."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """Return the element's event time in milliseconds since the epoch; None if its input has no event-time column or the row no value."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Return the processing time in milliseconds since the epoch; constant within a batch."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Return the watermark in milliseconds since the epoch, -9223372036854775808 before there is one."""

    class Context(BaseContext):
        """Context of one row of the broadcast stream. It has no key."""

        @abstractmethod
        def get_broadcast_state(self, state_descriptor: MapStateDescriptor[K, V]) -> BroadcastState[K, V]:
            """Return a broadcast state, to read and to change.

            Raises:
                InvalidInputError: ``job.broadcast`` did not get the descriptor.
            """

    class ReadOnlyContext(BaseContext):
        """Context of one row of the keyed stream."""

        @abstractmethod
        def get_broadcast_state(self, state_descriptor: MapStateDescriptor[K, V]) -> ReadOnlyBroadcastState[K, V]:
            """Return a broadcast state, to read.

            Raises:
                InvalidInputError: ``job.broadcast`` did not get the descriptor.
            """


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction):
    """A function over a keyed stream and a broadcast stream, of which every slot gets every row: rules, prices, settings.

    Broadcast state is a map per slot that only ``process_broadcast_element`` changes. In each batch, timers that are due come first, then
    the rows of the broadcast stream by event time, then the keyed rows, then timers that became due. So a keyed row sees the rows of the
    broadcast stream that came in its own batch or before. The order of two batches is that of arrival, not of event time.

    Every slot must make the same changes, because a slot that restarts or is added gets the copy of another one: let them depend on the
    rows of the broadcast stream and on broadcast state only, never on keyed state, the number of the slot, the clock of the machine or
    random numbers. A row that ``process_broadcast_element`` emits is emitted once per slot.

    Output rows, attributes and failures are as for a `KeyedProcessFunction`.

    >>> from statefulspark import MapStateDescriptor, Types
    >>> LIMITS = MapStateDescriptor("limits", Types.STRING(), Types.DOUBLE())
    >>> class OverLimit(KeyedBroadcastProcessFunction):
    ...     def process_broadcast_element(self, value, ctx):
    ...         ctx.get_broadcast_state(LIMITS).put(value.currency, value.limit)
    ...     def process_element(self, value, ctx):
    ...         limit = ctx.get_broadcast_state(LIMITS).get(value.currency)
    ...         if limit is not None and value.amount > limit:
    ...             yield value.card, value.amount
    """

    class Context(BaseBroadcastProcessFunction.Context):
        """Context of one row of the broadcast stream."""

        @abstractmethod
        def apply_to_keyed_state(
            self, state_descriptor: StateDescriptor, function: KeyedStateFunction | Callable[[Any, Any], None]
        ) -> None:
            """Call ``function(key, state)`` for each key of this slot that has an entry of a keyed state.

            It costs reading the state once. Entries that have expired but are still stored are visited and read as empty.

            Args:
                state_descriptor: descriptor of the keyed state.
                function: a KeyedStateFunction, or a function of key and state. It may change the state, but not
                    broadcast state, because each slot has other keys. It cannot emit rows.

            Raises:
                InvalidInputError: ``function`` is neither, or changes broadcast state.
            """

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext):
        """Context of one row of the keyed stream."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Return the clocks and timers of the current key."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """Return the key: a value for one key column, a tuple for several."""

    class OnTimerContext(ReadOnlyContext):
        """Context of one timer; ``timestamp`` returns that of the timer."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Return the clock that fired the timer."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Prepare the function in its slot, before the first element: take handles of keyed state here."""

    @abstractmethod
    def process_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> Iterable[Any] | None:
        """Process one row of the keyed stream; rows of one key come in event-time order within a batch."""

    @abstractmethod
    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> Iterable[Any] | None:
        """Process one row of the broadcast stream, in every slot in the same order: event time, source partition, arrival."""

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext) -> Iterable[Any] | None:  # noqa: ARG002  for overriding
        """Process a timer of the current key that has become due; ``timestamp`` is the one it was registered with."""
        return None

    def close(self) -> None:
        """Release what ``open`` acquired: the slot is about to stop, or a batch was rolled back and a fresh copy takes over."""
