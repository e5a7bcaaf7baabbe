"""statefulspark: state, timers, checkpoints and savepoints for PySpark streams.

Every public name is here and is imported when it is first used, so that neither the command line nor a slot pays for
pyspark unless it needs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from statefulspark.pipeline.job import Job
    from statefulspark.process.functions import KeyedProcessFunction, RuntimeContext, TimeDomain, TimerService
    from statefulspark.process.metrics import Counter, Distribution, Meter, MetricGroup
    from statefulspark.state.api.descriptors import (
        AggregateFunction,
        AggregatingStateDescriptor,
        ListStateDescriptor,
        MapStateDescriptor,
        ReduceFunction,
        ReducingStateDescriptor,
        StateDescriptor,
        ValueStateDescriptor,
    )
    from statefulspark.state.api.states import AggregatingState, ListState, MapState, ReducingState, ValueState
    from statefulspark.state.api.ttl import StateTtlConfig
    from statefulspark.state.row import Row
    from statefulspark.state.times import Duration, Instant, Time
    from statefulspark.state.types.types import TypeInformation, Types

__all__ = [
    "AggregateFunction",
    "AggregatingState",
    "AggregatingStateDescriptor",
    "Counter",
    "Distribution",
    "Duration",
    "Instant",
    "Job",
    "KeyedProcessFunction",
    "ListState",
    "ListStateDescriptor",
    "MapState",
    "MapStateDescriptor",
    "Meter",
    "MetricGroup",
    "ReduceFunction",
    "ReducingState",
    "ReducingStateDescriptor",
    "Row",
    "RuntimeContext",
    "StateDescriptor",
    "StateTtlConfig",
    "Time",
    "TimeDomain",
    "TimerService",
    "TypeInformation",
    "Types",
    "ValueState",
    "ValueStateDescriptor",
]

_HOMES = {
    "pipeline.job": ("Job",),
    "process.functions": ("KeyedProcessFunction", "RuntimeContext", "TimeDomain", "TimerService"),
    "process.metrics": ("Counter", "Distribution", "Meter", "MetricGroup"),
    "state.api.descriptors": (
        "AggregateFunction",
        "AggregatingStateDescriptor",
        "ListStateDescriptor",
        "MapStateDescriptor",
        "ReduceFunction",
        "ReducingStateDescriptor",
        "StateDescriptor",
        "ValueStateDescriptor",
    ),
    "state.row": ("Row",),
    "state.api.states": ("AggregatingState", "ListState", "MapState", "ReducingState", "ValueState"),
    "state.times": ("Duration", "Instant", "Time"),
    "state.api.ttl": ("StateTtlConfig",),
    "state.types.types": ("TypeInformation", "Types"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'statefulspark' has no attribute {name!r}")
    value = getattr(import_module(f"statefulspark.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
