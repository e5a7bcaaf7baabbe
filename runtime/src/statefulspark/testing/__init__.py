"""Tools to test functions without Spark."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from statefulspark.testing.broadcast_harness import KeyedBroadcastProcessHarness
from statefulspark.testing.events import (
    ADVANCE,
    BATCH,
    CHECKPOINT,
    DAMAGE_CHECKPOINT,
    DOWNTIME,
    DRAIN,
    FAIL_STORAGE,
    KILL_DRIVER,
    KILL_DRIVER_AFTER_SINK_COMMIT,
    KILL_DRIVER_BEFORE_SINK_COMMIT,
    KILL_DRIVER_BETWEEN_OUTPUTS,
    KILL_SLOT,
    PAUSE_DRIVER,
    RESCALE,
    RESTORE_FROM_SAVEPOINT,
    RESUME_DRIVER,
    RETRY_BATCH,
    SAVEPOINT,
    UPGRADE,
)
from statefulspark.testing.harness import HarnessSnapshot, KeyedProcessHarness
from statefulspark.testing.inputs import BROADCAST, SECOND, BroadcastInput, SecondInput
from statefulspark.testing.job import TestingJob
from statefulspark.testing.two_input_harness import KeyedTwoInputProcessHarness
from statefulspark.testing.window_harness import WindowHarness

if TYPE_CHECKING:
    from statefulspark.testing.state_backend import StateBackendContract

__all__ = [
    "ADVANCE",
    "BATCH",
    "BROADCAST",
    "CHECKPOINT",
    "DAMAGE_CHECKPOINT",
    "DOWNTIME",
    "DRAIN",
    "FAIL_STORAGE",
    "KILL_DRIVER",
    "KILL_DRIVER_AFTER_SINK_COMMIT",
    "KILL_DRIVER_BEFORE_SINK_COMMIT",
    "KILL_DRIVER_BETWEEN_OUTPUTS",
    "KILL_SLOT",
    "PAUSE_DRIVER",
    "RESCALE",
    "RESTORE_FROM_SAVEPOINT",
    "RESUME_DRIVER",
    "RETRY_BATCH",
    "SAVEPOINT",
    "SECOND",
    "UPGRADE",
    "BroadcastInput",
    "HarnessSnapshot",
    "KeyedBroadcastProcessHarness",
    "KeyedProcessHarness",
    "KeyedTwoInputProcessHarness",
    "SecondInput",
    "StateBackendContract",
    "TestingJob",
    "WindowHarness",
]


def __getattr__(name: str) -> Any:
    """Import the contract when it is used."""
    if name != "StateBackendContract":
        raise AttributeError(f"module 'statefulspark.testing' has no attribute {name!r}")
    # Unlike the rest, it needs pytest.
    return import_module("statefulspark.testing.state_backend").StateBackendContract
