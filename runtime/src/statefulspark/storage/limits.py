"""Time and size bounds of the clients of object stores."""

from __future__ import annotations

from dataclasses import dataclass

from statefulspark.sizes import MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """Bounds of any client; the defaults fit a service in the same region or cluster."""

    connect_timeout_s: float = 5.0
    """Longest wait for a connection, seconds."""

    read_timeout_s: float = 30.0
    """Longest silence of the service within an answer, seconds."""

    connections: int = 32
    """Connections kept per process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Limits(ClientLimits):
    """Bounds of a client of s3://."""

    attempts: int = 3
    """Attempts per request inside the client (throttling, 5xx, resets); RetryingStore repeats the whole operation above that."""

    part_bytes: int = 16 * MIB
    """Files from this size on go up in parts of it, 4 at a time; at least 5 MiB, the least S3 takes."""

    copy_part_bytes: int = 256 * MIB
    """Objects from this size on are copied in parts, so that one copy stays within the read timeout; at most 5 GiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits(ClientLimits):
    """Bounds of a client of gs://, abfss:// or hdfs://."""

    copy_timeout_s: float = 600.0
    """Longest copy of one object inside the service, seconds."""

    part_bytes: int = 16 * MIB
    """Files go up in parts of this size, and so never lie in memory whole; a multiple of 256 KiB, as Google Cloud Storage wants it."""

    page_objects: int = 1000
    """Objects in one answer of a list, at most 1000."""

    at_once: int = 16
    """Requests at the same moment when many objects are deleted."""
