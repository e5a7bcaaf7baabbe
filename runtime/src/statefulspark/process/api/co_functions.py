"""The classes that users extend for steps with two inputs: PyFlink's names and signatures. This module has no behavior but a check."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, TypeAlias

from statefulspark.errors import InvalidInputError, type_name
from statefulspark.process.api.broadcast_functions import KeyedBroadcastProcessFunction
from statefulspark.process.api.functions import KeyedProcessFunction, RuntimeContext, TimeDomain, TimerService
from statefulspark.process.batches.functions import BatchKeyedProcessFunction
from statefulspark.state.api.functions import Function

__all__ = ["CoFlatMapFunction", "CoMapFunction", "KeyedCoProcessFunction", "StepFunction", "check_function"]


class CoMapFunction(Function):
    """Makes one output row of each row of two inputs, for `ConnectedStreams.map`.

    Both methods see the same instance and the same keyed state, but an attribute does not survive a batch that is rolled back.

    >>> class Named(CoMapFunction):
    ...     def map1(self, value):
    ...         return "click", value.user
    ...     def map2(self, value):
    ...         return "order", value.user
    """

    @abstractmethod
    def map1(self, value: Any) -> Any:
        """Return the output row of ``value``, a row of the first input: a tuple, a ``Row`` or dict by name, or a bare value for one column."""

    @abstractmethod
    def map2(self, value: Any) -> Any:
        """Return the output row of ``value``, a row of the second input."""


class CoFlatMapFunction(Function):
    """Makes any number of output rows of each row of two inputs, for `ConnectedStreams.flat_map`.

    >>> class OnlyOrders(CoFlatMapFunction):
    ...     def flat_map1(self, value):
    ...         return None
    ...     def flat_map2(self, value):
    ...         yield value.user, value.price
    """

    @abstractmethod
    def flat_map1(self, value: Any) -> Iterable[Any] | None:
        """Yield the output rows of ``value``, a row of the first input, or return an iterable of them, or None."""

    @abstractmethod
    def flat_map2(self, value: Any) -> Iterable[Any] | None:
        """Yield the output rows of ``value``, a row of the second input, or return an iterable of them, or None."""


class KeyedCoProcessFunction(Function):
    """A function over two connected keyed streams, which share state and timers of each key.

    Rows of a key come in event-time order within a batch, from whichever input they are; of rows with equal event times, those of the
    first input come first. Rows of an input without event time come before all others. The watermark is the smaller one of both inputs. There
    is no order between rows of different batches: a row of one input may come long before or after the row of the other that it belongs to,
    so keep in state what has to wait for it.

    Output rows, attributes and failures are as for a `KeyedProcessFunction`.

    >>> class Enrich(KeyedCoProcessFunction):
    ...     def open(self, runtime_context):
    ...         self.name = runtime_context.get_state(ValueStateDescriptor("name", Types.STRING()))
    ...     def process_element1(self, value, ctx):
    ...         yield value.user, value.page, self.name.value()
    ...     def process_element2(self, value, ctx):
    ...         self.name.update(value.name)
    """

    class Context(ABC):
        """Context of one element."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """Return the key: a value for one key column, a tuple for several."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """Return the element's event time in milliseconds since the epoch; None if its input has no event-time column or the row no value.

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
    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any] | None:
        """Process one row of the first input."""

    @abstractmethod
    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any] | None:
        """Process one row of the second input."""

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterable[Any] | None:  # noqa: ARG002  # for overriding
        """Process a timer of the current key that has become due; ``timestamp`` is the one it was registered with."""
        return None

    def close(self) -> None:
        """Release what ``open`` acquired: the slot is about to stop, or a batch was rolled back and a fresh copy takes over."""


StepFunction: TypeAlias = KeyedProcessFunction | BatchKeyedProcessFunction | KeyedCoProcessFunction | KeyedBroadcastProcessFunction
"""A function of a keyed step: with one input, row by row or as batches, with two, or with a keyed and a broadcast one."""

_WANTED = {
    "one input": (KeyedProcessFunction, ("process_element",)),
    "one input, in batches": (BatchKeyedProcessFunction, ("process_batch",)),
    "two inputs": (KeyedCoProcessFunction, ("process_element1", "process_element2")),
    "a broadcast input": (KeyedBroadcastProcessFunction, ("process_element", "process_broadcast_element")),
}


def check_function(function: object, *, inputs: int, field: str, broadcast: bool = False) -> None:
    """Check that a function fits the inputs of its step.

    Args:
        function: What the user passed.
        inputs: 1 or 2.
        field: Name of the argument, for the error.
        broadcast: True if the second input is a broadcast stream.

    Raises:
        InvalidInputError: It does not.
    """
    has = "a broadcast input" if broadcast else "one input" if inputs == 1 else "two inputs"
    if has == "one input" and isinstance(function, BatchKeyedProcessFunction):
        has = "one input, in batches"
    wanted, methods = _WANTED[has]
    kind = type(function)
    for other, _ in _WANTED.values():
        if other is not wanted and isinstance(function, other):
            raise InvalidInputError(
                f"is {kind.__name__}, {type_name(other)}, and the step has {has}", field=field, remedy=f"Derive it from {type_name(wanted)}"
            )
    missing = next((name for name in methods if not callable(getattr(function, name, None))), None)
    if missing is not None:
        raise InvalidInputError(f"{type_name(kind)} has no {missing}", field=field, remedy=f"Pass an instance of {type_name(wanted)}")
