"""Function, ReduceFunction and AggregateFunction: the functions that state descriptors take. PyFlink's names.

The functions of keyed streams, which need a runtime context or timers, are in ``process/api/functions.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from statefulspark.errors import InvalidInputError

__all__ = ["AggregateFunction", "Function", "ReduceFunction", "as_reduce_function"]

IN = TypeVar("IN")
ACC = TypeVar("ACC")
OUT = TypeVar("OUT")


class Function(ABC):  # noqa: B024  # as in PyFlink: subclasses add the method that must be implemented
    """Base class of all functions that users write.

    ``open`` and ``close`` are called in the slot. They are not called for the function of a state descriptor, as in Flink.
    """

    def open(self, runtime_context: Any) -> None:  # noqa: B027  # optional to override, as in PyFlink
        """Prepare the function in its slot, before the first element: take state handles here.

        Args:
            runtime_context: The `RuntimeContext` of the step.
        """

    def close(self) -> None:  # noqa: B027  # optional to override, as in PyFlink
        """Release what ``open`` acquired: the slot is about to stop, or a batch was rolled back and a fresh copy takes over."""


class ReduceFunction(Function, Generic[IN]):
    """Combines two values into one of the same type; must be associative.

    >>> class Sum(ReduceFunction):
    ...     def reduce(self, value1, value2):
    ...         return value1 + value2
    >>> Sum().reduce(1, 2)
    3
    """

    @abstractmethod
    def reduce(self, value1: IN, value2: IN) -> IN:
        """Return the combination of ``value1`` (kept so far) and ``value2`` (new). It may change and return ``value1``."""


class AggregateFunction(Function, Generic[IN, ACC, OUT]):
    """Folds values into an accumulator and makes a result of it.

    >>> class Mean(AggregateFunction):
    ...     def create_accumulator(self):
    ...         return 0, 0
    ...
    ...     def add(self, value, accumulator):
    ...         return accumulator[0] + value, accumulator[1] + 1
    ...
    ...     def get_result(self, accumulator):
    ...         return accumulator[0] / accumulator[1]
    ...
    ...     def merge(self, acc_a, acc_b):
    ...         return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]
    >>> mean = Mean()
    >>> mean.get_result(mean.add(4, mean.add(1, mean.create_accumulator())))
    2.5
    """

    @abstractmethod
    def create_accumulator(self) -> ACC:
        """Return the accumulator of nothing."""

    @abstractmethod
    def add(self, value: IN, accumulator: ACC) -> ACC:
        """Return ``accumulator`` with ``value`` added; it may be changed in place."""

    @abstractmethod
    def get_result(self, accumulator: ACC) -> OUT:
        """Return the result so far."""

    @abstractmethod
    def merge(self, acc_a: ACC, acc_b: ACC) -> ACC:
        """Return both accumulators in one."""


class _CallableReduceFunction(ReduceFunction[Any]):
    def __init__(self, func: Callable[[Any, Any], Any]) -> None:
        self._func = func

    def reduce(self, value1: Any, value2: Any) -> Any:
        return self._func(value1, value2)


def as_reduce_function(func: ReduceFunction[Any] | Callable[[Any, Any], Any], field: str) -> ReduceFunction[Any]:
    """Return ``func``, or a ReduceFunction that calls it.

    Raises:
        InvalidInputError: It is neither a ReduceFunction nor callable; names ``field``.
    """
    if isinstance(func, ReduceFunction):
        return func
    if callable(func):
        return _CallableReduceFunction(func)
    raise InvalidInputError(
        f"expected a ReduceFunction or a function of two values, got {type(func).__name__}",
        field=field,
        remedy="Pass an instance of a ReduceFunction, or a function such as lambda a, b: a + b",
    )
