"""A slot's snapshot beside its batches: it holds exactly its batch, and no batch waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.checkpoint.metadata import SlotState
from statefulspark.checkpoint.upload import SlotUploader
from statefulspark.errors import FencedError
from statefulspark.exchange.config import Endpoint, SlotConfig
from statefulspark.exchange.flight import FlightPeer, FlightService
from statefulspark.exchange.operators import OperatorSlot
from statefulspark.exchange.service import SlotService
from statefulspark.keygroups import KeyGroupRange
from statefulspark.process.functions import KeyedProcessFunction
from statefulspark.process.operator import StepSpec
from statefulspark.state.descriptors import ValueStateDescriptor
from statefulspark.state.registry import StateRegistry
from statefulspark.state.rocksdb import RocksDBStore
from statefulspark.state.typeinfo import Types
from statefulspark.storage.open import open_store
from statefulspark.storage.settings import StorageSettings

UID = "count"
ROWS = pa.schema([("__kh", pa.int64()), ("__src", pa.int32()), ("key", pa.int64())])
OUTPUT = pa.schema([("key", pa.int64()), ("count", pa.int64())])
BATCHES = st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=6), min_size=3, max_size=6)


class Count(KeyedProcessFunction):
    """Counts rows per key."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[int, int]]:
        counted = (self.count.value() or 0) + 1
        self.count.update(counted)
        yield value.key, counted


class SlowStore(RocksDBStore):
    """Takes a snapshot when it is told to."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.go_on = threading.Event()

    def snapshot(self, directory: Path) -> float:
        assert self.go_on.wait(30)
        return super().snapshot(directory)


class Coordinator:
    """Numbers states and hears of snapshots."""

    def __init__(self) -> None:
        self.done: list[dict[str, Any]] = []
        self.told = threading.Event()
        self.registry = StateRegistry()
        actions = {"ack": lambda _: {}, "register-state": self._register, "snapshot-done": self._snapshot_done}
        self.service = FlightService("grpc+tcp://127.0.0.1:0", "s3cret", actions)
        self.peer = FlightPeer(f"grpc+tcp://127.0.0.1:{self.service.port}", "s3cret")

    def _register(self, body: dict[str, Any]) -> dict[str, Any]:
        return self.registry.register(body["uid"], body["name"], body["kind"], body["description"]).to_json()

    def _snapshot_done(self, body: dict[str, Any]) -> dict[str, Any]:
        self.done.append(body)
        self.told.set()
        return {}


class Stream:
    """One batch of rows, and what came back."""

    def __init__(self, keys: list[int]) -> None:
        columns = [pa.array([7] * len(keys), pa.int64()), pa.array([0] * len(keys), pa.int32()), pa.array(keys, pa.int64())]
        self._rows = pa.RecordBatch.from_arrays(columns, schema=ROWS)
        self.results: list[tuple[int, int]] = []
        self.sender_waited_s = 0.0

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield self._rows

    def send(self, batch: pa.RecordBatch) -> None:
        self.results += zip(*(column.to_pylist() for column in batch.columns), strict=True)


class Slot:
    """The one slot of a job."""

    def __init__(self, folder: Path, coordinator: Coordinator, dirty_bytes: int) -> None:
        self.coordinator = coordinator
        self.job = open_store((folder / "job").as_uri())
        step = StepSpec(UID, Count(), pa.schema([("key", pa.int64())]), OUTPUT, ("key",), None, 0, 8)
        config = SlotConfig(
            coordinator=Endpoint(location="", secret=""),
            job_name="job",
            parallelism=1,
            max_parallelism=8,
            steps=cloudpickle.dumps([step]),
            python_path=(),
            store=self.job,
            storage=StorageSettings(),
            backend="rocksdb",
            cache_bytes=0,
            dirty_bytes=dirty_bytes,
        )
        self.store = SlowStore(folder / "store")
        (folder / "work").mkdir()
        work, peer = folder / "work", coordinator.peer
        operator = OperatorSlot(step, config=config, slot=0, epoch=1, store=self.store, batch=-1, work=work, coordinator=peer)
        self.service = SlotService(
            slot=0,
            epoch=1,
            store=self.store,
            operators={UID: operator},
            uploader=SlotUploader(self.job, slot=0, key_groups=KeyGroupRange(0, 7), backend="rocksdb"),
            work=work,
            coordinator=peer,
            job_url=self.job.url,
            open_store=open_store,
        )

    def run(self, batch: int, keys: list[int]) -> list[tuple[int, int]]:
        """Process one batch as the coordinator and an exchange do; returns its results."""
        request = {"uid": UID, "slot": 0, "epoch": 1, "attempt": 1, "batch": batch, "expected": batch - 1, "processing_time": 0}
        stream = Stream(keys)
        self.service.exchange({**request, "watermark": None}, stream)
        return stream.results

    def settle(self, batch: int) -> None:
        """Tell the slot that ``batch`` is committed, as the coordinator does when it begins the next one."""
        self.service.actions()["settle"]({"epoch": 1, "expected": {UID: batch}})

    def begin_snapshot(self, batch: int) -> None:
        self.store.go_on.clear()
        self.coordinator.told.clear()
        request = {"epoch": 1, "checkpoint_id": batch + 1, "batch": batch, "expected": {UID: batch}, "savepoint": None}
        self.service.actions()["snapshot"]({**request, "savepoint_folder": None, "base_checkpoint_id": None})

    def end_snapshot(self) -> dict[str, Any]:
        self.store.go_on.set()
        assert self.coordinator.told.wait(30)
        body = self.coordinator.done[-1]
        assert "error" not in body, body
        return body

    def close(self) -> None:
        self.store.go_on.set()
        self.service.close()


def stored_counts(store: RocksDBStore) -> list[int]:
    """The counts in a store, in ascending order: a value is a version byte and eight bytes."""
    return sorted(int.from_bytes(value[1:], "big") for _, value in store.scan(b"", b"\xff\xff"))


def counts(batches: list[list[int]]) -> list[int]:
    """The oracle: how often each key occurs, in ascending order."""
    keys = [key for batch in batches for key in batch]
    return sorted(keys.count(key) for key in set(keys))


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    coordinator = Coordinator()
    yield coordinator
    coordinator.peer.close()
    coordinator.service.shutdown()


def downloaded(slot: Slot, state: dict[str, Any], folder: Path) -> RocksDBStore:
    """Open what a snapshot uploaded."""
    folder.mkdir()
    for file in SlotState.model_validate(state).files:
        key = file.path.removeprefix("../")
        slot.job.get_file(key if key.startswith("shared/") else f"chk-1/{key}", folder / file.name)
    return RocksDBStore(folder)


@pytest.fixture
def make_slot(tmp_path: Path, coordinator: Coordinator) -> Iterator[Callable[[int], Slot]]:
    made: list[Slot] = []

    def make(dirty_bytes: int) -> Slot:
        made.append(Slot(tmp_path, coordinator, dirty_bytes))
        return made[-1]

    yield make
    for slot in made:
        slot.close()


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
    body = slot.end_snapshot()
    assert body["sync_ms"] < 1000
    copied = downloaded(slot, body["state"], tmp_path / "copied")
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
    with slot.service.operators[UID].lock:
        slot.settle(2)
    assert stored_counts(slot.store) == counts([[1], [3, 3]]), "the operator is busy: its next batch does it"
    slot.settle(2)
    assert stored_counts(slot.store) == counts([[1], [3, 3], [4]])


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
    slot = Slot(tmp_path_factory.mktemp("slot"), coordinator, 1 << 20)
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
