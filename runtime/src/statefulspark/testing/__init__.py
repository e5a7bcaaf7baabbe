"""Tools to test functions without Spark."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
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
    from statefulspark.testing.state_backend import StateBackendContract
    from statefulspark.testing.two_input_harness import KeyedTwoInputProcessHarness
    from statefulspark.testing.window_harness import WindowHarness

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

_HOME_OF: Final = {
    "HarnessSnapshot": "harness",
    "KeyedBroadcastProcessHarness": "broadcast_harness",
    "KeyedProcessHarness": "harness",
    "KeyedTwoInputProcessHarness": "two_input_harness",
    "StateBackendContract": "state_backend",
    "TestingJob": "job",
    "WindowHarness": "window_harness",
    **dict.fromkeys(("BROADCAST", "SECOND", "BroadcastInput", "SecondInput"), "inputs"),
}
"""Module of each name; all others are events. A name is imported when it is used, so a test of one function loads no coordinator, and no pytest."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'statefulspark.testing' has no attribute {name!r}")
    value = getattr(import_module(f"statefulspark.testing.{_HOME_OF.get(name, 'events')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
