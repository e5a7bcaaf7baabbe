"""Watermarks of steps after each other: what a step emits from its timers is never late in the next one, whatever the batches are.

An engine of its own runs random chains on the real batch log, with slots that a batch may not reach, restarts from records and from
checkpoints, rescales, and a drain that begins at any moment. The oracle knows no batches.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from runtime.tests.coordinator.test_batch_log import ack, run_batch

from statefulspark.checkpoint.formats.documents import decode_document, encode_document
from statefulspark.checkpoint.formats.metadata import CheckpointMetadata, SlotState, decode_metadata, encode_metadata
from statefulspark.checkpoint.formats.records import BatchRecord
from statefulspark.coordinator.batches.log import BatchLog
from statefulspark.coordinator.core.life import BatchParameters
from statefulspark.coordinator.durable.recovery import batch_log, recovered_batch

END_OF_TIME = (1 << 63) - 1
KEYS = 3


def test_a_step_lives_one_batch_behind_the_one_before_it() -> None:
    log = BatchLog(delays_ms={"a": (10,), "b": (0,)}, after={"b": ("a",)})
    run_batch(log, 0, ack(0, uid="a", seen=100), ack(0, uid="b", seen=300))
    run_batch(log, 1, ack(1, uid="a"))
    assert log.current is not None
    assert log.current.watermarks == {"a": 90, "b": None}
    run_batch(log, 2)
    assert log.current.watermarks == {"a": 90, "b": 90}


def test_a_step_without_a_watermark_of_its_own_has_that_of_the_steps_before() -> None:
    log = BatchLog(delays_ms={"a": (10,), "b": (None,), "c": (None, 5)}, after={"b": ("a",), "c": ("a", "b")})
    run_batch(log, 0, ack(0, uid="a", seen=100))
    run_batch(log, 1)
    run_batch(log, 2)
    run_batch(log, 3)
    assert log.current is not None
    assert log.current.watermarks == {"a": 90, "b": 90, "c": None}, "the second input of c has had no row"
    assert log.final_watermark("b") == 90


def test_a_drain_goes_step_by_step() -> None:
    """A tick is due as long as a later step has timers, also in the batches that only bring it there."""
    log = BatchLog(delays_ms={"a": (0,), "b": (0,), "c": (0,)}, after={"b": ("a",), "c": ("a", "b")})
    run_batch(log, 0, ack(0, uid="a", seen=1), ack(0, uid="c", event=500))
    seen = []
    for batch in (1, 2, 3):
        assert log.tick_due("c", 0, drain=True)
        log.commit_current()
        log.begin(log.next_parameters(batch, 1000, drain=True))
        assert log.current is not None
        seen.append([uid for uid, mark in log.current.watermarks.items() if mark == END_OF_TIME])
    assert seen == [["a"], ["a", "b"], ["a", "b", "c"]]


def test_a_step_waits_for_timers_that_a_batch_without_a_tick_has_left() -> None:
    """Also for those that slots have not reported yet."""
    log = BatchLog(delays_ms={"a": (0,), "b": (0,)}, after={"b": ("a",)})
    run_batch(log, 0, ack(0, uid="a", seen=100, event=50), ack(0, uid="b", seen=100))
    run_batch(log, 1)
    log.commit_current()
    assert log.next_parameters(2, 1000).watermarks == {"a": 100, "b": None}
    log.timers["a", 0] = (101, None)
    assert log.next_parameters(2, 1000, ready=False).watermarks == {"a": 100, "b": None}
    assert log.next_parameters(2, 1000).watermarks == {"a": 100, "b": 100}


def test_a_watermark_does_not_go_back_when_a_step_before_has_a_longer_delay_after_an_upgrade() -> None:
    log = BatchLog(delays_ms={"a": (50,), "b": (0,)}, after={"b": ("a",)}, watermarks={"a": 90, "b": 80})
    log.event_times.see("a", 100)
    log.event_times.see("b", 100)
    log.begin(log.next_parameters(1, 1000))
    log.commit_current()
    assert log.next_parameters(2, 1000).watermarks == {"a": 50, "b": 90}


def test_a_job_that_goes_on_after_a_drain() -> None:
    """The end of time is not its watermark any more, and steps after others follow them at once: nothing of before is left in those."""
    log = BatchLog(delays_ms={"a": (0,), "b": (0,)}, after={"b": ("a",)}, watermarks={"a": END_OF_TIME, "b": END_OF_TIME})
    log.event_times.see("a", 100)
    log.event_times.see("b", 130)
    assert log.next_parameters(2, 1000).watermarks == {"a": 100, "b": 100}


# -- random chains ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Node:
    """A step: each row belongs to a piece of time, whose end emits one row; with a size of 0, each row to itself, some time later."""

    size: int
    later: int
    inputs: tuple[int, ...]
    """Numbers of nodes, or -1 - n for the n-th source."""
    delays: tuple[int | None, ...]
    """None for the watermark of the steps before."""
    keys: int
    """Rows have a new key: the old one modulo this."""
    forwards: bool = False
    """Whether each row is also emitted at once, ahead of the watermark."""

    def piece(self, at: int) -> int:
        """The time of the row that a row of this time adds to; its timer is one before."""
        return at + self.later if not self.size else at - at % self.size + self.size


Row = tuple[int, int, int]
"""Key, time, number of source rows."""


@dataclass
class State:
    """Numbers by key and piece of time, per step."""

    pieces: list[dict[tuple[int, int], int]]
    late: int = 0
    out: Counter[Row] = field(default_factory=Counter)
    offset: int = 0
    """Batches of the input that were read."""


class Engine:
    """Runs a chain, as Spark and the slots do."""

    def __init__(self, nodes: list[Node], batches: list[list[tuple[int, Row]]], *, chained: bool = True) -> None:
        self.nodes, self.batches = nodes, batches
        self.after: dict[str, tuple[str, ...]] = {}
        for number, node in enumerate(nodes):
            direct = {str(each) for each in node.inputs if each >= 0}
            every = direct.union(*(self.after.get(each, ()) for each in direct))
            if every and chained:
                self.after[str(number)] = tuple(sorted(every))
        self.log = BatchLog(delays_ms=self.delays(), after=self.after)
        self.state = State([{} for _ in nodes])
        self.parallelism = 2
        self.records: list[BatchRecord] = []
        self.base: CheckpointMetadata | None = None
        self.committed = copy.deepcopy(self.state)
        self.last: tuple[BatchParameters, set[str], int] | None = None
        self.batch = -1

    def delays(self) -> dict[str, tuple[int | None, ...]]:
        # On a log without chains, a step has to have a delay.
        return {str(n): tuple(d if d is not None or self.after else 0 for d in node.delays) for n, node in enumerate(self.nodes)}

    def run(self, *, drain: bool = False, ticks: bool = True) -> None:
        """Run one batch: the next rows of the sources, and ticks where timers are due, unless they are not asked for."""
        ticked = {uid for uid in self.log.delays_ms if ticks and self.log.tick_due(uid, 0, drain=drain)}
        self.log.commit_current()
        self.batch += 1
        parameters = self.log.next_parameters(self.batch, 1000, drain=drain)
        self.committed = copy.deepcopy(self.state)
        self._record(parameters)
        self._run(parameters, ticked)

    def _run(self, parameters: BatchParameters, ticked: set[str]) -> None:
        self.last = parameters, ticked, self.state.offset
        self.log.begin(parameters)
        rows = self.batches[self.state.offset] if self.state.offset < len(self.batches) else []
        self.state.offset += 1
        streams: dict[int, list[Row]] = {}
        for source, row in rows:
            streams.setdefault(source, []).append(row)
        for number, node in enumerate(self.nodes):
            streams[number] = self._step(number, node, [streams.get(each, []) for each in node.inputs], parameters, ticked)
        self.state.out.update(streams[len(self.nodes) - 1])

    def _step(self, number: int, node: Node, inputs: list[list[Row]], parameters: BatchParameters, ticked: set[str]) -> list[Row]:
        uid, pieces, emitted = str(number), self.state.pieces[number], list[Row]()
        watermark = parameters.watermarks[uid]
        watermark = -END_OF_TIME if watermark is None else watermark
        for slot in range(self.parallelism):
            mine = [[row for row in rows if row[0] % node.keys % self.parallelism == slot] for rows in inputs]
            if not any(mine) and uid not in ticked:
                continue
            emitted += self._fire(pieces, slot, watermark)
            for key, at, count in (row for rows in mine for row in rows):
                piece = node.piece(at)
                if (node.size and piece - 1 <= watermark) or (not node.size and at <= watermark):
                    self.state.late += 1
                else:
                    place = (key % node.keys, piece)
                    pieces[place] = pieces.get(place, 0) + count
                    emitted += [(place[0], at, count)] if node.forwards else []
            emitted += self._fire(pieces, slot, watermark)
            seen = [max((at for _, at, _ in rows), default=None) for rows in (*mine, [])]
            timer = min((piece - 1 for key, piece in pieces if key % self.parallelism == slot), default=None)
            told = ack(parameters.batch, uid=uid, slot=slot, seen=seen[0], event=timer, key=f"{uid}-{slot}")
            assert self.log.acknowledge(cast("Any", SimpleNamespace(**{**_fields(told), "second_max_event_time_ms": seen[1]})))
        return emitted

    def _fire(self, pieces: dict[tuple[int, int], int], slot: int, watermark: int) -> Iterator[Row]:
        for key, piece in sorted(pieces):
            if key % self.parallelism == slot and piece - 1 <= watermark:
                yield key, piece, pieces.pop((key, piece))

    def _record(self, parameters: BatchParameters) -> None:
        record = BatchRecord(
            attempt=1,
            batch=parameters.batch,
            previous=self.log.committed,
            processing_time_ms=parameters.processing_time_ms,
            watermarks=dict(parameters.watermarks),
            max_event_times=self.log.event_times.of_input(0),
            second_max_event_times=self.log.event_times.of_input(1),
            files=b"",
        )
        self.records.append(decode_document(encode_document("batch", record), "batch", BatchRecord, path="record"))

    def crash(self) -> None:
        """Another driver runs the last batch again, from its record."""
        if self.last is None:
            return
        parameters, ticked, _ = self.last
        self.state = copy.deepcopy(self.committed)
        lineage = self._lineage(self.records)
        self.log = batch_log(lineage, self.delays(), self.after)
        self._report()
        recovered = recovered_batch(lineage, self.log)
        assert recovered == parameters
        self._run(recovered, ticked)

    def restore(self) -> None:
        """Another driver starts from a checkpoint of the last batch, and knows nothing else."""
        self.log.commit_current()
        metadata = CheckpointMetadata(
            job_id="j",
            job_name="j",
            checkpoint_id=1,
            kind="checkpoint",
            attempt=1,
            batch=self.log.committed,
            max_parallelism=1,
            parallelism=1,
            created_ms=0,
            duration_ms=0,
            slots=(SlotState(slot=0, first=0, last=0, backend="memory", operator_batches={}),),
            watermarks=self.log.event_times.of_input(0),
            second_watermarks=self.log.event_times.of_input(1),
            batch_watermarks=self.log.chained_watermarks(),
        )
        self.base, self.records, self.last = decode_metadata(encode_metadata(metadata), path="checkpoint"), [], None
        before = {uid: self.log.watermark(uid) for uid in self.log.delays_ms}
        self.log = batch_log(self._lineage([]), self.delays(), self.after)
        self._report()
        assert {uid: self.log.watermark(uid) for uid in self.log.delays_ms} == before

    def rescale(self) -> None:
        """All slots are replaced."""
        self.log.commit_current()
        self.log.reset_slots()
        self.parallelism = 3 - self.parallelism
        self.last = None
        self._report()

    def _lineage(self, records: list[BatchRecord]) -> Any:
        base = SimpleNamespace(metadata=self.base) if self.base is not None else None
        committed = records[-1].previous if records else self.log.committed
        return SimpleNamespace(base=base, records=tuple(records), committed_batch=committed, changelogs=())

    def _report(self) -> None:
        for number, pieces in enumerate(self.state.pieces):
            for slot in range(self.parallelism):
                timer = min((piece - 1 for key, piece in pieces if key % self.parallelism == slot), default=None)
                self.log.timers[str(number), slot] = (timer, None)

    def until_idle(self, *, drain: bool = False) -> None:
        """Run batches until no timer is due."""
        while any(self.log.tick_due(uid, 0, drain=drain) for uid in self.log.delays_ms):
            self.run(drain=drain)
            assert self.batch < 500, "ticks never end"


def _fields(told: Any) -> dict[str, Any]:
    return {name: getattr(told, name) for name in told.__slots__}


def expected(nodes: list[Node], rows: list[tuple[int, Row]], *, drained: bool) -> Counter[Row]:
    """What the last step emits."""
    emitted: list[Counter[Row]] = []
    marks: list[int | None] = []
    for node in nodes:
        inputs = [list(emitted[each].elements()) if each >= 0 else [row for source, row in rows if source == each] for each in node.inputs]
        own = [
            max((at for _, at, _ in mine), default=None) if delay is not None else END_OF_TIME
            for mine, delay in zip(inputs, node.delays, strict=True)
        ]
        bounds = [None if seen is None else seen - (delay or 0) for seen, delay in zip(own, node.delays, strict=True)]
        bounds += [marks[each] for each in node.inputs if each >= 0]
        mark = END_OF_TIME if drained else None if None in bounds else min(bound for bound in bounds if bound is not None)
        pieces: dict[tuple[int, int], list[int]] = {}
        for key, at, count in (row for mine in inputs for row in mine):
            pieces.setdefault((key % node.keys, node.piece(at)), []).append(count)
        marks.append(mark)
        fired = [(key, piece, sum(counts)) for (key, piece), counts in pieces.items() if mark is not None and piece - 1 <= mark]
        emitted.append(Counter(fired))
        emitted[-1].update((key % node.keys, at, count) for mine in inputs for key, at, count in mine if node.forwards)
    return emitted[-1]


@st.composite
def chains(draw: st.DrawFn) -> tuple[list[Node], list[list[tuple[int, Row]]]]:
    """Two or three steps after each other, some with a source as a second input, and the batches of the sources."""
    row = st.tuples(st.sampled_from([-1, -2]), st.tuples(st.integers(0, KEYS - 1), st.integers(0, 60), st.just(1)))
    batches = draw(st.lists(st.lists(row, max_size=5), min_size=1, max_size=6))
    # Rows are as late as they are: only what steps emit to each other is on trial.
    disorder, reached = 1, dict[int, int]()
    for batch in batches:
        disorder = max([disorder, *(reached.get(source, at) - at + 1 for source, (_, at, _) in batch)])
        for source, (_, at, _) in batch:
            reached[source] = max(reached.get(source, at), at)
    nodes: list[Node] = []
    for number in range(draw(st.integers(2, 3))):
        first = number - 1 if number else -1
        delay = st.sampled_from([None, 0, 7]) if number else st.just(disorder)
        inputs, delays = [first], [draw(delay)]
        if draw(st.booleans()):
            inputs, delays = [first, -2], [delays[0], disorder]
        size, later, keys = draw(st.sampled_from([0, 5, 20])), draw(st.sampled_from([1, 13])), draw(st.integers(1, KEYS))
        nodes.append(Node(size, later, tuple(inputs), tuple(delays), keys, draw(st.booleans())))
    return nodes, batches


EVENTS = st.lists(st.sampled_from(["batch", "batch", "batch", "no tick", "crash", "restore", "rescale", "idle"]), max_size=14)


def live(engine: Engine, events: list[str]) -> None:
    """Let things happen, then read the rest of the input."""
    for event in events:
        if event == "idle":
            engine.until_idle()
        elif event == "batch":
            engine.run()
        elif event == "no tick":
            engine.run(ticks=False)
        else:
            getattr(engine, event)()
    while engine.state.offset < len(engine.batches):
        engine.run()


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(chains(), EVENTS, st.booleans())
def test_nothing_that_a_step_emits_is_late_in_the_next_one(
    chain: tuple[list[Node], list[list[tuple[int, Row]]]], events: list[str], drain_between: bool
) -> None:
    """First what has passed the watermarks comes out, then the drain brings the rest, also if it begins when a batch is planned already."""
    nodes, batches = chain
    rows = [each for batch in batches for each in batch]
    engine = Engine(nodes, batches)
    live(engine, events)
    if "no tick" not in events or not drain_between:
        engine.until_idle()
        assert engine.state.out == expected(nodes, rows, drained=False)
    else:
        engine.run(drain=True, ticks=False)
    engine.until_idle(drain=True)
    assert engine.state.late == 0
    assert engine.state.out == expected(nodes, rows, drained=True)
    assert not any(engine.state.pieces)


@pytest.mark.parametrize("drained", [False, True])
def test_the_engine_finds_steps_that_do_not_wait_for_each_other(drained: bool) -> None:
    """The second step sees rows ahead of the first one's timers, or gets the end of time with them."""
    nodes = [Node(5, 0, (-1,), (20,), 1, forwards=not drained), Node(20, 0, (0,), (0,), 1)]
    batches = [[(-1, (0, 10, 1))], [(-1, (0, 40, 1))], [(-1, (0, 90, 1))], [(-1, (0, 95, 1))]]
    rows = [each for batch in batches for each in batch]
    outcomes = []
    for chained in (True, False):
        engine = Engine(nodes, batches, chained=chained)
        live(engine, [])
        engine.until_idle(drain=drained)
        outcomes.append((engine.state.late, engine.state.out == expected(nodes, rows, drained=drained)))
    assert outcomes[0] == (0, True)
    assert outcomes[1] != (0, True)
