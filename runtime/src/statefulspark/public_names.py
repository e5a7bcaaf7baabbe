"""Modules of the package's public names, so that each is imported when it is first used."""

from __future__ import annotations

from typing import Final

HOMES: Final = {
    "configuration": ("Configuration",),
    "job.local.local_job": ("LocalJob", "local"),
    "job.local.running_local_job": ("RunningLocalJob",),
    "pipeline.broadcast_streams": ("BroadcastConnectedStream", "BroadcastStream"),
    "pipeline.connected_streams": ("ConnectedStreams",),
    "pipeline.job": ("Job",),
    "pipeline.keyed_streams": ("KeyedStream",),
    "pipeline.windowed_streams": ("WindowedStream",),
    "process.batches.functions": (
        "BatchKeyedProcessFunction",
        "BatchRuntimeContext",
        "BatchTimerService",
        "BatchValueState",
    ),
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
"""By module, below ``statefulspark``: its public names."""
HOME_OF: Final = {name: home for home, names in HOMES.items() for name in names}
"""By public name: its module, below ``statefulspark``."""
