"""StoreLimits: time and size bounds of the clients of gs:// and abfss://."""

from __future__ import annotations

from dataclasses import dataclass

from statefulspark.sizes import MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """Bounds of one client; the defaults fit a service in the same region or cluster."""

    connect_timeout_s: float = 5.0
    """Longest wait for a connection, seconds."""

    read_timeout_s: float = 30.0
    """Longest silence of the service within an answer, seconds."""

    copy_timeout_s: float = 600.0
    """Longest copy of one object inside the service, seconds."""

    connections: int = 32
    """Connections kept per process."""

    part_bytes: int = 16 * MIB
    """Files go up in parts of this size, and so never lie in memory whole; a multiple of 256 KiB, as Google Cloud Storage wants it."""

    page_objects: int = 1000
    """Objects in one answer of a list, at most 1000."""

    at_once: int = 16
    """Requests at the same moment when many objects are deleted."""
