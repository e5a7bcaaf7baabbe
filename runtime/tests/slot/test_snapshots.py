"""A slot's snapshot beside its batches: it holds exactly its batch, and no batch waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime.tests.depth import examples

from statefulspark.checkpoint.formats.metadata import SlotState
from statefulspark.errors import FencedError
from statefulspark.process.api.functions import KeyedProcessFunction
from statefulspark.rpc.messages.batches import BatchRun, ExchangeRequest
from statefulspark.state.api.descriptors import ValueStateDescriptor
from statefulspark.state.api.ttl import StateTtlConfig
from statefulspark.state.store.base import KeyValueStore
from statefulspark.state.store.rocksdb_store import RocksDBStore
from statefulspark.state.times import Time
from statefulspark.state.types.types import Types

from .one_slot import UID, Coordinator, Count, Slot, Stream, counts, stored_counts

BATCHES = st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=6), min_size=3, max_size=6)


class Expires(KeyedProcessFunction):
    """Keeps each key for 100 ms; only full snapshots clean up, or else also the background sweep."""

    def __init__(self, *, background: bool) -> None:
        self.background = background

    def open(self, runtime_context: Any) -> None:
        builder = StateTtlConfig.new_builder(Time.milliseconds(100)).cleanup_full_snapshot()
        descriptor = ValueStateDescriptor("seen", Types.LONG())
        descriptor.enable_time_to_live((builder if self.background else builder.disable_cleanup_in_background()).build())
        self.seen = runtime_context.get_state(descriptor)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        self.seen.update(value.key)


def downloaded(slot: Slot, state: SlotState, folder: Path, checkpoint_id: int = 1) -> RocksDBStore:
    """Open what a snapshot uploaded."""
    folder.mkdir()
    for file in SlotState.model_validate(state).files:
        key = file.path.removeprefix("../")
        slot.job.get_file(key if key.startswith("shared/") else f"chk-{checkpoint_id}/{key}", folder / file.name)
    return RocksDBStore(folder)


@pytest.mark.parametrize("dirty_bytes", [1 << 20, 1])
def test_batches_go_on_while_a_snapshot_is_taken(make_slot: Callable[[int], Slot], tmp_path: Path, dirty_bytes: int) -> None:
    """Three batches run to their end, one of them twice, before the snapshot does; it holds the batch before them."""
    slot = make_slot(dirty_bytes)
    batches = [[1, 2, 2], [2, 3], [1, 2, 4], [3, 3]]
    slot.run(0, batches[0])
    slot.begin_snapshot(0)
    assert slot.run(1, batches[1]) == [(2, 3), (3, 1)]
    assert slot.run(2, [9]) == [(9, 1)]
    assert slot.run(2, batches[2]) == [(1, 2), (2, 4), (4, 1)], "a retry knows nothing of the attempt before"
    assert slot.run(3, batches[3]) == [(3, 2), (3, 3)]
    assert stored_counts(slot.store) == counts(batches[:1])
    part = slot.end_snapshot()
    assert part.sync_ms < 1000
    copied = downloaded(slot, part.state, tmp_path / "copied")
    assert stored_counts(copied) == counts(batches[:1])
    copied.close()
    slot.run(4, [5])
    assert stored_counts(slot.store) == counts(batches)
    slot.begin_snapshot(4)
    slot.end_snapshot()
    assert stored_counts(slot.store) == counts([*batches, [5]])


def test_a_committed_batch_goes_into_the_store_before_the_next_one_comes(make_slot: Callable[[int], Slot]) -> None:
    """The word that a batch is committed is enough; the batch itself can be undone no more."""
    slot = make_slot(1 << 20)
    slot.run(0, [1, 2])
    assert stored_counts(slot.store) == []
    slot.settle(0)
    assert stored_counts(slot.store) == [1, 1]
    with pytest.raises(FencedError):
        slot.run(0, [1, 2])
    assert slot.run(1, [2]) == [(2, 2)]
    assert stored_counts(slot.store) == [1, 1]


def test_late_or_hindered_word_of_a_commit_changes_nothing(make_slot: Callable[[int], Slot]) -> None:
    """Of an earlier batch, while a snapshot is taken, while a batch runs: the store is left alone, and a batch can still be undone."""
    slot = make_slot(1 << 20)
    slot.run(0, [1])
    slot.run(1, [2])
    slot.settle(0)
    assert stored_counts(slot.store) == [1], "batch 1 is not committed yet"
    assert slot.run(1, [3, 3]) == [(3, 1), (3, 2)], "a retry knows nothing of the attempt before"
    slot.begin_snapshot(1)
    slot.run(2, [4])
    slot.settle(2)
    assert stored_counts(slot.store) == counts([[1], [3, 3]]), "the snapshot holds batch 1 and nothing more"
    slot.end_snapshot()
    with slot.service.keyed_steps[UID].lock:
        slot.settle(2)
    assert stored_counts(slot.store) == counts([[1], [3, 3]]), "the keyed step is busy: its next batch does it"
    slot.settle(2)
    assert stored_counts(slot.store) == counts([[1], [3, 3], [4]])


class PausedStream(Stream):
    """Its rows end only when the test lets them."""

    def __init__(self, keys: list[int]) -> None:
        super().__init__(keys)
        self.reading = threading.Event()
        self.go_on = threading.Event()

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from super().batches()
        self.reading.set()
        assert self.go_on.wait(30)


class SignallingLock:
    """A lock that says when somebody wants it."""

    def __init__(self, inner: threading.Lock, wanted: threading.Event) -> None:
        self._inner = inner
        self._wanted = wanted

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        self._wanted.set()
        return self._inner.acquire(blocking, timeout)

    def release(self) -> None:
        self._inner.release()


def test_a_late_snapshot_request_writes_nothing_of_the_batch_that_runs(make_slot: Callable[[int], Slot]) -> None:
    """A request for the batch before meets a running batch, which ends just before its changes would be written: it can still be undone."""
    slot = make_slot(1 << 20)
    slot.run(0, [1])
    keyed_step = slot.service.keyed_steps[UID]
    stream = PausedStream([2, 2])
    how = BatchRun(attempt=1, watermark_ms=None, processing_time_ms=0, expected=0, operator_state="changed")
    request = ExchangeRequest(uid=UID, slot=0, batch=1, epoch=1, run=how, waited_s=0.0)
    batch = threading.Thread(target=slot.service.exchange, args=(request, stream))
    batch.start()
    assert stream.reading.wait(30)
    arrived = threading.Event()
    keyed_step.lock = SignallingLock(keyed_step.lock, arrived)  # type: ignore[assignment]  # the running batch releases the same inner lock
    write = keyed_step.backend.apply_pending

    def write_after_the_batch() -> None:
        arrived.set()
        batch.join(30)
        write()

    keyed_step.backend.apply_pending = write_after_the_batch  # type: ignore[method-assign]  # the worst moment, every time
    late: list[BaseException] = []

    def snapshot() -> None:
        try:
            slot.begin_snapshot(0)
        except FencedError as error:
            late.append(error)

    caller = threading.Thread(target=snapshot)
    caller.start()
    assert arrived.wait(30)
    stream.go_on.set()
    caller.join(30)
    batch.join(30)
    assert stored_counts(slot.store) == [1], "batch 1 is not committed"
    keyed_step.backend.apply_pending = write  # type: ignore[method-assign]
    assert slot.run(1, [3]) == [(3, 1)], "a retry knows nothing of the attempt before"
    assert len(late) == 1


@settings(max_examples=examples(25, 150))
@given(
    batches=BATCHES,
    snapshots=st.lists(st.sampled_from(["begin", "end", ""]), min_size=6, max_size=6),
    settled=st.lists(st.booleans(), min_size=6, max_size=6),
)
def test_every_snapshot_holds_its_batch(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]], snapshots: list[str], settled: list[bool]
) -> None:
    """Snapshots that begin and end between any batches: results and snapshots are the oracle's."""
    coordinator = Coordinator()
    slot = Slot(tmp_path_factory.mktemp("slot"), coordinator, 1 << 20, Count())
    open_since: int | None = None
    try:
        for number, keys in enumerate(batches):
            before = [key for batch in batches[:number] for key in batch]
            expected = [(key, before.count(key) + keys[: place + 1].count(key)) for place, key in enumerate(keys)]
            assert sorted(slot.run(number, keys)) == sorted(expected)
            if settled[number]:
                slot.settle(number)
            if open_since is not None and snapshots[number] == "end":
                assert stored_counts(slot.store) == counts(batches[: open_since + 1])
                slot.end_snapshot()
                open_since = None
            elif open_since is None and snapshots[number] == "begin":
                slot.begin_snapshot(number)
                open_since = number
    finally:
        slot.close()
        coordinator.peer.close()
        coordinator.service.shutdown()


def test_an_idle_slot_removes_what_has_expired(make_slot: Callable[..., Slot], tmp_path: Path) -> None:
    """Without a batch, by the job's last committed processing time; not while a batch or a snapshot is in the way."""
    slot = make_slot(1 << 20, Expires(background=True))
    slot.run(0, [1, 2, 3])
    slot.settle(0)
    slot.service.sweep(99)
    with slot.service.keyed_steps[UID].lock:
        slot.service.sweep(140)
    slot.begin_snapshot(0)
    slot.service.sweep(140)
    copied = downloaded(slot, slot.end_snapshot().state, tmp_path / "copied")
    assert held(copied) == held(slot.store) == 3
    copied.close()
    slot.service.sweep(140)
    assert held(slot.store) == 0


def test_a_full_snapshot_leaves_out_what_has_expired(make_slot: Callable[..., Slot], tmp_path: Path) -> None:
    """With cleanup_full_snapshot a savepoint holds no expired entries; an incremental checkpoint of RocksDB does, as in Flink."""
    slot = make_slot(1 << 20, Expires(background=False))
    slot.run(0, [1, 2, 3])
    slot.run(1, [4], now_ms=100)
    slot.begin_snapshot(1)
    slot.end_snapshot()
    slot.service.sweep(100)
    assert held(slot.store) == 4
    slot.begin_snapshot(1, (tmp_path / "savepoints").as_uri())
    folder = tmp_path / "copied"
    folder.mkdir()
    for file in slot.end_snapshot().state.files:
        (folder / file.name).write_bytes((tmp_path / "savepoints" / "sp" / file.path).read_bytes())
    copied = RocksDBStore(folder)
    assert held(copied) == 1
    copied.close()


@pytest.mark.parametrize(("full", "left"), [(False, 4), (True, 1)])
def test_a_checkpoint_that_is_not_incremental_leaves_out_what_has_expired(
    make_slot: Callable[..., Slot], tmp_path: Path, full: bool, left: int
) -> None:
    """The first checkpoint names no file of an earlier one either way, so only the coordinator knows whether it is full."""
    slot = make_slot(1 << 20, Expires(background=False))
    slot.run(0, [1, 2, 3])
    slot.run(1, [4], now_ms=100)
    slot.begin_snapshot(1, full=full)
    copied = downloaded(slot, slot.end_snapshot().state, tmp_path / "copied", checkpoint_id=2)
    assert held(copied) == held(slot.store) == left
    copied.close()


def test_a_savepoint_right_after_a_restart_leaves_out_what_has_expired(tmp_path: Path, coordinator: Coordinator) -> None:
    """The clock of the last committed batch comes with the registration, and stays when the slot catches up with a batch it missed."""
    before = Slot(tmp_path, coordinator, 1 << 20, Expires(background=False))
    before.run(0, [1, 2, 3])
    before.settle(0)
    before.close()
    slot = Slot(tmp_path, coordinator, 1 << 20, Expires(background=False), committed_time_ms=100)
    assert held(slot.store) == 3
    slot.begin_snapshot(0, (tmp_path / "savepoints").as_uri())
    slot.end_snapshot()
    assert held(slot.store) == 0
    slot.close()


def held(store: KeyValueStore) -> int:
    """Return the number of entries."""
    return len(list(store.scan(b"", b"\xff\xff")))
