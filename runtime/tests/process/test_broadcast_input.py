"""Functions with a broadcast input in one slot: which row comes when, what sees which rule, whose watermark counts, and what is refused."""

from __future__ import annotations

import doctest
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statefulspark import (
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    KeyedStateFunction,
    MapStateDescriptor,
    OutputTag,
    RuntimeContext,
    StateTtlConfig,
    Time,
    Types,
    ValueStateDescriptor,
)
from statefulspark.errors import InvalidInputError, UserFunctionError
from statefulspark.process.api import broadcast_functions
from statefulspark.process.rows.step_spec import InputSpec, StepSpec
from statefulspark.testing import BROADCAST, SECOND, BroadcastInput, KeyedBroadcastProcessHarness, process_harness
from statefulspark.testing import broadcast_harness as harness_module

RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
KEYED = pa.schema([("user", pa.string()), ("n", pa.int64()), ("at", pa.timestamp("us"))])
CHANGES = pa.schema([("n", pa.int64()), ("name", pa.string()), ("when", pa.timestamp("us"))])
OUTPUT = "user STRING, kind STRING, n BIGINT, rules STRING, at BIGINT"
LOUD = OutputTag("loud", "n BIGINT")
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  event times have no zone


class Rules(KeyedBroadcastProcessFunction):
    """Emits each row with all rules as it finds them. A change without a number removes the rule. A keyed row sets a timer 10 ms later."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.kept: Any = None

    def process_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        if ctx.timestamp() is not None:
            ctx.timer_service().register_event_time_timer((ctx.timestamp() or 0) + 10)
        yield ctx.get_current_key(), "row", value.n, self._seen(ctx), ctx.timestamp()

    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> Any:
        rules = ctx.get_broadcast_state(RULES)
        if value.n is None:
            rules.remove(value.name)
        else:
            rules.put(value.name, value.n)
        yield LOUD, (value.n,)
        yield None, "rule", value.n, value.name, ctx.timestamp()

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext) -> Any:
        yield ctx.get_current_key(), "timer", self.count.value(), self._seen(ctx), timestamp

    def _seen(self, ctx: Any) -> str:
        return ",".join(f"{name}={n}" for name, n in ctx.get_broadcast_state(RULES).items())


def stream(event_time: str | None = "when") -> BroadcastInput:
    return BroadcastInput(CHANGES, RULES, event_time=event_time)


def opened(function: KeyedBroadcastProcessFunction, event_time: str | None = "when") -> KeyedBroadcastProcessHarness:
    return KeyedBroadcastProcessHarness(
        function, KEYED, stream(event_time), OUTPUT, key="user", event_time="at", side_outputs=[LOUD], max_parallelism=8
    )


@pytest.mark.parametrize("module", [harness_module, broadcast_functions])
def test_the_examples_of_docstrings_run(module: Any) -> None:
    """As a user would copy them."""
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


TIMES = st.one_of(st.none(), st.integers(-2, 2).map(lambda ms: datetime.fromtimestamp(1_000_000 + ms)))  # noqa: DTZ006  as rows have them
KEYED_ROWS = st.tuples(st.sampled_from("ab"), st.integers(0, 9), TIMES)
CHANGE_ROWS = st.tuples(st.one_of(st.none(), st.integers(0, 9)), st.sampled_from("xyz"), TIMES).map(BROADCAST)


def first_null(time: datetime | None) -> float:
    return float("-inf") if time is None else time.timestamp()


@settings(deadline=None)
@given(
    batches=st.lists(st.lists(st.one_of(KEYED_ROWS, CHANGE_ROWS), max_size=20), max_size=4),
    sort_bytes=st.sampled_from([1_200, 16 << 20]),
    time=st.booleans(),
)
def test_a_row_sees_the_rules_of_its_batch(batches: list[list[Any]], sort_bytes: int, time: bool) -> None:
    """All changes of a batch come before its keyed rows, by event time and then arrival, also if keyed rows are spilled; then a plain dict has the rules."""
    rules: dict[str, int] = {}
    expected: list[Any] = []
    changed: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_harness, "_SORT_BYTES", sort_bytes)
        with opened(Rules(), "when" if time else None) as harness:
            for rows in batches:
                harness.process_elements(rows)
                changes = [row.row for row in rows if isinstance(row, BROADCAST)]
                for n, name, when in sorted(changes, key=lambda row: first_null(row[2] if time else None)):
                    if n is None:
                        rules.pop(name, None)
                    else:
                        rules[name] = n
                    changed.append((n, name, int(when.timestamp() * 1000) if time and when is not None else None))
                seen = ",".join(f"{name}={n}" for name, n in sorted(rules.items()))
                expected += [(user, n, seen) for user, n, _ in (row for row in rows if not isinstance(row, BROADCAST))]
            output = harness.get_output()
            state = harness.broadcast_state(RULES)
            loud = harness.get_side_output(LOUD)
    assert [(n, name, at) for _, kind, n, name, at in output if kind == "rule"] == _utc(changed)
    assert [row[0] for row in loud] == [n for n, *_ in changed]
    assert sorted((user, n, seen) for user, kind, n, seen, _ in output if kind == "row") == sorted(expected)
    assert state == rules


def _utc(changed: list[Any]) -> list[Any]:
    """Rows have no zone: their times count as UTC."""
    offset = int(datetime.fromtimestamp(1_000_000).astimezone().utcoffset().total_seconds() * 1000)  # type: ignore[union-attr]
    return [(n, name, None if at is None else at + offset) for n, name, at in changed]


def test_timers_that_are_due_come_before_the_rules_of_the_batch() -> None:
    """A timer of the last batch sees the rules of the last batch, and one of this batch those of this."""
    with opened(Rules(), None) as harness:
        harness.process_elements([BROADCAST((1, "x", None)), ("a", 1, EPOCH)])
        harness.process_watermark(5)
        harness.process_broadcast_element((2, "x", None))
        harness.process_keyed_watermark(10)
        assert [tuple(row[1:]) for row in harness.get_output() if row[1] == "timer"] == [("timer", 1, "x=2", 10)]


def test_the_watermark_is_the_smaller_one_of_inputs_with_event_time() -> None:
    """A broadcast stream with event time holds timers back; one without does not."""
    with opened(Rules()) as harness:
        harness.process_element(("a", 1), 0)
        harness.process_keyed_watermark(100)
        assert not [row for row in harness.get_output() if row[1] == "timer"]
        harness.process_broadcast_watermark(9)
        assert not [row for row in harness.get_output() if row[1] == "timer"]
        harness.process_broadcast_watermark(50)
        assert len([row for row in harness.get_output() if row[1] == "timer"]) == 1


def test_a_failed_batch_and_a_retry_leave_the_rules_as_they_were() -> None:
    """Rules of a batch that fails are gone, and a retry applies them once."""
    with opened(Rules(), None) as harness:
        harness.process_elements([BROADCAST((1, "x", None))])
        with pytest.raises(InvalidInputError):
            harness.process_elements([BROADCAST((2, "x", None)), BROADCAST((3, None, None))])
        assert harness.broadcast_state(RULES) == {"x": 1}
        harness.process_elements([BROADCAST((5, "y", None)), ("a", 1, None)])
        before = harness.get_output()
        harness.retry()
        assert harness.get_output() == before
        assert harness.broadcast_state(RULES) == {"x": 1, "y": 5}


def test_a_snapshot_has_the_rules() -> None:
    """A new harness goes on where the snapshot was taken, and the old one is not changed by it."""
    with opened(Rules(), None) as harness:
        harness.process_elements([BROADCAST((1, "x", None)), BROADCAST((2, "y", None))])
        snapshot = harness.snapshot()
        harness.process_broadcast_element((None, "x", None))
        assert harness.broadcast_state(RULES) == {"y": 2}
    restored = opened(Rules(), None)
    restored.restore(snapshot)
    with restored:
        restored.process_elements([("a", 1, None), BROADCAST((3, "z", None))])
        assert [row.rules for row in restored.get_output() if row.kind == "row"] == ["x=1,y=2,z=3"]


class Hoarder(Rules):
    """Keeps the handle that only changes of rules may use."""

    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> None:
        self.kept = ctx.get_broadcast_state(RULES)

    def process_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> None:
        self.kept.put("x", 1)


class ReadsKeyedState(Rules):
    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> None:
        self.count.value()


class Undeclared(Rules):
    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> None:
        ctx.get_broadcast_state(MapStateDescriptor("others", Types.STRING(), Types.LONG()))


class Raises(Rules):
    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> None:
        raise KeyError("oops")


class VisitsNothing(Rules):
    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> None:
        ctx.apply_to_keyed_state(ValueStateDescriptor("count", Types.LONG()), 5)  # type: ignore[arg-type]


class Gathers(Rules):
    """Gathers the keys of this slot into broadcast state, which other slots do not have."""

    def __init__(self, how: str) -> None:
        self.how = how

    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> None:
        rules = ctx.get_broadcast_state(RULES)
        rules.put("before", value.n)
        ctx.apply_to_keyed_state(ValueStateDescriptor("count", Types.LONG()), lambda key, _: self._visit(key, rules, ctx))
        rules.put("after", value.n)

    def _visit(self, key: str, rules: Any, ctx: KeyedBroadcastProcessFunction.Context) -> None:
        if self.how == "put":
            ctx.get_broadcast_state(RULES).put(key, 1)
        elif self.how == "remove":
            rules.remove("before")
        elif self.how == "clear":
            rules.clear()
        elif self.how == "nested":
            with pytest.raises(InvalidInputError, match="cannot call it again"):
                ctx.apply_to_keyed_state(ValueStateDescriptor("count", Types.LONG()), lambda *_: None)
            rules.put(key, 1)
        else:
            assert rules.get("before") == 1


@pytest.mark.parametrize("how", ["put", "remove", "clear", "nested"])
def test_what_visits_keyed_state_cannot_change_broadcast_state(how: str) -> None:
    """Each slot has other keys, so the copies would differ."""
    with opened(Gathers(how), None) as harness:
        harness.process_element(("only-in-this-slot", 1, None))
        with pytest.raises(InvalidInputError, match=r"state 'rules' of uid 'harness': it can be changed in process_broadcast_element only"):
            harness.process_broadcast_element((1, "x", None))


def test_broadcast_state_can_be_read_by_what_visits_keyed_state_and_changed_before_and_after() -> None:
    """Also by the next row."""
    with opened(Gathers("read"), None) as harness:
        harness.process_element(("a", 1, None))
        harness.process_elements([BROADCAST((1, "x", None)), BROADCAST((1, "y", None))])
        assert harness.broadcast_state(RULES) == {"before": 1, "after": 1}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (Hoarder(), "can be changed in process_broadcast_element only"),
        (ReadsKeyedState(), "there is no current key"),
        (Undeclared(), "job.broadcast"),
        (VisitsNothing(), "apply_to_keyed_state: expected a function of key and state, got an int"),
    ],
)
def test_what_a_function_may_not_do_is_refused(function: KeyedBroadcastProcessFunction, message: str) -> None:
    """By name, and the batch is undone."""
    with opened(function, None) as harness, pytest.raises(InvalidInputError, match=message):
        harness.process_elements([("a", 1, None), BROADCAST((1, "x", None))])


def test_an_exception_of_the_function_is_reported_without_a_key() -> None:
    """A row of the broadcast stream has none."""
    with opened(Raises(), None) as harness, pytest.raises(UserFunctionError, match="raised KeyError in uid 'harness'\n"):
        harness.process_broadcast_element((1, "x", None))


class CatchesARefusal(Rules):
    """Goes on with the key that it visits after a nested visit was refused."""

    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> Any:
        descriptor = ValueStateDescriptor("count", Types.LONG())

        def visit(key: str, state: Any) -> None:
            with pytest.raises(InvalidInputError, match="cannot call it again"):
                ctx.apply_to_keyed_state(descriptor, lambda *_: None)
            state.update(state.value() + ord(key))

        ctx.apply_to_keyed_state(descriptor, visit)


def test_after_a_refused_nested_visit_the_outer_one_still_has_its_key() -> None:
    """The refusal changes nothing."""
    with opened(CatchesARefusal(), None) as harness:
        harness.process_elements([(key, 1, None) for key in "abc"])
        harness.process_broadcast_element((1, "x", None))
        # One more row of each key sets a timer, which emits the count.
        harness.process_elements([(user, 0, EPOCH) for user in "abc"])
        harness.process_watermark(10)
        counts = {user: n for user, kind, n, *_ in harness.get_output() if kind == "timer"}
        assert counts == {key: 2 + ord(key) for key in "abc"}


class Cap(KeyedStateFunction):
    """Lowers a count to 1."""

    def process(self, key: Any, state: Any) -> None:
        state.update(min(state.value(), 1))


class Visits(Rules):
    """Each change caps the counts of all keys, and then adds the number of the change to them."""

    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> None:
        descriptor = ValueStateDescriptor("count", Types.LONG())
        ctx.apply_to_keyed_state(descriptor, Cap())
        ctx.apply_to_keyed_state(descriptor, lambda _, state: state.update(state.value() + value.n))


def test_keyed_state_is_visited_key_by_key() -> None:
    """By a KeyedStateFunction and by a plain function, for keys of earlier batches; keys without an entry are not visited."""
    with opened(Visits(), None) as harness:
        harness.process_elements([("a", 1, None), ("a", 1, None), ("a", 1, None), ("b", 1, None)])
        harness.process_elements([BROADCAST((10, "x", None)), BROADCAST((20, "x", None)), ("c", 1, None)])
        # One more row of each key sets a timer, which emits the count.
        harness.process_elements([(user, 0, EPOCH) for user in "abc"])
        harness.process_watermark(10)
        assert sorted((user, n) for user, kind, n, *_ in harness.get_output() if kind == "timer") == [("a", 22), ("b", 22), ("c", 2)]


BAD: list[tuple[dict[str, Any], str]] = [
    ({"broadcast": (ValueStateDescriptor("v", Types.LONG()),)}, "expected MapStateDescriptors, got a ValueStateDescriptor"),
    ({"broadcast": (RULES, MapStateDescriptor("rules", Types.LONG(), Types.LONG()))}, "two states are named 'rules'"),
    ({"second": InputSpec(pa.schema([("__part", pa.int64())]), ())}, "column '__part' is reserved"),
    ({"second": InputSpec(CHANGES, (), "name")}, "event_time: column 'name' has type string"),
    (
        {"function": KeyedProcessFunction},
        "a KeyedProcessFunction, and the step has a broadcast input. Derive it from a KeyedBroadcastProcessFunction",
    ),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_a_step_that_cannot_be_is_refused(change: dict[str, Any], message: str) -> None:
    """Before anything starts, with the remedy."""

    class Plain(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None: ...

    given_ = {**change, "function": Plain() if "function" in change else Rules()}
    parts: dict[str, Any] = {"second": InputSpec(CHANGES, (), None), "broadcast": (RULES,), **given_}
    with pytest.raises(InvalidInputError, match=message):
        StepSpec(
            uid="u",
            input_schema=KEYED,
            output_schema=pa.schema([("n", pa.int64())]),
            key_columns=("user",),
            event_time=None,
            watermark_delay_ms=0,
            max_parallelism=8,
            **parts,
        )


def test_broadcast_state_with_a_time_to_live_is_refused() -> None:
    """It would expire at other times in other slots."""
    descriptor = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
    with pytest.raises(InvalidInputError, match="'rules' has a time to live"):
        BroadcastInput(CHANGES, descriptor)
    with pytest.raises(InvalidInputError, match="no state descriptor"):
        BroadcastInput(CHANGES)


def test_rows_of_an_input_that_the_step_does_not_have_are_refused() -> None:
    """A row of a second input is not one of the broadcast stream."""
    with opened(Rules()) as harness, pytest.raises(InvalidInputError, match="SECOND: the step has no such input"):
        harness.process_elements([SECOND((1, "x", None))])
