"""statefulspark: state, timers, checkpoints and savepoints for PySpark streams.

Every public name is here and is imported when it is first used, so that neither the command line nor a slot pays for
pyspark unless it needs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from statefulspark.pipeline.job import Job
    from statefulspark.pipeline.keyed_streams import KeyedStream
    from statefulspark.process.functions import (
        FilterFunction,
        FlatMapFunction,
        KeyedProcessFunction,
        KeySelector,
        MapFunction,
        RuntimeContext,
        TimeDomain,
        TimerService,
    )
    from statefulspark.process.metrics import Counter, Distribution, Meter, Metric, MetricGroup
    from statefulspark.process.output_tag import OutputTag
    from statefulspark.state.api.descriptors import (
        AggregatingStateDescriptor,
        ListStateDescriptor,
        MapStateDescriptor,
        ReducingStateDescriptor,
        StateDescriptor,
        ValueStateDescriptor,
    )
    from statefulspark.state.api.functions import AggregateFunction, Function, ReduceFunction
    from statefulspark.state.api.keyed_state_store import KeyedStateStore
    from statefulspark.state.api.states import (
        AggregatingState,
        AppendingState,
        ListState,
        MapState,
        MergingState,
        ReducingState,
        State,
        ValueState,
    )
    from statefulspark.state.api.ttl import StateTtlConfig
    from statefulspark.state.row import Row, RowKind
    from statefulspark.state.times import Duration, Instant, Time
    from statefulspark.state.types.composites import RowTypeInfo, TupleTypeInfo
    from statefulspark.state.types.types import TypeInformation, Types

__all__ = [
    "AggregateFunction",
    "AggregatingState",
    "AggregatingStateDescriptor",
    "AppendingState",
    "Counter",
    "Distribution",
    "Duration",
    "FilterFunction",
    "FlatMapFunction",
    "Function",
    "Instant",
    "Job",
    "KeySelector",
    "KeyedProcessFunction",
    "KeyedStateStore",
    "KeyedStream",
    "ListState",
    "ListStateDescriptor",
    "MapFunction",
    "MapState",
    "MapStateDescriptor",
    "MergingState",
    "Meter",
    "Metric",
    "MetricGroup",
    "OutputTag",
    "ReduceFunction",
    "ReducingState",
    "ReducingStateDescriptor",
    "Row",
    "RowKind",
    "RowTypeInfo",
    "RuntimeContext",
    "State",
    "StateDescriptor",
    "StateTtlConfig",
    "Time",
    "TimeDomain",
    "TimerService",
    "TupleTypeInfo",
    "TypeInformation",
    "Types",
    "ValueState",
    "ValueStateDescriptor",
]

_HOMES = {
    "pipeline.job": ("Job",),
    "pipeline.keyed_streams": ("KeyedStream",),
    "process.functions": (
        "FilterFunction",
        "FlatMapFunction",
        "KeySelector",
        "KeyedProcessFunction",
        "MapFunction",
        "RuntimeContext",
        "TimeDomain",
        "TimerService",
    ),
    "process.metrics": (
        "Counter",
        "Distribution",
        "Meter",
        "Metric",
        "MetricGroup",
    ),
    "process.output_tag": ("OutputTag",),
    "state.api.descriptors": (
        "AggregatingStateDescriptor",
        "ListStateDescriptor",
        "MapStateDescriptor",
        "ReducingStateDescriptor",
        "StateDescriptor",
        "ValueStateDescriptor",
    ),
    "state.api.functions": (
        "AggregateFunction",
        "Function",
        "ReduceFunction",
    ),
    "state.api.keyed_state_store": ("KeyedStateStore",),
    "state.api.states": (
        "AggregatingState",
        "AppendingState",
        "ListState",
        "MapState",
        "MergingState",
        "ReducingState",
        "State",
        "ValueState",
    ),
    "state.api.ttl": ("StateTtlConfig",),
    "state.row": (
        "Row",
        "RowKind",
    ),
    "state.times": (
        "Duration",
        "Instant",
        "Time",
    ),
    "state.types.composites": (
        "RowTypeInfo",
        "TupleTypeInfo",
    ),
    "state.types.types": (
        "TypeInformation",
        "Types",
    ),
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
