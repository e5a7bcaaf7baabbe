"""Calls the methods of functions that keep operator state: ``initialize_state``, ``snapshot_state`` and ``restore_state``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from statefulspark.errors import InvalidInputError, StatefulSparkError, type_name
from statefulspark.process.failures import user_function_error
from statefulspark.process.function_adapters import unwrapped
from statefulspark.state.api.descriptors import ListStateDescriptor
from statefulspark.state.api.operator_state import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    ListCheckpointed,
    OperatorStateStore,
)
from statefulspark.state.types.types import Types

if TYPE_CHECKING:
    from statefulspark.process.functions import KeyedProcessFunction
    from statefulspark.state.api.keyed_state_store import KeyedStateStore
    from statefulspark.state.operator.backend import OperatorStateBackend

__all__ = ["LIST_CHECKPOINTED_STATE", "StateCalls", "check_interfaces", "is_checkpointed"]

LIST_CHECKPOINTED_STATE: Final = "_default_"
"""Name of the list of a ListCheckpointed, as in Flink; part of the format of checkpoints."""


def is_checkpointed(function: KeyedProcessFunction) -> bool:
    """Return True if a step's function keeps operator state."""
    return isinstance(unwrapped(function), CheckpointedFunction | ListCheckpointed)


def check_interfaces(function: KeyedProcessFunction) -> None:
    """Check that the function does not keep operator state in two ways.

    Raises:
        InvalidInputError: It does.
    """
    user: object = unwrapped(function)
    if all(isinstance(user, interface) for interface in (CheckpointedFunction, ListCheckpointed)):
        raise InvalidInputError(
            f"{type(user).__name__} implements CheckpointedFunction and ListCheckpointed", field="func", remedy="Implement one of them"
        )


class StateCalls:
    """Calls the methods of one copy of a step's function; does nothing if it keeps no operator state.

    Args:
        function: The copy.
        uid: The step.
        operator_state: Its operator state in this slot.
        keyed_state: Its keyed state.
    """

    def __init__(
        self, function: KeyedProcessFunction, *, uid: str, operator_state: OperatorStateBackend, keyed_state: KeyedStateStore
    ) -> None:
        user: object = unwrapped(function)
        self._function: CheckpointedFunction | None = None
        if isinstance(user, ListCheckpointed):
            self._function = _ListAdapter(user, uid)
        elif isinstance(user, CheckpointedFunction):
            self._function = user
        self._uid = uid
        self._operator_state = operator_state
        self._keyed_state = keyed_state

    def initialize(self) -> None:
        """Call ``initialize_state``.

        Raises:
            UserFunctionError: It raised.
        """
        if self._function is None:
            return
        backend = self._operator_state
        try:
            self._function.initialize_state(_InitializationContext(backend, self._keyed_state))
        except StatefulSparkError:
            raise
        except Exception as error:
            raise user_function_error(error, uid=self._uid, key_group=None) from error
        backend.initialized()

    def snapshot(self, checkpoint_id: int, timestamp_ms: int) -> None:
        """Call ``snapshot_state``; there must be no current key.

        Args:
            checkpoint_id: Number of the batch that the snapshot includes.
            timestamp_ms: Processing time of that batch, milliseconds since the epoch.

        Raises:
            UserFunctionError: It raised.
        """
        if self._function is None:
            return
        try:
            self._function.snapshot_state(_SnapshotContext(checkpoint_id, timestamp_ms))
        except StatefulSparkError:
            raise
        except Exception as error:
            raise user_function_error(error, uid=self._uid, key_group=None) from error


class _ListAdapter(CheckpointedFunction):
    """Keeps the list of a ListCheckpointed in split list state."""

    def __init__(self, function: ListCheckpointed[Any], uid: str) -> None:
        self._function = function
        self._uid = uid

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        descriptor = ListStateDescriptor(LIST_CHECKPOINTED_STATE, Types.PICKLED_BYTE_ARRAY())
        self._state = context.get_operator_state_store().get_list_state(descriptor)
        if context.is_restored():
            self._function.restore_state(list(self._state.get()))

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        elements: object = self._function.snapshot_state(context.get_checkpoint_id(), context.get_checkpoint_timestamp())
        if not isinstance(elements, list | tuple):
            raise InvalidInputError(
                f"the step {self._uid!r} returned {type_name(type(elements))}", field="snapshot_state", remedy="Return a list of elements"
            )
        kept: Iterable[Any] = elements
        self._state.update(kept)


class _InitializationContext(FunctionInitializationContext):
    __slots__ = ("_keyed_state", "_operator_state", "_restored")

    def __init__(self, operator_state: OperatorStateBackend, keyed_state: KeyedStateStore) -> None:
        self._operator_state = operator_state
        self._keyed_state = keyed_state
        self._restored = operator_state.batch if operator_state.restored else None

    def is_restored(self) -> bool:
        return self._restored is not None

    def get_restored_checkpoint_id(self) -> int | None:
        return self._restored

    def get_operator_state_store(self) -> OperatorStateStore:
        return self._operator_state

    def get_keyed_state_store(self) -> KeyedStateStore:
        return self._keyed_state


class _SnapshotContext(FunctionSnapshotContext):
    __slots__ = ("_checkpoint_id", "_timestamp_ms")

    def __init__(self, checkpoint_id: int, timestamp_ms: int) -> None:
        self._checkpoint_id = checkpoint_id
        self._timestamp_ms = timestamp_ms

    def get_checkpoint_id(self) -> int:
        return self._checkpoint_id

    def get_checkpoint_timestamp(self) -> int:
        return self._timestamp_ms
