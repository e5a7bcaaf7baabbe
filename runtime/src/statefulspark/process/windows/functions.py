"""The functions of windows that users write: PyFlink's names and signatures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from statefulspark.process.windows.windows import Window
from statefulspark.state.api.functions import Function
from statefulspark.state.api.keyed_state_store import KeyedStateStore

__all__ = ["ProcessWindowFunction", "WindowFunction"]


class WindowFunction(Function):
    """Makes output rows of a window.

    >>> class Count(WindowFunction):
    ...     def apply(self, key, window, inputs):
    ...         yield key, window.end, len(inputs)
    """

    @abstractmethod
    def apply(self, key: Any, window: Window, inputs: list[Any]) -> Iterable[Any] | None:
        """Yield the output rows of a window that fires, or return an iterable of them.

        Args:
            key: The key: a value for one key column, a tuple for several.
            window: The window.
            inputs: Its rows; after ``reduce`` or ``aggregate`` the one result.
        """


class ProcessWindowFunction(Function):
    """Makes output rows of a window, with access to its time and to state.

    >>> class Count(ProcessWindowFunction):
    ...     def process(self, key, context, elements):
    ...         yield key, context.window().end, len(elements)
    """

    class Context(ABC):
        """The window that fires."""

        @abstractmethod
        def window(self) -> Window:
            """Return the window."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Return the processing time of the batch, in milliseconds since the epoch."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Return the watermark in milliseconds since the epoch, -9223372036854775808 before there is one."""

        @abstractmethod
        def window_state(self) -> KeyedStateStore:
            """Return the state of the key and window. It is removed with the window.

            Raises:
                InvalidInputError: The windows merge, as sessions do, and have no state of their own.
            """

        @abstractmethod
        def global_state(self) -> KeyedStateStore:
            """Return the state of the key, shared by all its windows."""

    @abstractmethod
    def process(self, key: Any, context: ProcessWindowFunction.Context, elements: list[Any]) -> Iterable[Any] | None:
        """Yield the output rows of a window that fires, or return an iterable of them.

        Args:
            key: The key: a value for one key column, a tuple for several.
            context: The window, its times and states.
            elements: Its rows; after ``reduce`` or ``aggregate`` the one result.
        """

    def clear(self, context: ProcessWindowFunction.Context) -> None:
        """Handle that a window is removed. State of ``context.window_state()`` is removed anyway."""
