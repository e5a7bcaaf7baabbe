"""Messages between the driver and the process that writes a canonical savepoint."""

from __future__ import annotations

from dataclasses import dataclass

from statefulspark.checkpoint.formats.metadata import CheckpointMetadata
from statefulspark.rpc.codec import Message, RemoteError
from statefulspark.storage.storage_settings import StorageSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion(Message):
    """A conversion's source and target. It holds credentials: pass it over a pipe only."""

    origin_url: str
    """The folder above the origin's."""
    origin_folder: str
    """Its ``_metadata`` was never stored, and is passed in a file of the working folder."""
    target_url: str
    """The folder above the savepoint's."""
    folder: str
    """Name of the savepoint's folder; nobody else writes there."""
    storage: StorageSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class StateWithoutTable(Message):
    """A state of a canonical savepoint that has entries and no table."""

    uid: str
    state: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted(Message):
    """All files but ``_metadata`` are stored."""

    metadata: CheckpointMetadata
    without_table: tuple[StateWithoutTable, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionResult(Message):
    """The end of a conversion: one of both fields is None."""

    converted: Converted | None = None
    error: RemoteError | None = None
    """Some files may be stored."""
