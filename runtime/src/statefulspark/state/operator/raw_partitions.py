"""The files through which a function reads and writes raw operator state: each partition is one element of a split list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import BinaryIO

from statefulspark.state.api.raw_state import OperatorStateCheckpointOutputStream, StatePartitionStreamProvider
from statefulspark.state.tables.raw_keyed_streams import RawInput, Validity, as_bytes

__all__ = ["PartitionsOutput", "partition_inputs"]


class PartitionsOutput(OperatorStateCheckpointOutputStream):
    """Collects the partitions of a slot.

    Args:
        uid: The step.
        validity: Of the call.
    """

    def __init__(self, *, uid: str, validity: Validity) -> None:
        super().__init__()
        self._uid = uid
        self._validity = validity
        self._partitions: list[bytearray] = []

    def writable(self) -> bool:
        return True

    def start_new_partition(self) -> None:
        self._validity.check()
        self._partitions.append(bytearray())

    def get_number_of_partitions(self) -> int:
        return len(self._partitions)

    def write(self, data: object) -> int:
        self._validity.check()
        written = as_bytes(data, self._uid)
        if not self._partitions:
            self.start_new_partition()
        self._partitions[-1] += written
        return len(written)

    def partitions(self) -> list[bytes]:
        """Return the partitions in order."""
        return list(map(bytes, self._partitions))


class _PartitionInput(StatePartitionStreamProvider):
    def __init__(self, partition: bytes, validity: Validity) -> None:
        self._partition = partition
        self._validity = validity

    def get_stream(self) -> BinaryIO:
        self._validity.check()
        return RawInput(iter((self._partition,)), self._validity).buffered()


def partition_inputs(partitions: Iterable[bytes], validity: Validity) -> Iterator[StatePartitionStreamProvider]:
    """Iterate over the partitions of a slot."""
    for partition in partitions:
        validity.check()
        yield _PartitionInput(partition, validity)
