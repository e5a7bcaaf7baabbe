"""statefulspark: state, timers, checkpoints and savepoints for PySpark streams.

Every public name is here and is imported when it is first used, so that neither the command line nor a slot pays for
pyspark unless it needs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from statefulspark.job.job import Job
    from statefulspark.process.functions import KeyedProcessFunction, RuntimeContext, TimeDomain, TimerService
    from statefulspark.process.metrics import Counter, Distribution, Meter, MetricGroup
    from statefulspark.state.descriptors import (
        AggregateFunction,
        AggregatingStateDescriptor,
        ListStateDescriptor,
        MapStateDescriptor,
        ReduceFunction,
        ReducingStateDescriptor,
        StateDescriptor,
        ValueStateDescriptor,
    )
    from statefulspark.state.row import Row
    from statefulspark.state.states import AggregatingState, ListState, MapState, ReducingState, ValueState
    from statefulspark.state.times import Duration, Instant, Time
    from statefulspark.state.ttl import StateTtlConfig
    from statefulspark.state.typeinfo import TypeInformation, Types

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
    "job.job": ("Job",),
    "process.functions": ("KeyedProcessFunction", "RuntimeContext", "TimeDomain", "TimerService"),
    "process.metrics": ("Counter", "Distribution", "Meter", "MetricGroup"),
    "state.descriptors": (
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
    "state.states": ("AggregatingState", "ListState", "MapState", "ReducingState", "ValueState"),
    "state.times": ("Duration", "Instant", "Time"),
    "state.ttl": ("StateTtlConfig",),
    "state.typeinfo": ("TypeInformation", "Types"),
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
