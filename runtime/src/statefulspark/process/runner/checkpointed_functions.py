"""Calls the methods of functions that keep operator state: ``initialize_state``, ``snapshot_state`` and ``restore_state``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from statefulspark.errors import InvalidInputError, StatefulSparkError, type_name
from statefulspark.process.adapters.function_adapters import unwrapped
from statefulspark.process.runner.failures import USER_ERRORS, user_function_error
from statefulspark.state.api.descriptors import ListStateDescriptor
from statefulspark.state.api.names import RuntimeName
from statefulspark.state.api.operator_state import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    ListCheckpointed,
    OperatorStateStore,
)
from statefulspark.state.api.raw_state import (
    KeyGroupStatePartitionStreamProvider,
    StateInitializationContext,
    StatePartitionStreamProvider,
    StateSnapshotContext,
)
from statefulspark.state.operator.raw_partitions import PartitionsOutput, partition_inputs
from statefulspark.state.tables.raw_keyed_streams import KeyedOutput, Validity, keyed_inputs
from statefulspark.state.types.types import Types

if TYPE_CHECKING:
    from statefulspark.process.api.co_functions import StepFunction
    from statefulspark.state.api.keyed_state_store import KeyedStateStore
    from statefulspark.state.backend import KeyedStateBackend
    from statefulspark.state.operator.backend import OperatorStateBackend

__all__ = ["LIST_CHECKPOINTED_STATE", "StateCalls", "check_interfaces", "is_checkpointed"]

LIST_CHECKPOINTED_STATE: Final = RuntimeName("_default_")
"""Name of the list of a ListCheckpointed, as in Flink; part of the format of checkpoints."""


def is_checkpointed(function: StepFunction) -> bool:
    """Return True if a step's function keeps operator state."""
    return isinstance(unwrapped(function), CheckpointedFunction | ListCheckpointed)


def check_interfaces(function: StepFunction) -> None:
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
        backend: Keeps the keyed state.
    """

    def __init__(
        self,
        function: StepFunction,
        *,
        uid: str,
        operator_state: OperatorStateBackend,
        keyed_state: KeyedStateStore,
        backend: KeyedStateBackend,
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
        self._backend = backend

    def initialize(self) -> None:
        """Call ``initialize_state``.

        Raises:
            UserFunctionError: It raised.
        """
        if self._function is None:
            return
        validity = Validity()
        try:
            self._function.initialize_state(_InitializationContext(self._operator_state, self._keyed_state, self._backend, validity))
        except StatefulSparkError:
            raise
        except USER_ERRORS as error:
            raise user_function_error(error, uid=self._uid, key_group=None) from error
        finally:
            validity.end()
        self._operator_state.initialized()

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
        context = _SnapshotContext(checkpoint_id, timestamp_ms, uid=self._uid, backend=self._backend)
        try:
            self._function.snapshot_state(context)
        except StatefulSparkError:
            raise
        except USER_ERRORS as error:
            raise user_function_error(error, uid=self._uid, key_group=None) from error
        finally:
            context.validity.end()
        if context.keyed is not None:
            context.keyed.finish()
        if context.partitions is not None:
            self._operator_state.replace_raw_partitions(context.partitions.partitions())


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


class _InitializationContext(StateInitializationContext):
    __slots__ = ("_backend", "_keyed_state", "_operator_state", "_restored", "_validity")

    def __init__(
        self, operator_state: OperatorStateBackend, keyed_state: KeyedStateStore, backend: KeyedStateBackend, validity: Validity
    ) -> None:
        self._backend = backend
        self._validity = validity
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

    def get_raw_keyed_state_inputs(self) -> Iterator[KeyGroupStatePartitionStreamProvider]:
        return keyed_inputs(self._backend.raw_keyed(), self._validity)

    def get_raw_operator_state_inputs(self) -> Iterator[StatePartitionStreamProvider]:
        return partition_inputs(self._operator_state.raw_partitions(), self._validity)


class _SnapshotContext(StateSnapshotContext):
    __slots__ = ("_backend", "_checkpoint_id", "_timestamp_ms", "_uid", "keyed", "partitions", "validity")

    def __init__(self, checkpoint_id: int, timestamp_ms: int, *, uid: str, backend: KeyedStateBackend) -> None:
        self.keyed: KeyedOutput | None = None
        self.partitions: PartitionsOutput | None = None
        self.validity = Validity()
        self._checkpoint_id = checkpoint_id
        self._timestamp_ms = timestamp_ms
        self._uid = uid
        self._backend = backend

    def get_raw_keyed_operator_state_output(self, changed_only: bool = False) -> KeyedOutput:
        self.validity.check()
        if self.keyed is None:
            self.keyed = KeyedOutput(self._backend.raw_keyed(), uid=self._uid, changed_only=changed_only, validity=self.validity)
        if self.keyed.changed_only != changed_only:
            raise InvalidInputError(
                f"the step {self._uid!r} took the output with {not changed_only} before in this snapshot",
                field="changed_only",
                remedy="Take the output once",
            )
        return self.keyed

    def get_raw_operator_state_output(self) -> PartitionsOutput:
        self.validity.check()
        if self.partitions is None:
            self.partitions = PartitionsOutput(uid=self._uid, validity=self.validity)
        return self.partitions

    def get_checkpoint_id(self) -> int:
        return self._checkpoint_id

    def get_checkpoint_timestamp(self) -> int:
        return self._timestamp_ms
