"""StateBackend: where the slots of a job keep their state, as a class of one's own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from statefulspark.configuration import Configuration
from statefulspark.state.store.base import KeyValueStore


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotResources:
    """What a store may take of its slot.

    Attributes:
        managed_bytes: The slot's managed memory. Nothing enforces it: the store keeps within it by itself. 0 where a store is opened only to be
            read, by ``statefulspark verify`` and ``state``.
    """

    managed_bytes: int = 0


class StateBackend(ABC):
    """A state backend of one's own, named by ``stateBackend.type: my_package.backend:MyBackend`` (docs/state-backends.md).

    The driver makes one to check it before anything starts, and each slot makes its own. Derive a test from
    `statefulspark.testing.StateBackendContract` to check it.

    Example:
        >>> from statefulspark.state.store.heap_store import HeapStore
        >>> class OnTheHeap(StateBackend):
        ...     @classmethod
        ...     def create_from_config(cls, configuration):
        ...         return cls()
        ...     def open_store(self, path, resources):
        ...         return HeapStore(path)
        >>> store = OnTheHeap.create_from_config(Configuration()).open_store(Path("/nowhere"), SlotResources())
        >>> store.write([(b"key", b"value")])
        >>> store.get(b"key")
        b'value'
    """

    @classmethod
    @abstractmethod
    def create_from_config(cls, configuration: Configuration) -> Self:
        """Return a backend with the settings of ``stateBackend.options``.

        Args:
            configuration: The settings. Empty in ``statefulspark verify`` and ``state``, which only read: what the files need to be read must
                be in the files.
        """

    @abstractmethod
    def open_store(self, path: Path, resources: SlotResources) -> KeyValueStore:
        """Open the store of a slot.

        Args:
            path: A folder on the local disk, which may be missing (an empty store) or hold the files of a snapshot, which belong to the store
                from now on. A slot opens several at once, in different folders, while it restores.
            resources: What it may take.

        Raises:
            CorruptDataError: The files are damaged.
        """
