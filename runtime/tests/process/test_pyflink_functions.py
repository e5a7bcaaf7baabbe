"""Functions as people write them for PyFlink run unchanged but for their imports."""
# Without annotations, as most PyFlink code is.
# ruff: noqa: ANN001, ANN201
# mypy: disable-error-code="no-untyped-def, type-arg, no-untyped-call, operator, misc"

from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa

# In PyFlink: from pyflink.common import Row, Time, Types
# In PyFlink: from pyflink.datastream import KeyedProcessFunction, RuntimeContext
# In PyFlink: from pyflink.datastream.state import ValueStateDescriptor, MapStateDescriptor, ListStateDescriptor, StateTtlConfig, ...
from statefulspark import (
    AggregateFunction,
    AggregatingStateDescriptor,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    ReduceFunction,
    ReducingStateDescriptor,
    Row,
    RuntimeContext,
    StateTtlConfig,
    Time,
    TimerService,
    Types,
    ValueStateDescriptor,
)
from statefulspark.testing import KeyedProcessHarness

EVENTS = {"user": pa.string(), "page": pa.string(), "at": pa.timestamp("us")}


class CountWithTimeout(KeyedProcessFunction):
    """Counts per key and gives the count once the key has been quiet for a minute of event time."""

    def open(self, runtime_context: RuntimeContext):
        self.state = runtime_context.get_state(ValueStateDescriptor("my_state", Types.TUPLE([Types.LONG(), Types.LONG()])))

    def process_element(self, value, ctx: KeyedProcessFunction.Context):
        current = self.state.value()
        if current is None:
            current = (0, 0)
        current = (current[0] + 1, ctx.timestamp())
        self.state.update(current)
        ctx.timer_service().register_event_time_timer(current[1] + 60000)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext):
        count, last_modified = self.state.value()
        if timestamp == last_modified + 60000:
            self.state.clear()
            yield ctx.get_current_key(), count


class Sessions(KeyedProcessFunction):
    """Gathers the pages of a session; each page pushes the end of the session out by deleting its timer."""

    GAP_MS = 30_000

    def open(self, runtime_context: RuntimeContext):
        self.pages = runtime_context.get_list_state(ListStateDescriptor("pages", Types.STRING()))
        self.ends = runtime_context.get_state(ValueStateDescriptor("ends", Types.LONG()))

    def process_element(self, value, ctx):
        end = self.ends.value()
        if end is not None:
            ctx.timer_service().delete_event_time_timer(end)
        end = max(end or 0, ctx.timestamp() + self.GAP_MS)
        ctx.timer_service().register_event_time_timer(end)
        self.ends.update(end)
        self.pages.add(value.page)

    def on_timer(self, timestamp, ctx):
        pages = list(self.pages)
        self.pages.clear()
        self.ends.clear()
        yield Row(user=ctx.get_current_key(), pages=len(pages), path=">".join(pages))


class Everything(KeyedProcessFunction):
    """One state of each kind, with a time to live on one of them."""

    class Sum(ReduceFunction):
        def reduce(self, value1, value2):
            return value1 + value2

    class Mean(AggregateFunction):
        def create_accumulator(self):
            return 0, 0

        def add(self, value, accumulator):
            return accumulator[0] + value, accumulator[1] + 1

        def get_result(self, accumulator):
            return accumulator[0] / accumulator[1]

        def merge(self, acc_a, acc_b):
            return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]

    def open(self, runtime_context: RuntimeContext):
        ttl = (
            StateTtlConfig.new_builder(Time.seconds(10))
            .set_update_type(StateTtlConfig.UpdateType.OnCreateAndWrite)
            .set_state_visibility(StateTtlConfig.StateVisibility.NeverReturnExpired)
            .build()
        )
        last = ValueStateDescriptor("last", Types.STRING())
        last.enable_time_to_live(ttl)
        self.last = runtime_context.get_state(last)
        self.by_page = runtime_context.get_map_state(MapStateDescriptor("by_page", Types.STRING(), Types.INT()))
        self.letters = runtime_context.get_reducing_state(ReducingStateDescriptor("letters", self.Sum(), Types.LONG()))
        self.mean = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("mean", self.Mean(), Types.TUPLE([Types.LONG(), Types.LONG()]))
        )

    def process_element(self, value, ctx):
        before = self.last.value()
        self.last.update(value["page"])
        if not self.by_page.contains(value[1]):
            self.by_page.put(value[1], 0)
        self.by_page[value.page] += 1
        self.letters.add(len(value.page))
        self.mean.add(len(value.page))
        most = max(self.by_page.items(), key=lambda entry: (entry[1], entry[0]))[0]
        return [Row(value.user, before, most, self.letters.get(), self.mean.get())]


def test_count_with_timeout():
    """The count comes once, when the watermark is a minute past the last event, and the state is gone then."""
    with KeyedProcessHarness(
        CountWithTimeout(), EVENTS, {"user": pa.string(), "count": pa.int64()}, key="user", event_time="at"
    ) as harness:
        harness.process_element(("ada", "a"), 1_000)
        harness.process_element(("ada", "b"), 31_000)
        harness.process_element(("bob", "a"), 32_000)
        harness.process_watermark(61_000)
        assert harness.get_output() == []
        harness.process_watermark(91_000)
        assert harness.get_output() == [("ada", 2)]
        harness.process_watermark(92_000)
        assert harness.get_output()[1].user == "bob"
        assert harness.snapshot().entries == ()


def test_sessions_end_a_gap_after_their_last_page():
    """A deleted timer never fires; one session gives one row, however often it was extended."""
    output = {"user": pa.string(), "path": pa.string(), "pages": pa.int32()}
    with KeyedProcessHarness(Sessions(), EVENTS, output, key="user", event_time="at") as harness:
        for at, user, page in [(0, "ada", "home"), (10_000, "bob", "home"), (25_000, "ada", "cart"), (50_000, "ada", "pay")]:
            harness.process_element({"user": user, "page": page}, at)
            harness.process_watermark(at)
        assert harness.get_output() == [("bob", "home", 1)]
        harness.process_watermark(80_000)
        harness.process_element(("ada", "home"), 90_000)
        harness.process_watermark(1 << 50)
        assert harness.get_output()[1:] == [("ada", "home>cart>pay", 3), ("ada", "home", 1)]


def test_every_kind_of_state():
    """Value with time to live, map, reducing and aggregating state behave as in PyFlink."""
    output = {"user": pa.string(), "before": pa.string(), "most": pa.string(), "letters": pa.int64(), "mean": pa.float64()}
    with KeyedProcessHarness(Everything(), EVENTS, output, key="user") as harness:
        for now, page in [(1_000, "a"), (2_000, "bbb"), (3_000, "bbb")]:
            harness.set_processing_time(now)
            harness.process_element(("ada", page, None))
        assert harness.get_output() == [("ada", None, "a", 1, 1.0), ("ada", "a", "bbb", 4, 2.0), ("ada", "bbb", "bbb", 7, 7 / 3)]


def test_a_value_older_than_its_time_to_live_is_gone():
    """Processing time decides, and a write prolongs the life of that value only."""
    output = {"user": pa.string(), "before": pa.string(), "most": pa.string(), "letters": pa.int64(), "mean": pa.float64()}
    with KeyedProcessHarness(Everything(), EVENTS, output, key="user") as harness:
        for now, page in [(1_000, "a"), (50_000, "bbb")]:
            harness.set_processing_time(now)
            harness.process_element(("ada", page, None))
        assert [row.before for row in harness.get_output()] == [None, None]


def test_state_moves_to_a_new_instance_by_snapshot():
    """What a restored function goes on with is what the snapshot held, timers included."""
    output = {"user": pa.string(), "count": pa.int64()}
    with KeyedProcessHarness(CountWithTimeout(), EVENTS, output, key="user", event_time="at") as harness:
        harness.process_element(("ada", "a"), 1_000)
        snapshot = harness.snapshot()
        harness.process_element(("ada", "b"), 2_000)
    restored = KeyedProcessHarness(CountWithTimeout(), EVENTS, output, key="user", event_time="at")
    restored.restore(snapshot)
    with restored:
        assert restored.snapshot() == snapshot
        restored.process_watermark(61_000)
        assert restored.get_output() == [("ada", 1)]


def parameters(method: Any) -> list[str]:
    return list(inspect.signature(method).parameters)


def test_signatures_are_pyflinks():
    """Names and parameter names, as calls by keyword rely on them."""
    assert parameters(KeyedProcessFunction.open) == ["self", "runtime_context"]
    assert parameters(KeyedProcessFunction.process_element) == ["self", "value", "ctx"]
    assert parameters(KeyedProcessFunction.on_timer) == ["self", "timestamp", "ctx"]
    assert parameters(KeyedProcessFunction.close) == ["self"]
    assert {name for name in dir(KeyedProcessFunction.OnTimerContext) if not name.startswith("_")} == {
        "get_current_key",
        "time_domain",
        "timer_service",
        "timestamp",
    }
    assert "time_domain" not in dir(KeyedProcessFunction.Context)
    timers = {name for name in dir(TimerService) if not name.startswith("_")}
    assert timers == {
        "current_processing_time",
        "current_watermark",
        "delete_event_time_timer",
        "delete_processing_time_timer",
        "register_event_time_timer",
        "register_processing_time_timer",
    }
    for name in timers:
        assert parameters(getattr(TimerService, name)) == (["self"] if name.startswith("current") else ["self", "timestamp"])
    for name in ("get_state", "get_list_state", "get_map_state", "get_reducing_state", "get_aggregating_state"):
        assert parameters(getattr(RuntimeContext, name)) == ["self", "state_descriptor"]
    assert parameters(RuntimeContext.get_job_parameter) == ["self", "key", "default_value"]
