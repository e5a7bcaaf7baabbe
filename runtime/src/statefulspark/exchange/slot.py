"""A slot: the long-lived process that owns a contiguous range of key groups, one store and one memory budget.

It registers with the coordinator (which gives it an epoch and what to restore), restores, serves exchanges, takes snapshots in the
background, and lives until it is told to stop, is fenced by a newer incarnation, or cannot reach its coordinator any more.
"""

from __future__ import annotations

import base64
import gc
import os
import socket
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import psutil

from statefulspark import failpoints
from statefulspark.checkpoint.restore import RestorePlan, restore_slot
from statefulspark.checkpoint.upload import SlotUploader
from statefulspark.errors import CorruptDataError, FencedError, NotRestorableError, UnavailableError
from statefulspark.exchange.allocator import AllocatorWatch
from statefulspark.exchange.config import SlotConfig
from statefulspark.exchange.flight import FlightPeer, FlightService, error_body
from statefulspark.exchange.operators import OperatorSlot
from statefulspark.exchange.rocksdb_slot import rocksdb_options
from statefulspark.exchange.service import SlotService
from statefulspark.exchange.tuning import MemoryTuning, TunedMemory
from statefulspark.exchange.vitals import SlotVitals
from statefulspark.exchange.working import WorkingFolder, open_working_folder
from statefulspark.keygroups import key_group_range
from statefulspark.process.operator import StepSpec
from statefulspark.state.rocksdb import RocksDBStore
from statefulspark.state.stores import open_store as open_kind
from statefulspark.state.stores import sizes_of
from statefulspark.storage.open import open_store
from statefulspark.storage.os_errors import WORKING_FIELD

STOPPED = "stopped"
DECLINED = "declined"

_ALLOCATOR_STEPS = 48
"""Free memory goes back whenever the process has grown by this part of the managed memory."""


def run_slot(config: SlotConfig, slot: int, executor: str) -> str:
    """Live as slot ``slot`` until told otherwise.

    Returns:
        ``stopped`` after an orderly end, ``declined`` when the coordinator wants this slot started again, perhaps elsewhere.

    Raises:
        StatefulSparkError: the slot cannot restore its state; the keeper decides what next.
    """
    allocator = AllocatorWatch(config.managed_bytes // _ALLOCATOR_STEPS)
    folder = _working_folder(config, slot)
    work = folder.path
    baseline_bytes = psutil.Process().memory_info().rss
    coordinator = FlightPeer(config.coordinator.location, config.coordinator.secret)
    service: SlotService | None = None
    try:
        identity = {"slot": slot, "executor": executor, "host": socket.gethostname(), "pid": os.getpid()}
        answer = coordinator.call("register", identity)
        if answer.get("declined"):
            return DECLINED
        epoch = int(answer["epoch"])
        tuning = MemoryTuning.from_json(answer["memory"]) if answer.get("memory") else None
        config = _tuned(config, tuning)
        try:
            service = _restored_service(config, slot, answer, work, coordinator)
        except (CorruptDataError, NotRestorableError) as error:
            report = {"slot": slot, "epoch": epoch, "base": answer["base"], "error": error_body(error)}
            if coordinator.call("restore-failed", report, timeout_s=120).get("again"):
                return DECLINED  # there is an older checkpoint to restore
            # Trying again elsewhere cannot help, so the job ends with this error and not with Spark's account of a failed task.
            raise
        if isinstance(service.store, RocksDBStore) and service.store.memory.room is not None:
            service.store.memory.room.used = allocator.look
        servers = _listen(config, service)
        _settle_collector()
        where = {"slot": slot, "epoch": epoch, "location": servers[0][1], "unix": servers[1][1].removeprefix("grpc+unix://")}
        coordinator.call("ready", {**where, "timers": service.timers()})
        vitals = _vitals(config, slot, service, tuning, baseline_bytes)
        return _beat(config, {"slot": slot, "epoch": epoch}, coordinator, service, vitals)
    finally:
        if service is not None:
            service.close()
        coordinator.close()
        allocator.close()
        folder.close()


def _working_folder(config: SlotConfig, slot: int) -> WorkingFolder:
    field = WORKING_FIELD if config.local_dir is None else "spec.stateBackend.rocksdb.localDir"
    return open_working_folder(Path(config.local_dir or tempfile.gettempdir()) / "statefulspark" / config.job_name, slot, field=field)


def _restored_service(config: SlotConfig, slot: int, answer: dict[str, Any], work: Path, coordinator: FlightPeer) -> SlotService:
    epoch = int(answer["epoch"])
    plan: RestorePlan = cloudpickle.loads(base64.b64decode(answer["restore"]))
    key_groups = key_group_range(slot, config.parallelism, config.max_parallelism)
    started = time.monotonic()
    sys.path[:0] = [path for path in config.python_path if path not in sys.path and Path(path).exists()]
    options = rocksdb_options(config)
    restored = restore_slot(plan, work / "state", lambda path: open_kind(config.backend, path, options))
    failpoints.reach("slot.restored")
    uploader = SlotUploader(config.store, slot=slot, key_groups=key_groups, backend=config.backend)
    if restored.base_checkpoint_id is not None:
        uploader.seed(restored.base_checkpoint_id, restored.uploaded)
    steps: list[StepSpec] = cloudpickle.loads(config.steps)
    operators = {
        step.uid: OperatorSlot(
            step,
            config=config.for_one_of(len(steps)),
            slot=slot,
            epoch=epoch,
            store=restored.store,
            batch=int(answer["expected"][step.uid]),
            work=work,
            coordinator=coordinator,
        )
        for step in steps
    }
    service = SlotService(
        slot=slot,
        epoch=epoch,
        store=restored.store,
        operators=operators,
        uploader=uploader,
        work=work,
        coordinator=coordinator,
        job_url=config.store.url,
        open_store=lambda url: open_store(url, config.storage),
    )
    service.restore_ms = int((time.monotonic() - started) * 1000)
    return service


def _tuned(config: SlotConfig, tuning: MemoryTuning | None) -> SlotConfig:
    """The configuration with the split that the running job has, which may not be the manifest's any more."""
    if tuning is None:
        return config
    return replace(
        config,
        fixed_per_slot=tuning.managed_bytes,
        write_buffer_ratio=tuning.write_buffer_ratio,
        high_prio_pool_ratio=tuning.high_prio_pool_ratio,
    )


def _vitals(config: SlotConfig, slot: int, service: SlotService, tuning: MemoryTuning | None, baseline_bytes: int) -> SlotVitals:
    store = service.store
    return SlotVitals(
        baseline_bytes=baseline_bytes,
        store=store,
        sizes=sizes_of(store, key_group_range(slot, config.parallelism, config.max_parallelism)),
        operators=service.operators,
        native_metrics=config.native_metrics,
        tuned=TunedMemory(store.memory, tuning) if tuning is not None and isinstance(store, RocksDBStore) else None,
    )


def _listen(config: SlotConfig, service: SlotService) -> list[tuple[FlightService, str]]:
    """Serve on TCP for exchanges of other hosts and on a Unix socket for those of this one."""
    host = config.host if config.host != "auto" else socket.gethostbyname(socket.gethostname())
    socket_folder = tempfile.mkdtemp(prefix="ssp-")  # socket paths are limited to about 100 bytes
    service.socket_folder = Path(socket_folder)
    servers = []
    for location in (f"grpc+tcp://{host}:0", f"grpc+unix://{socket_folder}/s"):
        server = FlightService(location, config.coordinator.secret, service.actions(), service)
        address = location if location.startswith("grpc+unix") else f"grpc+tcp://{host}:{server.port}"
        servers.append((server, address))
    service.servers = [server for server, _ in servers]
    return servers


def _settle_collector() -> None:
    """Keep Python's cycle collector off the long-lived objects of the slot.

    Decoded state is many small objects without cycles; walking them again and again doubles the cost of a row.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _beat(config: SlotConfig, identity: dict[str, Any], coordinator: FlightPeer, service: SlotService, vitals: SlotVitals) -> str:
    """Report signs of life until the coordinator says stop, a newer epoch exists, or nobody answers."""
    parent = os.getppid()
    last_answer = time.monotonic()
    while True:
        if service.stopping.wait(config.heartbeat_s):
            return STOPPED
        try:
            report = {**identity, "restore_ms": service.restore_ms, **vitals.read()}
            answer = coordinator.call("heartbeat", report, timeout_s=5)
            last_answer = time.monotonic()
            if answer.get("stop"):
                return STOPPED
            vitals.follow(answer.get("memory"))
        except FencedError:
            return STOPPED
        except UnavailableError:
            if time.monotonic() - last_answer > config.orphan_s:
                raise
        if os.getppid() != parent:
            os._exit(1)  # the executor is gone: nobody would collect this process
