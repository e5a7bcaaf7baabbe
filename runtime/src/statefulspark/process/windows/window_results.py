"""Output of a window that fires: the result of a window function, or the contents themselves."""

from __future__ import annotations

from collections.abc import Iterable
from types import GeneratorType
from typing import Any

from statefulspark.errors import InvalidInputError
from statefulspark.process.api.functions import RuntimeContext, TimerService
from statefulspark.process.runner.callbacks import check_rows, is_own
from statefulspark.process.windows.functions import ProcessWindowFunction, WindowFunction
from statefulspark.process.windows.window_states import SelectedWindow, WindowStates
from statefulspark.process.windows.windows import Window
from statefulspark.state.api.functions import Function
from statefulspark.state.api.keyed_state_store import KeyedStateStore

__all__ = ["ProcessWindowContext", "WindowResults"]


class ProcessWindowContext(ProcessWindowFunction.Context):
    """The context of a ProcessWindowFunction; the window operator sets ``fired`` and ``service`` before each call.

    Args:
        context: Of the step.
        scope: Kinds of windows and contents, part of the names of states.
        selected: The window whose states are accessed.
        merges: Whether windows merge.

    Attributes:
        fired: The window.
        service: Timers and times of the current key.
        uses_state: True once the function has asked for state of the key.
    """

    fired: Window
    service: TimerService

    def __init__(self, context: RuntimeContext, scope: str, selected: SelectedWindow, *, merges: bool) -> None:
        self._global = context
        self.uses_state = False
        self._states = None if merges else WindowStates(context, "window", scope, selected)

    def window(self) -> Window:
        return self.fired

    def current_processing_time(self) -> int:
        return self.service.current_processing_time()

    def current_watermark(self) -> int:
        return self.service.current_watermark()

    def window_state(self) -> KeyedStateStore:
        if self._states is None:
            raise InvalidInputError(
                "session windows merge and have no state of their own",
                field="window_state",
                remedy="Use global_state(), or windows that do not merge",
            )
        return self._states

    def global_state(self) -> KeyedStateStore:
        self.uses_state = True
        return self._global

    def clear(self) -> None:
        """Remove the state of the selected window."""
        if self._states is not None:
            self._states.clear()


class WindowResults:
    """Runs the window function, if there is one.

    Args:
        function: A WindowFunction, a ProcessWindowFunction, or None to emit contents as they are.
    """

    def __init__(self, function: WindowFunction | ProcessWindowFunction | None) -> None:
        self._function = function
        # Asked once: these classes are abstract, of which Python asks slowly.
        self._process_function = function if isinstance(function, ProcessWindowFunction) else None
        self._window_function = function if isinstance(function, WindowFunction) else None

    @property
    def clears(self) -> bool:
        """False if the function has no ``clear`` of its own, so that `clear` would do nothing."""
        return self._process_function is not None and is_own(self._process_function.clear, ProcessWindowFunction.clear)

    @property
    def opens(self) -> bool:
        """False if the function has no ``open`` of its own, in which it would take states."""
        return self._function is not None and is_own(self._function.open, Function.open)

    def open(self, context: RuntimeContext) -> None:
        """Open the function."""
        self._uid = context.get_task_name()
        if self._function is not None:
            self._function.open(context)

    def close(self) -> None:
        """Close the function."""
        if self._function is not None:
            self._function.close()

    def of(self, key: Any, context: ProcessWindowContext, elements: list[Any]) -> list[Any]:
        """Return the rows that a window emits.

        Raises:
            InvalidInputError: The function returned no rows, but a value.
        """
        if self._process_function is not None:
            produced, name = self._process_function.process(key, context, elements), "process"
        elif self._window_function is not None:
            produced, name = self._window_function.apply(key, context.window(), elements), "apply"
        else:
            return elements
        if produced.__class__ is GeneratorType:
            # It runs while its window is selected.
            return list(produced)
        return self._rows(produced, name)

    def _rows(self, produced: Iterable[Any] | None, name: str) -> list[Any]:
        if produced is None:
            return []
        check_rows(produced, name, self._uid)
        return list(produced)

    def clear(self, context: ProcessWindowContext) -> None:
        """Let the function handle that the window is removed."""
        if self._process_function is not None:
            self._process_function.clear(context)
