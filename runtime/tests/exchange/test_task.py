"""The exchange task: finds its slot by the first row, waits for a slot that is being started, contacts no slot without rows."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from itertools import chain, cycle, repeat
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.errors import UnavailableError, UserFunctionError
from statefulspark.exchange import task
from statefulspark.exchange.config import ExchangeConfig
from statefulspark.exchange.endpoint import Endpoint
from statefulspark.exchange.task import exchange_partition, slot_of_first_row, spare_collector
from statefulspark.keygroups import key_group_range
from statefulspark.rpc.flight import ExchangeStream
from statefulspark.rpc.listener import FlightListener
from statefulspark.rpc.messages.batches import (
    BatchRun,
    Begin,
    BeginAnswer,
    EmptyPartition,
    ExchangeRequest,
    PartitionRun,
    SlotUnreachable,
    Wait,
)
from statefulspark.rpc.messages.slot_control import Ping

INPUT = pa.schema([("__kh", pa.int64()), ("__src", pa.int32()), ("n", pa.int64())])
OUTPUT = pa.schema([("n", pa.int64())])
RUN = PartitionRun("4", 2, 7)


class Slot:
    """Gives its rows back, or fails at the first of them; notes what it hears of waiting."""

    failing = ""

    def __init__(self) -> None:
        self.waited_s: list[tuple[float, float]] = []

    def output_schema(self, request: ExchangeRequest) -> pa.Schema:
        if self.failing == "before":
            raise UserFunctionError("open raised ValueError", uid="u", key_group=3, user_traceback="ValueError: no")
        return OUTPUT

    def exchange(self, request: ExchangeRequest, stream: ExchangeStream) -> None:
        assert request.run.watermark_ms == 5
        if self.failing:
            next(stream.batches())
            raise UserFunctionError("process_element raised ValueError", uid="u", key_group=3, user_traceback="ValueError: no")
        for batch in list(stream.batches()):
            stream.send(pa.RecordBatch.from_arrays([batch.column("n")], schema=OUTPUT))
        self.waited_s.append((request.waited_s, stream.sender_waited_s))


class Coordinator:
    """Answers `begin`: first "wait", then with the slot."""

    def __init__(self, waits: int) -> None:
        self.waits = waits
        self.reasons: Iterator[str] = repeat("starting")
        self.asked: list[Begin] = []
        self.slot_handler = Slot()
        self.slot = FlightListener(None, "s", [Ping.served_by(lambda _: None)], self.slot_handler)
        self.empty: list[EmptyPartition] = []
        actions = [
            Begin.served_by(self.begin),
            SlotUnreachable.served_by(lambda _: None),
            EmptyPartition.served_by(self.note_empty),
        ]
        self.service = FlightListener(None, "s", actions)

    def note_empty(self, request: EmptyPartition) -> Wait | None:
        self.empty.append(request)
        return Wait(reason="paused") if len(self.empty) <= self.waits else None

    def begin(self, request: Begin) -> BeginAnswer | Wait:
        self.asked.append(request)
        if len(self.asked) <= self.waits:
            return Wait(reason=next(self.reasons))
        run = BatchRun(attempt=1, watermark_ms=5, processing_time_ms=0, expected=-1, operator_state="changed")
        return BeginAnswer(location=self.slot.location, unix="", epoch=1, run=run)

    def config(self, **changes: Any) -> ExchangeConfig:
        endpoint = Endpoint(location=self.service.location, secret="s")
        return ExchangeConfig(**{"coordinator": endpoint, "uid": "u", "max_parallelism": 128, "parallelism": 2, **changes})


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    made = Coordinator(waits=2)
    yield made
    made.service.shutdown()
    made.slot.shutdown()


def rows(key_hash: int | None, source: int, *values: int) -> pa.RecordBatch:
    columns = [pa.array([key_hash] * len(values), pa.int64()), pa.array([source] * len(values), pa.int32()), pa.array(values, pa.int64())]
    return pa.RecordBatch.from_arrays(columns, schema=INPUT)


def test_rows_go_to_the_slot_of_their_key_and_come_back(coordinator: Coordinator) -> None:
    results = list(exchange_partition(coordinator.config(), 9, RUN, iter([rows(127, 0, 1, 2), rows(126, 0, 3)])))
    assert [batch.column(0).to_pylist() for batch in results] == [[1, 2], [3]]
    assert coordinator.asked == [Begin(uid="u", slot=1, batch=9)] * 3
    ((for_slot_s, for_room_s),) = coordinator.slot_handler.waited_s
    assert for_slot_s >= 0.1, "it was told to wait twice"
    assert 0 < for_room_s < 60


def test_large_batches_are_sent_in_pieces(coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Spark hands over at once may be larger than a message should be; every row arrives once, in order."""
    monkeypatch.setattr(task, "_MESSAGE_BYTES", 100)
    results = list(exchange_partition(coordinator.config(), 1, RUN, iter([rows(127, 0, *range(50)), rows(127, 0, 99)])))
    assert [n for batch in results for n in batch.column("n").to_pylist()] == [*range(50), 99]
    assert all(batch.num_rows <= 5 for batch in results)
    assert len(results) >= 10


def test_a_tick_goes_to_the_slot_it_names(coordinator: Coordinator) -> None:
    list(exchange_partition(coordinator.config(), 1, RUN, iter([rows(None, 0, 0)])))
    assert coordinator.asked[-1].slot == 0


def test_a_partition_without_rows_reports_and_contacts_no_slot(coordinator: Coordinator) -> None:
    """The coordinator hears which task of which execution computed it, as soon as the batch has begun."""
    assert list(exchange_partition(coordinator.config(), 1, RUN, iter([rows(1, 0)]))) == []
    assert coordinator.empty == [EmptyPartition(uid="u", batch=1, run=RUN)] * 3
    assert coordinator.asked == []


def test_waiting_for_a_slot_is_bounded(coordinator: Coordinator) -> None:
    coordinator.waits = 1_000_000
    with pytest.raises(UnavailableError, match="slot 1 is still starting"):
        list(exchange_partition(coordinator.config(start_wait_s=0.2), 1, RUN, iter([rows(127, 0, 1)])))


class Clock:
    """Stands for the module `time` of tasks: each wait takes ten seconds."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, _: float) -> None:
        self.now_s += 10.0


def test_a_task_that_has_waited_for_a_restore_outlasts_a_moment_in_which_the_slot_is_about_to_register(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its slot is started, but between two answers of the coordinator it has no number yet."""
    monkeypatch.setattr(task, "time", Clock())
    coordinator.waits = 14
    coordinator.reasons = chain(repeat("restoring", 11), repeat("starting", 3))
    results = list(exchange_partition(coordinator.config(), 1, RUN, iter([rows(127, 0, 1)])))
    assert [batch.column(0).to_pylist() for batch in results] == [[1]]
    assert [waited_s for waited_s, _ in coordinator.slot_handler.waited_s] == [140.0]


def test_after_a_restore_a_task_waits_no_longer_for_a_slot_that_nobody_starts(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits 30 s again, and then leaves its core to the slot."""
    monkeypatch.setattr(task, "time", Clock())
    coordinator.waits = 1_000
    coordinator.reasons = chain(repeat("restoring", 11), repeat("starting"))
    with pytest.raises(UnavailableError, match="slot 1 is still starting after 140 s"):
        list(exchange_partition(coordinator.config(), 1, RUN, iter([rows(127, 0, 1)])))


def test_a_slot_that_restores_and_starts_in_turn_is_not_waited_for_forever(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "time", Clock())
    coordinator.waits = 1_000
    coordinator.reasons = cycle(["restoring", "starting"])
    with pytest.raises(UnavailableError, match="slot 1 is still starting after 1810 s"):
        list(exchange_partition(coordinator.config(), 1, RUN, iter([rows(127, 0, 1)])))


def test_an_error_of_the_rows_before_the_exchange_is_what_the_task_fails_with(coordinator: Coordinator) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield rows(127, 0, 1)
        raise RuntimeError("null key")

    with pytest.raises(RuntimeError, match="null key"):
        list(exchange_partition(coordinator.config(), 1, RUN, broken()))


@pytest.mark.parametrize("failing", ["at its rows", "before"])
def test_a_slot_that_fails_while_rows_are_still_sent_is_heard_and_the_rest_is_not_sent(coordinator: Coordinator, failing: str) -> None:
    """Ending the stream under the sender's hands would abort the whole process, so it fails first and the caller ends the stream."""
    sent = 0

    def endless() -> Iterator[pa.RecordBatch]:
        nonlocal sent
        while True:
            sent += 1
            yield rows(127, 0, *range(1000))

    coordinator.slot_handler.failing = failing
    for _ in range(20):
        with pytest.raises(UserFunctionError, match="in uid 'u', key group 3"):
            list(exchange_partition(coordinator.config(), 9, RUN, endless()))
    stopped_at = sent
    assert list(exchange_partition(coordinator.config(), 9, RUN, iter([]))) == []
    assert sent == stopped_at


@given(st.integers(-(2**63), 2**63 - 1), st.integers(1, 9))
def test_the_slot_of_a_row_owns_its_key_group(key_hash: int, parallelism: int) -> None:
    config = ExchangeConfig(coordinator=Endpoint(location="", secret=""), uid="u", max_parallelism=128, parallelism=parallelism)
    slot = slot_of_first_row(rows(key_hash, 0, 1), config)
    assert key_hash % 128 in key_group_range(slot, parallelism, 128)


def test_the_collector_is_spared_what_is_loaded() -> None:
    """What is there at a worker's first task is out of the collector's sight, once; cycles that come later are collected as ever."""

    class Node:
        me: Node

    spare_collector.cache_clear()
    try:
        spare_collector()
        frozen = gc.get_freeze_count()
        assert frozen > 10_000
        kept = [Node() for _ in range(1000)]
        spare_collector()
        assert gc.get_freeze_count() <= frozen < gc.get_freeze_count() + len(kept)
        node = Node()
        node.me = node
        seen = weakref.ref(node)
        del node
        gc.collect()
        assert seen() is None
    finally:
        gc.unfreeze()
        spare_collector.cache_clear()
