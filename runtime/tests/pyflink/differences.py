"""Every difference between statefulspark's public classes and PyFlink's, with the reason. ``test_signatures.py`` checks that each still exists."""

from __future__ import annotations

from collections.abc import Iterator


def _each(line: str, names: str) -> Iterator[str]:
    return (line.format(name) for name in names.split())


DIFFERENCES: dict[str, tuple[str, ...]] = {
    "There is no JVM behind Python objects.": (
        *_each("only in PyFlink: TypeInformation.{}", "__init__ get_java_type_info need_conversion to_internal_type from_internal_type"),
        "only in PyFlink: RowKind.to_j_row_kind",
        "differs: Duration.__init__ is (self, j_duration) in PyFlink, (self, nanos) here",
        "only here: Duration.nanos",
        *_each("only in PyFlink: {}", "FunctionWrapper JavaFunctionWrapper ReduceFunctionWrapper"),
    ),
    "Types makes every type; only those of rows and tuples have getters.": (
        *_each(
            "only in PyFlink: {}TypeInfo",
            "Basic BasicArray Date External Instant List LocalTime Map ObjectArray PickledBytes PrimitiveArray SqlTime Time Timestamp",
        ),
        "only in PyFlink: BasicType",
    ),
    "A type encodes values itself: PyFlink's TypeSerializer and TypeInformation in one.": (
        *tuple(
            _each(
                "only here: TypeInformation.{}",
                "accepted_class decode decoded_bytes decoder encode immutable is_immutable is_key normalize size_of struct_format to_json",
            )
        ),
        "only here: RowTypeInfo.name",
        "only here: TupleTypeInfo.name",
    ),
    "State evolves: a field that is added has a default in rows that were stored before.": (
        "only here: RowTypeInfo.default_of",
        (
            "differs: RowTypeInfo.__init__ is (self, field_types, field_names=None) in PyFlink, "
            "(self, field_types, field_names=None, defaults=None) here"
        ),
        (
            "differs: Types.ROW_NAMED is static (field_names, field_types) in PyFlink, "
            "static (field_names, field_types, *, defaults=None) here"
        ),
    ),
    "The runtime reads it; in PyFlink it has an underscore or exists only in Java.": (
        "only here: StateDescriptor.ttl",
        *_each("only here: KeyedStream.{}", "job keyed"),
        *_each("only here: {}StateDescriptor.kind", "Aggregating List Map Reducing Value"),
        *_each("only here: MetricGroup.{}", "collect values"),
        *_each("only here: Distribution.{}", "count max min sum"),
    ),
    "A shorter call: PyFlink requires the argument, or has no such method.": (
        "differs: Instant.__init__ is (self, seconds, nanos) in PyFlink, (self, seconds, nanos=0) here",
        (
            "differs: StateTtlConfig.Builder.cleanup_incrementally is (self, cleanup_size, run_cleanup_for_every_record) in PyFlink, "
            "(self, cleanup_size, run_cleanup_for_every_record=False) here"
        ),
        "only here: Time.of",
    ),
    "Spark builds the query: a job makes keyed streams of DataFrames, and a step is named where it is made.": (
        "only here: Job",
        *_each("only here: {}", "LocalJob RunningLocalJob local"),
        "only here: Row.asDict",
        (
            "differs: KeyedStream.__init__ is (self, j_keyed_stream, original_data_type_info, origin_stream) in PyFlink, "
            "(self, job, df, keys) here"
        ),
        (
            "differs: KeyedStream.process is (self, func, output_type=None) in PyFlink, "
            "(self, func, output_type, *, uid, event_time=None, watermark=None, watermark_by=None, idle_after=None, side_outputs=None) here"
        ),
        *(
            f"differs: KeyedStream.{name} is (self, func, output_type=None) in PyFlink, (self, func, output_type, *, uid, event_time=None) here"
            for name in ("map", "flat_map")
        ),
        *(
            f"differs: KeyedStream.{name} is (self, func) in PyFlink, (self, func, *, uid, event_time=None) here"
            for name in ("filter", "reduce")
        ),
        *(
            f"differs: KeyedStream.{name} is (self, position_to_{name}=0) in PyFlink, (self, position_to_{name}=0, *, uid, event_time=None) here"
            for name in ("sum", "min", "max", "min_by", "max_by")
        ),
        *_each("only in PyFlink: KeyedStream.{}", "get_name name uid set_uid_hash set_description get_type key_by"),
        *_each("only in PyFlink: KeyedStream.{}", "get_execution_config get_execution_environment"),
    ),
    "The result of a keyed step is a DataFrame: Spark has the transformations without a key, the partitioning, sinks and caching.": (
        *_each(
            "only in PyFlink: {}", "DataStream DataStreamSink CachedDataStream CloseableIterator SinkFunction SourceFunction Partitioner"
        ),
        *_each("only in PyFlink: {}", "ProcessFunction NullByteKeySelector AllWindowedStream"),
        *_each("only in PyFlink: KeyedStream.{}", "add_sink sink_to print execute_and_collect cache union project window_all"),
        *_each("only in PyFlink: KeyedStream.{}", "shuffle rescale rebalance forward broadcast partition_custom"),
    ),
    "There is no async I/O: what a row gives out belongs to the batch that reads it, so requests would have to end within the batch.": tuple(
        _each("only in PyFlink: {}", "AsyncFunction AsyncFunctionDescriptor AsyncRetryPredicate AsyncRetryStrategy")
    ),
    "The manifest sets parallelism, and event time and watermark are arguments of a step.": tuple(
        _each(
            "only in PyFlink: KeyedStream.{}",
            "set_parallelism set_max_parallelism force_non_parallel set_buffer_timeout start_new_chain disable_chaining slot_sharing_group "
            "assign_timestamps_and_watermarks",
        )
    ),
    "A side output has columns, and one query writes all outputs of a step (docs/side-outputs.md).": (
        "differs: OutputTag.__init__ is (self, tag_id, type_info=None) in PyFlink, (self, tag_id, schema) here",
        "only in PyFlink: OutputTag.get_java_output_tag",
        "only in PyFlink: OutputTag.type_info",
        "only here: OutputTag.schema",
        "only in PyFlink: KeyedStream.get_side_output",
    ),
    "Operator state exists only in Flink's Java API: its names in snake case.": (
        *_each("only here: {}", "CheckpointedFunction FunctionInitializationContext FunctionSnapshotContext ListCheckpointed"),
        *_each("only here: OperatorStateStore.{}", "get_list_state get_registered_state_names get_union_list_state"),
        *_each("only here: {}", "StateInitializationContext StateSnapshotContext KeyedStateCheckpointOutputStream"),
        *_each("only here: {}", "KeyGroupStatePartitionStreamProvider StatePartitionStreamProvider OperatorStateCheckpointOutputStream"),
        *_each("only here: RuntimeContext.{}", "get_key_group_range get_current_key_group_index"),
    ),
    "In Flink only Java code can set RocksDB's options; Flink's Java names, and the getters of PyFlink's Configuration (no part of its data streams).": (
        *_each("only here: {}", "RocksDBOptionsFactory ConfigurableRocksDBOptionsFactory Configuration"),
    ),
    "State backends of one's own exist only in Flink's Java API (StateBackend and StateBackendFactory); a store here is an ordered map of bytes.": (
        *_each("only here: {}", "KeyValueStore SlotResources StateBackend StoreSnapshot"),
    ),
    "Only keyed streams are connected with a broadcast stream, which has its states; a step says what its inputs have as event time.": (
        *_each("only in PyFlink: {}", "BroadcastProcessFunction OperatorStateStore.get_broadcast_state"),
        (
            "differs: BroadcastStream.__init__ is (self, input_stream, broadcast_state_descriptors) in PyFlink, "
            "(self, job, input_stream, broadcast_state_descriptors) here"
        ),
        "only here: BroadcastStream.job",
        (
            "differs: BroadcastConnectedStream.__init__ is (self, non_broadcast_stream, broadcast_stream, broadcast_state_descriptors) in PyFlink, "
            "(self, non_broadcast_stream, broadcast_stream) here"
        ),
        (
            "differs: BroadcastConnectedStream.process is (self, func, output_type=None) in PyFlink, (self, func, output_type, *, uid, "
            "event_time=None, watermark=None, broadcast_event_time=None, broadcast_watermark=None, side_outputs=None) here"
        ),
    ),
    "Only Flink's Java API visits the keyed state of all keys: its names in snake case.": (
        "only here: KeyedBroadcastProcessFunction.Context.apply_to_keyed_state",
        "only here: KeyedStateFunction",
    ),
    "Streams are connected after they are keyed, and a step says what its inputs have as event time.": (
        "only in PyFlink: CoProcessFunction",
        "only in PyFlink: ConnectedStreams.key_by",
        *(
            f"differs: ConnectedStreams.{name} is (self, func, output_type=None) in PyFlink, "
            "(self, func, output_type, *, uid, event_time1=None, event_time2=None) here"
            for name in ("map", "flat_map")
        ),
        (
            "differs: ConnectedStreams.process is (self, func, output_type=None) in PyFlink, (self, func, output_type, *, uid, "
            "event_time1=None, event_time2=None, watermark1=None, watermark2=None, watermark_by1=None, watermark_by2=None, idle_after=None, "
            "side_outputs=None) here"
        ),
    ),
    "PyFlink has functions of batches only in its Table API, and none with state.": (
        *_each("only here: Batch{}", "KeyedProcessFunction RuntimeContext TimerService ValueState"),
        *_each("only here: {}", "Aggregate KeyedStream.aggregate count last max_ max_by min_ min_by sum_"),
    ),
    "There are no windows over all keys: a keyed step needs a key.": (
        *_each("only in PyFlink: {}Function", "AllWindow ProcessAllWindow PassThroughAllWindow"),
    ),
    "State is kept per key and window, so windows have bytes of a fixed width instead of a stream.": (
        *_each("differs: {}WindowSerializer.serialize is (self, element, stream) in PyFlink, (self, element) here", "Count Global Time"),
        *_each("differs: {}WindowSerializer.deserialize is (self, stream) in PyFlink, (self, data) here", "Count Global Time"),
        *_each("only here: {}WindowSerializer.width", "Count Global Time"),
        *_each("only here: {}WindowSerializer.window_class", "Count Global Time"),
        *_each("only here: Count{}WindowAssigner.numbering", "Sliding Tumbling"),
        *_each("only in PyFlink: {}.__init__", "CountWindowSerializer GlobalWindowSerializer TimeWindowSerializer GlobalWindows"),
    ),
    "A window step takes the same arguments by name as process, and the types that Spark needs.": (
        "differs: WindowedStream.__init__ is (self, keyed_stream, window_assigner) in PyFlink, (self, keyed_input, window_assigner) here",
        (
            "differs: WindowedStream.aggregate is (self, aggregate_function, window_function=None, accumulator_type=None, output_type=None) "
            "in PyFlink, (self, aggregate_function, window_function=None, accumulator_type=None, output_type=None, *, uid, event_time=None, "
            "watermark=None, watermark_by=None, idle_after=None, side_outputs=None) here"
        ),
        (
            "differs: WindowedStream.apply is (self, window_function, output_type=None) in PyFlink, "
            "(self, window_function, output_type, *, uid, event_time=None, watermark=None, watermark_by=None, idle_after=None, side_outputs=None) here"
        ),
        (
            "differs: WindowedStream.process is (self, process_window_function, output_type=None) in PyFlink, "
            "(self, process_window_function, output_type, *, uid, event_time=None, watermark=None, watermark_by=None, idle_after=None, side_outputs=None) here"
        ),
        (
            "differs: WindowedStream.reduce is (self, reduce_function, window_function=None, output_type=None) in PyFlink, "
            "(self, reduce_function, window_function=None, output_type=None, *, uid, event_time=None, watermark=None, watermark_by=None, idle_after=None, side_outputs=None) here"
        ),
        "differs: WindowAssigner.get_default_trigger is (self, env) in PyFlink, (self, env=None) here",
        *_each("only in PyFlink: WindowedStream.{}", "get_execution_environment get_input_type"),
    ),
    "Evictors exist only in Java; the names are Java's.": (
        *_each("only here: {}Evictor", "Count Delta Time"),
        *_each("only here: {}", "Evictor TimestampedValue WindowedStream.evictor"),
    ),
    "Warns of windows that each row is added to in great number.": (
        *_each("only here: {}Windows.windows_per_row", "SlidingEventTime SlidingProcessingTime TumblingEventTime TumblingProcessingTime"),
        *_each("only here: {}Windows.dropped_ms", "SlidingEventTime SlidingProcessingTime TumblingEventTime TumblingProcessingTime"),
    ),
    "PyFlink's own business, although its name has no underscore.": (
        *_each("only in PyFlink: {}", "Min KeyedStream.AccumulateType WindowOperationDescriptor PassThroughWindowFunction"),
        *_each("only in PyFlink: Continuous{}TimeTrigger.fire_timestamp_state", "Event Processing"),
        *_each("only in PyFlink: Continuous{}TimeTrigger.register_next_fire_timestamp", "Event Processing"),
        *_each("only in PyFlink: Internal{}Function", "Window SingleValueWindow SingleValueAllWindow IterableWindow IterableAllWindow"),
        *_each("only in PyFlink: Internal{}Function", "SingleValueProcessWindow SingleValueProcessAllWindow"),
        *_each("only in PyFlink: Internal{}Function", "IterableProcessWindow IterableProcessAllWindow"),
        *_each("only in PyFlink: Internal{}Context", "ProcessWindow ProcessAllWindow"),
    ),
}
