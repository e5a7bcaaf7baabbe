"""The report of ``statefulspark snapshot``: tells the operator what a storage pod found in storage (docs/formats.md)."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Final, Self

from statefulspark.checkpoint.catalog import StoredCheckpoint
from statefulspark.errors import StatefulSparkError

VERSION: Final = 1
_BYTES_MAX: Final = 4096
"""Kubernetes keeps no more of a termination message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFacts:
    """One checkpoint or savepoint."""

    id: int
    kind: str
    path: str
    batch: int
    completed_ms: int
    duration_ms: int
    size_bytes: int
    max_parallelism: int

    @classmethod
    def of(cls, stored: StoredCheckpoint) -> Self:
        """Describe a stored checkpoint for the status of a StateSnapshot."""
        metadata = stored.metadata
        return cls(
            id=metadata.checkpoint_id,
            kind=metadata.kind,
            path=stored.url,
            batch=metadata.batch,
            completed_ms=metadata.created_ms + metadata.duration_ms,
            duration_ms=metadata.duration_ms,
            size_bytes=sum(file.size_bytes for file in metadata.files()) + metadata.inline_bytes,
            max_parallelism=metadata.max_parallelism,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotReport:
    """Result of one request: a snapshot, a disposal, or an error."""

    snapshot: SnapshotFacts | None = None
    disposed: bool = False
    error: tuple[str, str] | None = None
    """Reason, one word for programs, and message."""

    @classmethod
    def of_error(cls, error: StatefulSparkError) -> Self:
        """Report an error: its kind is what the operator decides by."""
        return cls(error=(type(error).__name__.removesuffix("Error"), str(error)))

    def encode(self) -> bytes:
        """Return the report as JSON that fits into a termination message: a long error is cut."""
        message = self.error[1] if self.error is not None else ""
        while len(data := self._encode(message)) > _BYTES_MAX and message:
            message = message[: len(message) * 3 // 4]
        return data

    def _encode(self, message: str) -> bytes:
        error = {"reason": self.error[0], "message": message} if self.error is not None else None
        snapshot = dataclasses.asdict(self.snapshot) if self.snapshot is not None else None
        return json.dumps({"version": VERSION, "snapshot": snapshot, "disposed": self.disposed, "error": error}).encode()
