"""Raw state: bytes that a function writes at a snapshot and reads at a restore. Java's names in snake case; PyFlink has none.

This module has no behavior.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import BinaryIO

from statefulspark.state.api.operator_state import FunctionInitializationContext, FunctionSnapshotContext

__all__ = [
    "KeyGroupStatePartitionStreamProvider",
    "KeyedStateCheckpointOutputStream",
    "OperatorStateCheckpointOutputStream",
    "StateInitializationContext",
    "StatePartitionStreamProvider",
    "StateSnapshotContext",
]


class KeyedStateCheckpointOutputStream(io.BufferedIOBase):
    """Takes one stream of bytes per key group. A binary file: ``pickle.dump(model, out)`` works."""

    def start_new_key_group(self, key_group_id: int) -> None:
        """Write to the stream of this key group from now on.

        Args:
            key_group_id: One of `get_key_group_list`, each at most once per snapshot.

        Raises:
            InvalidInputError: It is in another slot, or was started before.
            ClosedError: ``snapshot_state`` has returned.
        """
        raise NotImplementedError

    def get_key_group_list(self) -> list[int]:
        """Return the key groups of this slot, in order."""
        raise NotImplementedError


class OperatorStateCheckpointOutputStream(io.BufferedIOBase):
    """Takes partitions of bytes, which are split among the slots if the parallelism changes. A binary file."""

    def start_new_partition(self) -> None:
        """Write to a new partition from now on. Writing without it starts the first one.

        Raises:
            ClosedError: ``snapshot_state`` has returned.
        """
        raise NotImplementedError

    def get_number_of_partitions(self) -> int:
        """Return the number of partitions started so far."""
        raise NotImplementedError


class StatePartitionStreamProvider(ABC):
    """One restored partition of raw operator state."""

    @abstractmethod
    def get_stream(self) -> BinaryIO:
        """Return its bytes as a binary file, which can be read until ``initialize_state`` returns."""


class KeyGroupStatePartitionStreamProvider(StatePartitionStreamProvider):
    """The restored stream of one key group."""

    @abstractmethod
    def get_key_group_id(self) -> int:
        """Return the key group."""


class StateInitializationContext(FunctionInitializationContext):
    """Passed to ``initialize_state``: with raw state."""

    @abstractmethod
    def get_raw_keyed_state_inputs(self) -> Iterator[KeyGroupStatePartitionStreamProvider]:
        """Iterate over the key groups of this slot that have a stream, in order."""

    @abstractmethod
    def get_raw_operator_state_inputs(self) -> Iterator[StatePartitionStreamProvider]:
        """Iterate over the partitions of raw operator state that this slot has."""


class StateSnapshotContext(FunctionSnapshotContext):
    """Passed to ``snapshot_state``: with raw state.

    A function that takes an output replaces all raw state of that kind in this slot with what it writes. One that takes none leaves it as it is,
    because every batch is a snapshot and most change nothing; in Flink it would be empty.

    >>> import pickle
    >>> from statefulspark import CheckpointedFunction, KeyedProcessFunction
    >>> class Index(KeyedProcessFunction, CheckpointedFunction):
    ...     def open(self, runtime_context):
    ...         self.context = runtime_context
    ...     def initialize_state(self, context):
    ...         self.rows, self.changed = {}, set()
    ...         for part in context.get_raw_keyed_state_inputs():
    ...             self.rows[part.get_key_group_id()] = pickle.load(part.get_stream())
    ...     def process_element(self, value, ctx):
    ...         group = self.context.get_current_key_group_index()
    ...         self.rows.setdefault(group, []).append(value.name)
    ...         self.changed.add(group)
    ...     def snapshot_state(self, context):
    ...         if self.changed:
    ...             out = context.get_raw_keyed_operator_state_output(changed_only=True)
    ...             for group in self.changed:
    ...                 out.start_new_key_group(group)
    ...                 pickle.dump(self.rows[group], out)
    ...             self.changed = set()
    """

    @abstractmethod
    def get_raw_keyed_operator_state_output(self, changed_only: bool = False) -> KeyedStateCheckpointOutputStream:
        """Return the stream for raw keyed state.

        Args:
            changed_only: Let key groups that are not started keep their streams; otherwise they have none afterwards, as in Flink.

        Raises:
            InvalidInputError: It was taken before with another ``changed_only``.
        """

    @abstractmethod
    def get_raw_operator_state_output(self) -> OperatorStateCheckpointOutputStream:
        """Return the stream for raw operator state. All slots of a step together hold at most 64 MiB of operator state, each its even share."""
