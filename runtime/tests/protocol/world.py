"""A job without Spark: the real coordinator, real slots over Flight and real storage, under an engine of a few lines that stands for Spark.

What dies here dies by an error raised at one of the named points, in a thread instead of a process, so a life of a job with dozens of
deaths takes a second. The engine keeps what Spark keeps where Spark keeps it: offsets and commits in the local checkpoint location, which
a lost driver loses, and what is committed in a sink that, like Spark's file sink, does not run a batch again that it has.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any

import cloudpickle
import pyarrow as pa

from statefulspark import KeyedProcessFunction, RuntimeContext, Types, ValueStateDescriptor
from statefulspark.checkpoint.inspect import read_state
from statefulspark.checkpoint.lineage import begin_attempt, ensure_job
from statefulspark.checkpoint.location import LocationFiles
from statefulspark.checkpoint.state_mirror import StateMirror
from statefulspark.errors import StatefulSparkError
from statefulspark.exchange import slot as slot_module
from statefulspark.exchange.config import Endpoint, ExchangeConfig, SlotConfig
from statefulspark.exchange.flight import FlightPeer
from statefulspark.exchange.service import SlotService
from statefulspark.exchange.task import KEY_HASH, SOURCE, exchange_partition
from statefulspark.job.checkpoints import CheckpointTimes, Request
from statefulspark.job.controls import CheckpointInfo
from statefulspark.job.coordinator import Coordinator, Listen
from statefulspark.job.dry_runs import DryRuns
from statefulspark.job.durable import DurableJob
from statefulspark.job.recovery import batch_log, recovered_batch, restore_location, state_registry
from statefulspark.job.slots import SlotTable
from statefulspark.job.tuning import MemoryTuner
from statefulspark.keygroups import key_group_range, slot_of
from statefulspark.process.step import StepSpec
from statefulspark.state.layout import key_group_of
from statefulspark.storage.open import open_store
from statefulspark.storage.settings import StorageSettings

UID = "count"
KEY_GROUPS = 8
DELAY_MS = 5
LATER_MS = 40
_SECRET = "s"

Row = tuple[str, int]
"""Key and event time."""
OUTPUT = pa.schema([("key", pa.string()), ("kind", pa.string()), ("n", pa.int64()), ("watermark", pa.int64()), ("now", pa.int64())])
_ROW = pa.schema([("key", pa.string()), ("at", pa.int64())])
_INPUT = pa.schema([(KEY_HASH, pa.int64()), (SOURCE, pa.int32()), *_ROW])


class Died(Exception):  # noqa: N818  not an error: it is what the test wants
    """Whoever reached this point is gone."""


class Count(KeyedProcessFunction):
    """Numbers the rows of a key, and sets a timer for each. What it gives out names the parameters of the batch too."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.number = runtime_context.get_state(ValueStateDescriptor("number", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        number = (self.number.value() or 0) + 1
        self.number.update(number)
        ctx.timer_service().register_event_time_timer(value.at + LATER_MS)
        yield self._result(ctx, "row", number)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        yield self._result(ctx, "timer", timestamp)

    def _result(self, ctx: Any, kind: str, number: int) -> tuple[Any, ...]:
        service = ctx.timer_service()
        return ctx.get_current_key(), kind, number, service.current_watermark(), service.current_processing_time()


STEP = StepSpec(
    uid=UID,
    function=Count(),
    input_schema=_ROW,
    output_schema=OUTPUT,
    key_columns=("key",),
    event_time="at",
    watermark_delay_ms=DELAY_MS,
    max_parallelism=KEY_GROUPS,
)


def key_hash(key: str) -> int:
    """Any hash will do that is always the same."""
    return zlib.crc32(key.encode())


@dataclass(kw_only=True)
class World:
    """What outlives every driver: storage, sink and source; and who is to die next, at which point."""

    folder: Path
    backend: str = "memory"
    input: list[Row] = field(default_factory=list)
    sink: dict[int, list[tuple[Any, ...]]] = field(default_factory=dict)
    """By batch."""
    seen: dict[int, list[tuple[Any, ...]]] = field(default_factory=dict)
    """What each batch gave out the first time it ran to its end."""
    doomed: str | None = None
    deaths: list[str] = field(default_factory=list)
    retained: int = 1
    clock_s: float = 1_000_000.0
    drivers: int = 0

    def __post_init__(self) -> None:
        """Create the job."""
        self.store = open_store(f"file://{self.folder}/storage/job")
        ensure_job(self.store, "job", KEY_GROUPS)

    def reach(self, point: str) -> None:
        """Stands for `failpoints.reach`."""
        if point == self.doomed:
            self.doomed = None
            self.deaths.append(point)
            raise Died(point)

    def clock(self) -> SimpleNamespace:
        """Stands for the module `time` of the coordinator and its schedule of checkpoints: each look at the clock is a second later."""

        def look() -> float:
            self.clock_s += 1.0
            return self.clock_s

        return SimpleNamespace(time=look, monotonic=time.monotonic, sleep=time.sleep)


class Driver:
    """One attempt, with its slots and its local disk."""

    def __init__(self, world: World, parallelism: int, origin: str | None = None) -> None:
        self.world = world
        world.drivers += 1
        self.location = world.folder / f"location-{world.drivers}"
        files = LocationFiles(self.location)
        lineage = begin_attempt(world.store, now_ms=1, origin=origin, open_store=open_store)
        restore_location(files, lineage)
        durable = DurableJob(
            store=world.store,
            open_store=open_store,
            job_id="job",
            name="job",
            max_parallelism=KEY_GROUPS,
            backend=world.backend,
            lineage=lineage,
            savepoint_dir=None,
            retained=world.retained,
        )
        self.coordinator = Coordinator(
            durable=durable,
            batches=batch_log(lineage, {UID: DELAY_MS}),
            states=state_registry(lineage, world.store),
            slots=SlotTable(parallelism, slots_per_executor=None),
            dry_runs=DryRuns(files, StateMirror(self.location), has_state=False),
            listen=Listen(host="127.0.0.1", secret=_SECRET),
            recovered=recovered_batch(lineage),
            times=CheckpointTimes(interval_s=None, timeout_s=60),
            memory=MemoryTuner(
                backend=world.backend,
                budget_bytes=None,
                write_buffer_ratio=0.5,
                high_prio_pool_ratio=0.1,
                arena_bytes=1,
                process_bytes=1 << 30,
            ),
        )
        self.coordinator._service._actions["ack"] = self._acknowledged
        self.slots: dict[int, SlotService] = {}
        self._tick = 0
        self._start_slots(parallelism)

    def _acknowledged(self, body: dict[str, Any]) -> dict[str, Any]:
        """What is acknowledged is durable, whatever happens next."""
        assert self.world.store.head(body["changelog"]["key"]) is not None, "a changelog was acknowledged before it was durable"
        return self.coordinator._ack(body)

    # -- slots -----------------------------------------------------------------------------------------------------------

    def _start_slots(self, parallelism: int) -> None:
        self.parallelism = parallelism
        endpoint = Endpoint(location=self.coordinator.location, secret=_SECRET)
        self._exchange = ExchangeConfig(
            coordinator=endpoint, uid=UID, max_parallelism=KEY_GROUPS, parallelism=parallelism, start_wait_s=5, restore_wait_s=5
        )
        self._slot_config = SlotConfig(
            coordinator=endpoint,
            job_name="job",
            parallelism=parallelism,
            max_parallelism=KEY_GROUPS,
            steps=cloudpickle.dumps([STEP]),
            python_path=(),
            store=self.world.store,
            storage=StorageSettings(),
            backend=self.world.backend,
            local_dir=str(self.world.folder / "slots"),
        )
        for index in range(parallelism):
            self.start_slot(index)

    def start_slot(self, index: int) -> None:
        """End the incarnation that there is, and do what `run_slot` does, without the signs of life."""
        old = self.slots.pop(index, None)
        if old is not None:
            old.close()
        config = self._slot_config
        work = Path(mkdtemp(prefix=f"slot-{index}-", dir=self.world.folder))
        peer = FlightPeer(config.coordinator.location, _SECRET)
        answer = peer.call("register", {"slot": index, "executor": "e", "host": "h", "pid": 1})
        service = slot_module._restored_service(config, index, answer, work, peer)
        servers = slot_module._listen(config, service)
        self.slots[index] = service
        where = {"location": servers[0][1], "unix": servers[1][1].removeprefix("grpc+unix://")}
        peer.call("ready", {"slot": index, "epoch": int(answer["epoch"]), **where, "timers": service.timers()})

    def rescale(self, parallelism: int) -> None:
        """As a running job does between two batches."""
        self.coordinator.pause(5)
        for service in self.slots.values():
            service.close()
        self.slots = {}
        self.coordinator.replace_slots(SlotTable(parallelism, slots_per_executor=None))
        self._start_slots(parallelism)
        self.coordinator.resume()

    def check_stores(self) -> None:
        """No slot holds a key of another one, which would come back to life when slots are merged."""
        for index, service in self.slots.items():
            owned = key_group_range(index, self.parallelism, KEY_GROUPS)
            held = {key_group_of(key) for key, _ in service.store.scan(b"", b"\xff" * 9)}
            assert all(group in owned for group in held), f"slot {index} holds key groups {held}"

    def close(self) -> None:
        """Leave nothing behind but what is in storage."""
        for service in self.slots.values():
            service.close()
        self.coordinator.close()

    # -- Spark -----------------------------------------------------------------------------------------------------------

    def planned(self) -> int:
        """The last batch in the offset log, -1 for none."""
        return _newest(self.location / "offsets")

    def plan(self, rows: int) -> int | None:
        """Plan the next batch over up to ``rows`` more rows, unless the last one is not committed; None without anything to do."""
        batch = self.planned()
        if batch > _newest(self.location / "commits"):
            return batch
        first = _read(self.location / "offsets" / str(batch))["until"] if batch >= 0 else 0
        until = min(len(self.world.input), first + rows)
        tick: int = self.coordinator._tick({"uid": UID})["tick"]
        ticked, self._tick = tick > self._tick, tick
        if until == first and not ticked:
            return None
        _write(self.location / "offsets" / str(batch + 1), {"first": first, "until": until, "ticked": ticked})
        return batch + 1

    def run(self, batch: int, *, deliver: bool = True, commit: bool = True, twice: bool = False) -> None:
        """Run a planned batch to its end, starting slots again that die.

        Args:
            batch: its number.
            deliver: whether the driver lives long enough to commit the sink.
            commit: whether it lives long enough to write its own commit after that.
            twice: whether each partition runs once more, as when a sink evaluates its rows twice.
        """
        world = self.world
        if batch not in world.sink:
            given = [row for each in self._partitions(batch) for row in self._task(batch, each, twice=twice)]
            assert world.seen.setdefault(batch, sorted(given)) == sorted(given), f"batch {batch} gave out something else this time"
            if not deliver:
                return
            world.sink[batch] = given
        if commit:
            _write(self.location / "commits" / str(batch), {})

    def _partitions(self, batch: int) -> Iterator[pa.RecordBatch]:
        plan = _read(self.location / "offsets" / str(batch))
        for slot in range(self.parallelism):
            mine = [row for row in self.world.input[plan["first"] : plan["until"]] if self._slot_of(row) == slot]
            rows: list[tuple[Any, ...]] = [(key_hash(key), 0, key, at) for key, at in mine]
            if plan["ticked"]:
                rows.append((None, slot, None, None))
            if rows:
                yield _batch(rows)

    def _slot_of(self, row: Row) -> int:
        return slot_of(key_hash(row[0]) % KEY_GROUPS, self.parallelism, KEY_GROUPS)

    def _task(self, batch: int, rows: pa.RecordBatch, *, twice: bool) -> list[tuple[Any, ...]]:
        """A task with Spark's retries; a death of the driver passes through."""
        results: list[list[tuple[Any, ...]]] = []
        while len(results) < 1 + twice:
            deaths = len(self.world.deaths)
            try:
                results.append(self._exchanged(batch, rows))
            except StatefulSparkError as error:
                if len(self.world.deaths) == deaths:
                    raise
                if self.world.deaths[-1].startswith("driver."):
                    raise Died(self.world.deaths[-1]) from error
                first = rows.to_pylist()[0]
                self.start_slot(first[SOURCE] if first[KEY_HASH] is None else self._slot_of((first["key"], 0)))
                self.coordinator.poll()
        assert all(sorted(each) == sorted(results[0]) for each in results)
        return results[-1]

    def _exchanged(self, batch: int, rows: pa.RecordBatch) -> list[tuple[Any, ...]]:
        parts = [rows.slice(first, 3) for first in range(0, rows.num_rows, 3)]
        return [tuple(row.values()) for part in exchange_partition(self._exchange, batch, iter(parts)) for row in part.to_pylist()]

    # -- checkpoints -----------------------------------------------------------------------------------------------------

    def checkpoint(self) -> CheckpointInfo | StatefulSparkError:
        """Take a checkpoint now; the query is idle."""
        request = self.coordinator.checkpoints.request(None)
        return self.outcome(request)

    def outcome(self, request: Request) -> CheckpointInfo | StatefulSparkError:
        """Wait for a checkpoint that was asked for."""
        for _ in range(2000):
            self.coordinator.poll()
            if request.done.wait(0.01):
                return request.result[0]
        raise AssertionError("the checkpoint does not end")


def _batch(rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.record_batch([pa.array(column, kind) for column, kind in zip(columns, _INPUT.types, strict=True)], schema=_INPUT)


def _newest(folder: Path) -> int:
    return max((int(path.name) for path in folder.iterdir()), default=-1) if folder.exists() else -1


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def state_of(world: World, name: str) -> list[tuple[Any, Any]]:
    """Key and value in the newest checkpoint."""
    return [(entry.key, entry.value) for entry in read_state(world.store.url, UID, name)]
