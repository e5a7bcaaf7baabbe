"""CheckpointedFunction and OperatorStateStore: state that belongs to a slot and not to a key. Java's names in snake case.

This module has no behavior.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from statefulspark.state.api.descriptors import ListStateDescriptor
    from statefulspark.state.api.keyed_state_store import KeyedStateStore
    from statefulspark.state.api.raw_state import StateInitializationContext, StateSnapshotContext
    from statefulspark.state.api.states import ListState

__all__ = [
    "CheckpointedFunction",
    "FunctionInitializationContext",
    "FunctionSnapshotContext",
    "ListCheckpointed",
    "OperatorStateStore",
]

T = TypeVar("T")


class OperatorStateStore(ABC):
    """Gives access to the operator state of a step in one slot.

    All slots of a step together hold at most 64 MiB, each its even share. Use keyed state for anything larger.
    """

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """Return a list of this slot. If the parallelism changes, its elements are split evenly among the slots.

        Raises:
            InvalidInputError: The descriptor has a time to live, the name is taken, or ``initialize_state`` has returned.
            NotRestorableError: State of this name was stored with another kind or type.
        """

    @abstractmethod
    def get_union_list_state(self, state_descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """Return a list of this slot. Whenever a driver starts or the parallelism changes, every slot gets the elements of all slots.

        In ``snapshot_state``, replace the list with the elements of this slot. Otherwise the elements multiply.

        Raises:
            InvalidInputError: As for `get_list_state`.
            NotRestorableError: As for `get_list_state`.
        """

    @abstractmethod
    def get_registered_state_names(self) -> set[str]:
        """Return the names of the operator states of the step, including restored ones that are not declared yet."""


class FunctionInitializationContext(ABC):
    """Passed to ``initialize_state``."""

    @abstractmethod
    def is_restored(self) -> bool:
        """Return True if storage has state of the step, even if it is empty, or an earlier copy of the function took a snapshot."""

    @abstractmethod
    def get_restored_checkpoint_id(self) -> int | None:
        """Return the number of the batch that the restored state includes, -1 before the first; None if nothing is restored."""

    @abstractmethod
    def get_operator_state_store(self) -> OperatorStateStore:
        """Return the store of operator state."""

    @abstractmethod
    def get_keyed_state_store(self) -> KeyedStateStore:
        """Return the store of keyed state, as ``open`` gets it with its runtime context."""


class FunctionSnapshotContext(ABC):
    """Passed to ``snapshot_state``."""

    @abstractmethod
    def get_checkpoint_id(self) -> int:
        """Return the number of the batch that the snapshot includes, -1 before the first."""

    @abstractmethod
    def get_checkpoint_timestamp(self) -> int:
        """Return the processing time of that batch in milliseconds since the epoch."""


class CheckpointedFunction(ABC):
    """Mixin for functions that keep operator state.

    >>> from statefulspark import KeyedProcessFunction, ListStateDescriptor, Types
    >>> class Buffer(KeyedProcessFunction, CheckpointedFunction):
    ...     def initialize_state(self, context):
    ...         self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("rows", Types.STRING()))
    ...         self.rows = list(self.state.get())
    ...     def snapshot_state(self, context):
    ...         self.state.update(self.rows)
    ...     def process_element(self, value, ctx):
    ...         self.rows.append(value.name)
    """

    @abstractmethod
    def initialize_state(self, context: StateInitializationContext) -> None:
        """Declare operator state and read what was restored. Called before ``open``, for every copy of the function."""

    @abstractmethod
    def snapshot_state(self, context: StateSnapshotContext) -> None:
        """Write what the function keeps in attributes to its operator state.

        Called at the end of every batch that reaches the slot, after its last timer, and once after a redistribution. There is no
        current key, and the method cannot emit rows.
        """


class ListCheckpointed(ABC, Generic[T]):
    """Mixin for functions whose operator state is one list, which is split if the parallelism changes. The elements are pickled."""

    @abstractmethod
    def snapshot_state(self, checkpoint_id: int, timestamp: int) -> Sequence[T]:
        """Return the elements to keep; as `CheckpointedFunction.snapshot_state`.

        Args:
            checkpoint_id: Number of the batch that the snapshot includes, -1 before the first.
            timestamp: Processing time of that batch in milliseconds since the epoch.
        """

    @abstractmethod
    def restore_state(self, state: list[T]) -> None:
        """Take the elements back. Called before ``open``, only if something is restored; the list may be empty."""
