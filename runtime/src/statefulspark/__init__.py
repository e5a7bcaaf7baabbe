"""statefulspark: state, timers, checkpoints and savepoints for PySpark streams.

Every public name is here and is imported when it is first used, so that neither the command line nor a slot pays for
pyspark unless it needs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from statefulspark.public_names import HOME_OF

if TYPE_CHECKING:
    from statefulspark.configuration import Configuration
    from statefulspark.job.local.local_job import LocalJob, local
    from statefulspark.job.local.running_local_job import RunningLocalJob
    from statefulspark.pipeline.broadcast_streams import BroadcastConnectedStream, BroadcastStream
    from statefulspark.pipeline.connected_streams import ConnectedStreams
    from statefulspark.pipeline.job import Job
    from statefulspark.pipeline.keyed_streams import KeyedStream
    from statefulspark.pipeline.windowed_streams import WindowedStream
    from statefulspark.process.api.broadcast_functions import (
        BaseBroadcastProcessFunction,
        KeyedBroadcastProcessFunction,
        KeyedStateFunction,
    )
    from statefulspark.process.api.co_functions import CoFlatMapFunction, CoMapFunction, KeyedCoProcessFunction
    from statefulspark.process.api.functions import (
        FilterFunction,
        FlatMapFunction,
        KeyedProcessFunction,
        KeySelector,
        MapFunction,
        RuntimeContext,
        TimeDomain,
        TimerService,
    )
    from statefulspark.process.api.metrics import Counter, Distribution, Meter, Metric, MetricGroup
    from statefulspark.process.api.output_tag import OutputTag
    from statefulspark.process.batches.aggregates import Aggregate, count, last, max_, max_by, min_, min_by, sum_
    from statefulspark.process.batches.functions import (
        BatchKeyedProcessFunction,
        BatchRuntimeContext,
        BatchTimerService,
        BatchValueState,
    )
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
    "Aggregate",
    "AggregateFunction",
    "AggregatingState",
    "AggregatingStateDescriptor",
    "AppendingState",
    "BaseBroadcastProcessFunction",
    "BatchKeyedProcessFunction",
    "BatchRuntimeContext",
    "BatchTimerService",
    "BatchValueState",
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
    "LocalJob",
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
    "RunningLocalJob",
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
    "count",
    "last",
    "local",
    "max_",
    "max_by",
    "min_",
    "min_by",
    "sum_",
]


def __getattr__(name: str) -> Any:
    if name not in HOME_OF:
        raise AttributeError(f"module 'statefulspark' has no attribute {name!r}")
    value = getattr(import_module(f"statefulspark.{HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
