"""One real slot of a job, under a coordinator of a few lines."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa

from statefulspark.checkpoint.formats.records import ChangelogRef
from statefulspark.checkpoint.write.upload import SlotUploader
from statefulspark.exchange.config import SlotConfig
from statefulspark.exchange.endpoint import Endpoint
from statefulspark.keygroups import KeyGroupRange
from statefulspark.process.api.functions import KeyedProcessFunction
from statefulspark.process.runner.function_runner import StepSpec
from statefulspark.rpc.flight import FlightPeer
from statefulspark.rpc.listener import FlightListener
from statefulspark.rpc.messages.batches import Acknowledge, BatchRun, ExchangeRequest
from statefulspark.rpc.messages.slot_control import NextBatch, SavepointFolder, Settle, Snapshot
from statefulspark.rpc.messages.slots import (
    Changelogs,
    ChangelogsAnswer,
    RegisterState,
    RegisterStateAnswer,
    Reopened,
    ReopenedAnswer,
    SnapshotDone,
    SnapshotPart,
)
from statefulspark.slot.keyed_step import KeyedStep
from statefulspark.slot.service import SlotService
from statefulspark.state.api.descriptors import ValueStateDescriptor
from statefulspark.state.registry import StateRegistry
from statefulspark.state.store.base import KeyValueStore, StoreSnapshot
from statefulspark.state.store.heap_store import HeapStore
from statefulspark.state.store.rocksdb_store import RocksDBStore
from statefulspark.state.types.types import Types
from statefulspark.storage.open import open_store
from statefulspark.storage.storage_settings import StorageSettings

UID = "count"
ROWS = pa.schema([("__kh", pa.int64()), ("__src", pa.int32()), ("key", pa.int64())])
OUTPUT = pa.schema([("key", pa.int64()), ("count", pa.int64())])


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

    def begin_snapshot(self, directory: Path) -> StoreSnapshot:
        assert self.go_on.wait(30)
        return super().begin_snapshot(directory)


class SlowHeapStore(HeapStore):
    """Writes a snapshot when it is told to."""

    def __init__(self, _path: Path) -> None:
        super().__init__()
        self.go_on = threading.Event()

    def begin_snapshot(self, directory: Path) -> StoreSnapshot:
        snapshot = super().begin_snapshot(directory)

        def write() -> None:
            assert self.go_on.wait(30)
            snapshot.write()

        return StoreSnapshot(write)


class Coordinator:
    """Numbers states and hears of snapshots."""

    def __init__(self) -> None:
        self.done: list[SnapshotDone] = []
        self.told = threading.Event()
        self.registry = StateRegistry()
        self.ack: Callable[[Acknowledge], None] = lambda _: None
        """What becomes of acknowledgements."""
        self.changelogs: list[ChangelogRef] = []
        """What a slot gets that has missed a batch."""
        actions = [
            Acknowledge.served_by(lambda ack: self.ack(ack)),  # noqa: PLW0108  tests replace it
            Changelogs.served_by(lambda _: ChangelogsAnswer(changelogs=tuple(self.changelogs))),
            Reopened.served_by(lambda _: ReopenedAnswer(attempt=1)),
            RegisterState.served_by(self._register),
            SnapshotDone.served_by(self._snapshot_done),
        ]
        self.service = FlightListener(None, "s3cret", actions)
        self.peer = FlightPeer(self.service.location, "s3cret")

    def _register(self, request: RegisterState) -> RegisterStateAnswer:
        state = self.registry.register(request.uid, request.name, request.kind, request.description)
        return RegisterStateAnswer(state=state, step_states=tuple(self.registry.states()))

    def _snapshot_done(self, done: SnapshotDone) -> None:
        self.done.append(done)
        self.told.set()


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

    def __init__(
        self,
        folder: Path,
        coordinator: Coordinator,
        dirty_bytes: int,
        function: KeyedProcessFunction,
        committed_time_ms: int | None = None,
        *,
        backend: str = "rocksdb",
        async_snapshots: bool = True,
        cache_bytes: int = 0,
        batch: int = -1,
    ) -> None:
        self.coordinator = coordinator
        self.job = open_store((folder / "job").as_uri())
        step = StepSpec(UID, function, pa.schema([("key", pa.int64())]), OUTPUT, ("key",), None, 0, 8)
        config = SlotConfig(
            coordinator=Endpoint(location="", secret=""),
            job_name="job",
            parallelism=1,
            max_parallelism=8,
            steps=cloudpickle.dumps([step]),
            python_path=(),
            store=self.job,
            storage=StorageSettings(),
            backend=backend,
            cache_bytes=cache_bytes,
            dirty_bytes=dirty_bytes,
        )
        kind: Any = SlowStore if backend == "rocksdb" else SlowHeapStore
        self.store: SlowStore = kind(folder / "store")
        work, peer = folder / "work", coordinator.peer
        work.mkdir(exist_ok=True)
        keyed_step = KeyedStep(step, config=config, slot=0, epoch=1, store=self.store, batch=batch, work=work, coordinator=peer)
        keyed_step.backend.reached(committed_time_ms)
        self.service = SlotService(
            slot=0,
            epoch=1,
            store=self.store,
            keyed_steps={UID: keyed_step},
            uploader=SlotUploader(self.job, slot=0, key_groups=KeyGroupRange(0, 7), backend=backend),
            work=work,
            coordinator=peer,
            job_store=self.job,
            open_store=open_store,
            async_snapshots=async_snapshots,
        )

    def run(self, batch: int, keys: list[int], *, now_ms: int = 0) -> list[tuple[int, int]]:
        """Process one batch as the coordinator and an exchange do; returns its results."""
        how = BatchRun(attempt=1, watermark_ms=None, processing_time_ms=now_ms, expected=batch - 1, operator_state="changed")
        stream = Stream(keys)
        self.service.exchange(ExchangeRequest(uid=UID, slot=0, batch=batch, epoch=1, run=how, waited_s=0.0), stream)
        return stream.results

    def settle(self, batch: int, next_batch: NextBatch | None = None) -> None:
        """Tell the slot that ``batch`` is committed, as the coordinator does when it begins the next one."""
        self.service.settle(Settle(epoch=1, expected={UID: batch}, next_batch=next_batch))
        self.end_sweeps()

    def end_sweeps(self) -> None:
        """Wait until the sweeps of the last commit notice have ended, which run in the background."""
        self.service._sweeps._thread.submit(int).result(30)

    def begin_snapshot(self, batch: int, savepoint: str | None = None, *, full: bool = False) -> None:
        self.store.go_on.clear()
        self.coordinator.told.clear()
        request = Snapshot(
            epoch=1,
            checkpoint_id=batch + 1,
            batch=batch,
            expected={UID: batch},
            savepoint=SavepointFolder(url=savepoint, name="sp") if savepoint is not None else None,
            base_checkpoint_id=None,
            full=full or savepoint is not None,
            nonce="0" * 7,
        )
        self.service.snapshot(request)

    def end_snapshot(self) -> SnapshotPart:
        self.store.go_on.set()
        assert self.coordinator.told.wait(30)
        done = self.coordinator.done[-1]
        assert done.part is not None, done.error
        return done.part

    def wait_until_canceled(self) -> None:
        """Wait until the snapshot that runs was told to end."""
        running = self.service._snapshots._running
        assert running is not None
        _wait_for(lambda: running[1].canceled)

    def wait_until_ended(self) -> None:
        """Wait until no snapshot runs."""
        _wait_for(lambda: self.service._snapshots._running is None)

    def uploads(self) -> list[str]:
        """Keys of what snapshots have uploaded."""
        return [info.key for info in self.job.list("") if info.key.startswith(("chk-", "shared/"))]

    def close(self) -> None:
        self.store.go_on.set()
        self.service.close()


def _wait_for(true: Callable[[], bool]) -> None:
    for _ in range(3000):
        if true():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it did not happen within 30 s")


def stored_counts(store: KeyValueStore) -> list[int]:
    """The counts in a store, in ascending order: a value is a version byte and eight bytes."""
    return sorted(int.from_bytes(value[1:], "big") for _, value in store.scan(b"", b"\xff\xff"))


def counts(batches: list[list[int]]) -> list[int]:
    """The oracle: how often each key occurs, in ascending order."""
    keys = [key for batch in batches for key in batch]
    return sorted(keys.count(key) for key in set(keys))
