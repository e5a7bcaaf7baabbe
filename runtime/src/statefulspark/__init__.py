"""statefulspark: state, timers, checkpoints and savepoints for PySpark streams.

Every public name is here and is imported when it is first used, so that neither the command line nor a slot pays for
pyspark unless it needs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from statefulspark.configuration import Configuration
    from statefulspark.pipeline.broadcast_streams import BroadcastConnectedStream, BroadcastStream
    from statefulspark.pipeline.connected_streams import ConnectedStreams
    from statefulspark.pipeline.job import Job
    from statefulspark.pipeline.keyed_streams import KeyedStream
    from statefulspark.pipeline.windowed_streams import WindowedStream
    from statefulspark.process.broadcast_functions import (
        BaseBroadcastProcessFunction,
        KeyedBroadcastProcessFunction,
        KeyedStateFunction,
    )
    from statefulspark.process.co_functions import CoFlatMapFunction, CoMapFunction, KeyedCoProcessFunction
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
    from statefulspark.process.windows.assigners import (
        CountSlidingWindowAssigner,
        CountTumblingWindowAssigner,
        GlobalWindows,
        MergingWindowAssigner,
        SlidingEventTimeWindows,
        SlidingProcessingTimeWindows,
        TumblingEventTimeWindows,
        TumblingProcessingTimeWindows,
        WindowAssigner,
    )
    from statefulspark.process.windows.continuous_triggers import (
        ContinuousEventTimeTrigger,
        ContinuousProcessingTimeTrigger,
    )
    from statefulspark.process.windows.evictors import (
        CountEvictor,
        DeltaEvictor,
        Evictor,
        TimeEvictor,
        TimestampedValue,
    )
    from statefulspark.process.windows.functions import (
        ProcessWindowFunction,
        WindowFunction,
    )
    from statefulspark.process.windows.session_assigners import (
        DynamicEventTimeSessionWindows,
        DynamicProcessingTimeSessionWindows,
        EventTimeSessionWindows,
        ProcessingTimeSessionWindows,
        SessionWindowTimeGapExtractor,
    )
    from statefulspark.process.windows.triggers import (
        CountTrigger,
        EventTimeTrigger,
        NeverTrigger,
        ProcessingTimeTrigger,
        PurgingTrigger,
        Trigger,
        TriggerResult,
    )
    from statefulspark.process.windows.windows import (
        CountWindow,
        CountWindowSerializer,
        GlobalWindow,
        GlobalWindowSerializer,
        TimeWindow,
        TimeWindowSerializer,
        Window,
    )
    from statefulspark.rocksdb.options_factory import ConfigurableRocksDBOptionsFactory, RocksDBOptionsFactory
    from statefulspark.state.api.broadcast_state import BroadcastState, ReadOnlyBroadcastState
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
    from statefulspark.state.api.operator_state import (
        CheckpointedFunction,
        FunctionInitializationContext,
        FunctionSnapshotContext,
        ListCheckpointed,
        OperatorStateStore,
    )
    from statefulspark.state.api.raw_state import (
        KeyedStateCheckpointOutputStream,
        KeyGroupStatePartitionStreamProvider,
        OperatorStateCheckpointOutputStream,
        StateInitializationContext,
        StatePartitionStreamProvider,
        StateSnapshotContext,
    )
    from statefulspark.state.api.state_backends import SlotResources, StateBackend
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
    from statefulspark.state.store.base import KeyValueStore, StoreSnapshot
    from statefulspark.state.times import Duration, Instant, Time
    from statefulspark.state.types.composites import RowTypeInfo, TupleTypeInfo
    from statefulspark.state.types.types import TypeInformation, Types

__all__ = [
    "AggregateFunction",
    "AggregatingState",
    "AggregatingStateDescriptor",
    "AppendingState",
    "BaseBroadcastProcessFunction",
    "BroadcastConnectedStream",
    "BroadcastState",
    "BroadcastStream",
    "CheckpointedFunction",
    "CoFlatMapFunction",
    "CoMapFunction",
    "ConfigurableRocksDBOptionsFactory",
    "Configuration",
    "ConnectedStreams",
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountEvictor",
    "CountSlidingWindowAssigner",
    "CountTrigger",
    "CountTumblingWindowAssigner",
    "CountWindow",
    "CountWindowSerializer",
    "Counter",
    "DeltaEvictor",
    "Distribution",
    "Duration",
    "DynamicEventTimeSessionWindows",
    "DynamicProcessingTimeSessionWindows",
    "EventTimeSessionWindows",
    "EventTimeTrigger",
    "Evictor",
    "FilterFunction",
    "FlatMapFunction",
    "Function",
    "FunctionInitializationContext",
    "FunctionSnapshotContext",
    "GlobalWindow",
    "GlobalWindowSerializer",
    "GlobalWindows",
    "Instant",
    "Job",
    "KeyGroupStatePartitionStreamProvider",
    "KeySelector",
    "KeyValueStore",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStateCheckpointOutputStream",
    "KeyedStateFunction",
    "KeyedStateStore",
    "KeyedStream",
    "ListCheckpointed",
    "ListState",
    "ListStateDescriptor",
    "MapFunction",
    "MapState",
    "MapStateDescriptor",
    "MergingState",
    "MergingWindowAssigner",
    "Meter",
    "Metric",
    "MetricGroup",
    "NeverTrigger",
    "OperatorStateCheckpointOutputStream",
    "OperatorStateStore",
    "OutputTag",
    "ProcessWindowFunction",
    "ProcessingTimeSessionWindows",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "ReadOnlyBroadcastState",
    "ReduceFunction",
    "ReducingState",
    "ReducingStateDescriptor",
    "RocksDBOptionsFactory",
    "Row",
    "RowKind",
    "RowTypeInfo",
    "RuntimeContext",
    "SessionWindowTimeGapExtractor",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "SlotResources",
    "State",
    "StateBackend",
    "StateDescriptor",
    "StateInitializationContext",
    "StatePartitionStreamProvider",
    "StateSnapshotContext",
    "StateTtlConfig",
    "StoreSnapshot",
    "Time",
    "TimeDomain",
    "TimeEvictor",
    "TimeWindow",
    "TimeWindowSerializer",
    "TimerService",
    "TimestampedValue",
    "Trigger",
    "TriggerResult",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "TupleTypeInfo",
    "TypeInformation",
    "Types",
    "ValueState",
    "ValueStateDescriptor",
    "Window",
    "WindowAssigner",
    "WindowFunction",
    "WindowedStream",
]

_HOMES = {
    "configuration": ("Configuration",),
    "pipeline.broadcast_streams": ("BroadcastConnectedStream", "BroadcastStream"),
    "pipeline.connected_streams": ("ConnectedStreams",),
    "pipeline.job": ("Job",),
    "pipeline.keyed_streams": ("KeyedStream",),
    "pipeline.windowed_streams": ("WindowedStream",),
    "process.broadcast_functions": (
        "BaseBroadcastProcessFunction",
        "KeyedBroadcastProcessFunction",
        "KeyedStateFunction",
    ),
    "process.co_functions": ("CoFlatMapFunction", "CoMapFunction", "KeyedCoProcessFunction"),
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
    "process.windows.assigners": (
        "CountSlidingWindowAssigner",
        "CountTumblingWindowAssigner",
        "GlobalWindows",
        "MergingWindowAssigner",
        "SlidingEventTimeWindows",
        "SlidingProcessingTimeWindows",
        "TumblingEventTimeWindows",
        "TumblingProcessingTimeWindows",
        "WindowAssigner",
    ),
    "process.windows.continuous_triggers": (
        "ContinuousEventTimeTrigger",
        "ContinuousProcessingTimeTrigger",
    ),
    "process.windows.evictors": (
        "CountEvictor",
        "DeltaEvictor",
        "Evictor",
        "TimeEvictor",
        "TimestampedValue",
    ),
    "process.windows.functions": (
        "ProcessWindowFunction",
        "WindowFunction",
    ),
    "process.windows.session_assigners": (
        "DynamicEventTimeSessionWindows",
        "DynamicProcessingTimeSessionWindows",
        "EventTimeSessionWindows",
        "ProcessingTimeSessionWindows",
        "SessionWindowTimeGapExtractor",
    ),
    "process.windows.triggers": (
        "CountTrigger",
        "EventTimeTrigger",
        "NeverTrigger",
        "ProcessingTimeTrigger",
        "PurgingTrigger",
        "Trigger",
        "TriggerResult",
    ),
    "process.windows.windows": (
        "CountWindow",
        "CountWindowSerializer",
        "GlobalWindow",
        "GlobalWindowSerializer",
        "TimeWindow",
        "TimeWindowSerializer",
        "Window",
    ),
    "rocksdb.options_factory": (
        "ConfigurableRocksDBOptionsFactory",
        "RocksDBOptionsFactory",
    ),
    "state.api.broadcast_state": (
        "BroadcastState",
        "ReadOnlyBroadcastState",
    ),
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
    "state.api.operator_state": (
        "CheckpointedFunction",
        "FunctionInitializationContext",
        "FunctionSnapshotContext",
        "ListCheckpointed",
        "OperatorStateStore",
    ),
    "state.api.raw_state": (
        "KeyGroupStatePartitionStreamProvider",
        "KeyedStateCheckpointOutputStream",
        "OperatorStateCheckpointOutputStream",
        "StateInitializationContext",
        "StatePartitionStreamProvider",
        "StateSnapshotContext",
    ),
    "state.api.state_backends": (
        "SlotResources",
        "StateBackend",
    ),
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
    "state.store.base": ("KeyValueStore", "StoreSnapshot"),
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
