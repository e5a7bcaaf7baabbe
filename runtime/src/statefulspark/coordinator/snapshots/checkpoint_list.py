"""CheckpointList: what the driver API shows as the job's checkpoints, of all its drivers, and the savepoints of this driver."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from statefulspark.checkpoint.catalog import file_sizes, incremental_bytes
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.metadata import CheckpointMetadata
from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.coordinator.snapshots.pending import info_of


class CheckpointList:
    """Describes what was completed and what retention has left; read from any thread. It decides nothing: see `checkpoint/write/retention.py`.

    Args:
        url: Of the job's folder.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._infos: tuple[CheckpointInfo, ...] = ()

    def all(self) -> list[CheckpointInfo]:
        """Everything, oldest first."""
        return list(self._infos)

    def add(self, info: CheckpointInfo) -> None:
        """This driver has completed one."""
        with self._lock:
            self._infos = (*self._infos, info)

    def retained(self, found: Mapping[int, CheckpointMetadata]) -> None:
        """These checkpoints are in the folder; later ones, completed since the folder was listed, stay."""
        newest = max(found, default=-1)
        with self._lock:
            own = {info.id: info for info in self._infos if info.kind == "checkpoint"}
            checkpoints = [own.get(number) or self._described(found[number]) for number in found]
            checkpoints += [info for number, info in own.items() if number > newest]
            savepoints = [info for info in self._infos if info.kind == "savepoint"]
            self._infos = tuple(sorted((*checkpoints, *savepoints), key=lambda info: info.id))

    def drop_checkpoints(self) -> None:
        """All checkpoints were deleted."""
        with self._lock:
            self._infos = tuple(info for info in self._infos if info.kind == "savepoint")

    def _described(self, metadata: CheckpointMetadata) -> CheckpointInfo:
        """One of an earlier driver. How long slots waited for it is not stored with it, so that is 0."""
        folder = paths.checkpoint_folder(metadata.checkpoint_id)
        uploaded_bytes = incremental_bytes(file_sizes(paths.metadata_key(folder), metadata), metadata)
        return info_of(metadata, paths.url_of(self._url, folder), sync_ms=0, uploaded_bytes=uploaded_bytes)
