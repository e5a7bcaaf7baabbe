"""ClaimMode: who owns the savepoint that a job starts from. Names and default are Flink's (``execution.state-recovery.claim-mode``)."""

from __future__ import annotations

from enum import StrEnum


class ClaimMode(StrEnum):
    """Owner of the savepoint that a job starts from."""

    NO_CLAIM = "NO_CLAIM"
    CLAIM = "CLAIM"
