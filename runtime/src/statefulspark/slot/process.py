"""A slot: the long-lived process that owns a contiguous range of key groups, one store and one memory budget.

It registers with the coordinator (which gives it an epoch and what to restore), restores, serves exchanges, takes snapshots in the
background, and lives until it is told to stop, is fenced by a newer incarnation, or cannot reach its coordinator any more.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import cloudpickle
import psutil

from statefulspark import failpoints
from statefulspark.checkpoint.restore.local_digests import note_digests
from statefulspark.checkpoint.restore.local_files import LocalFiles, with_local_files
from statefulspark.checkpoint.restore.slot import STORE_FOLDER, RestoredSlot, restore_slot
from statefulspark.checkpoint.write.upload import SlotUploader
from statefulspark.errors import CorruptDataError, FencedError, NotRestorableError, StatefulSparkError, UnavailableError
from statefulspark.exchange.config import SlotConfig
from statefulspark.exchange.task import peer_of
from statefulspark.keygroups import key_group_range
from statefulspark.logs.forwarding import ForwardedRecords
from statefulspark.logs.redaction import hide_secrets
from statefulspark.logs.shared_credentials import environment_secrets
from statefulspark.memory.tuning import MemoryTuning
from statefulspark.process.runner.function_runner import StepSpec
from statefulspark.rpc.flight import FlightPeer
from statefulspark.rpc.listener import FlightListener
from statefulspark.rpc.messages.batches import Wait
from statefulspark.rpc.messages.heartbeat import Heartbeat
from statefulspark.rpc.messages.slots import Ready, Register, RegisterAnswer, RestoreFailed, StoreDamaged
from statefulspark.slot.allocator import AllocatorWatch
from statefulspark.slot.heartbeat import SlotReporter
from statefulspark.slot.keyed_step import KeyedStep
from statefulspark.slot.logs import logs_of_slot
from statefulspark.slot.memory_split import TunedMemory
from statefulspark.slot.operator_state import RestoredOperatorState
from statefulspark.slot.restore_reports import reported_restore
from statefulspark.slot.service import SlotService
from statefulspark.slot.state_stores import store_opener
from statefulspark.state.store.open_store import sizes_of
from statefulspark.state.store.split_store import rocksdb_part
from statefulspark.storage.local.dead_folders import DeadFolders, mark_owner
from statefulspark.storage.local.os_errors import WORKING_FIELD, local_disk, translated
from statefulspark.storage.local.working_folder import WorkingFolder, open_working_folder, private_folder
from statefulspark.storage.open import open_store

STOPPED = "stopped"
DECLINED = "declined"

_STATE_FOLDER = "state"
_REGISTER_TIMEOUT_S = 60.0
"""Twice as long as the coordinator takes to answer that it is not done yet."""

_ALLOCATOR_STEPS = 48
"""Free memory goes back whenever the process has grown by this part of the managed memory."""


def run_slot(config: SlotConfig, slot: int, executor: str) -> str:
    """Live as slot ``slot`` until told otherwise.

    Returns:
        ``stopped`` after an orderly end, ``declined`` when the coordinator wants this slot started again, perhaps elsewhere.

    Raises:
        StatefulSparkError: the slot cannot restore its state; the slot supervisor decides what happens next.
    """
    given = (config.storage.secret_access_key, config.storage.session_token)
    hide_secrets([*environment_secrets(os.environ), *(each for each in given if each is not None)])
    with logs_of_slot(config.logs, slot) as forwarded:
        return _run_slot(config, slot, executor, forwarded)


def _run_slot(config: SlotConfig, slot: int, executor: str, forwarded: ForwardedRecords) -> str:
    allocator = AllocatorWatch(config.managed_bytes // _ALLOCATOR_STEPS)
    folder, dead = _working_folder(config, slot)
    work = folder.path
    baseline_bytes = psutil.Process().memory_info().rss
    coordinator = peer_of(config.coordinator)
    service: SlotService | None = None
    try:
        registered = register(coordinator, Register(slot=slot, executor=executor, host=socket.gethostname(), pid=os.getpid()))
        if registered is None:
            return DECLINED
        epoch = registered.epoch
        config = _tuned(config, registered.memory)
        try:
            with local_disk(work):
                service = restored_service(config, slot, registered, work, coordinator, dead.paths)
            dead.release(slot)
            registered = replace(registered, operator_state=None)  # may be large, and this frame lives as long as the slot
        except (CorruptDataError, NotRestorableError) as error:
            failed = RestoreFailed(slot=slot, epoch=epoch, base=registered.base, error=error)
            if coordinator.call(failed, timeout_s=120).again:
                return DECLINED  # there is an older checkpoint to restore
            # Trying again elsewhere cannot help, so the job ends with this error and not with Spark's account of a failed task.
            raise
        rocksdb = rocksdb_part(service.store)
        if rocksdb is not None and rocksdb.memory.write_buffer_limit is not None:
            rocksdb.memory.write_buffer_limit.used = allocator.look
        location, unix = listen(config, service, slot)
        _settle_collector()
        failpoints.reach("slot.opened")
        try:
            timers, reports = service.timers(), service.take_operator_reports()
            coordinator.call(Ready(slot=slot, epoch=epoch, location=location, unix=unix, timers=timers, operator_state=reports))
            del reports  # as above
        except FencedError:
            return STOPPED  # retired while it restored: the next incarnation restores what counts now
        reporter = _reporter(config, slot, service, registered.memory, baseline_bytes)
        return _send_heartbeats(config, (slot, epoch), coordinator, service, _Heartbeat(reporter, forwarded, dead))
    finally:
        if service is not None:
            service.close()
        coordinator.close()
        allocator.close()
        _leave(folder, dead, service if config.local_recovery else None)


def _leave(folder: WorkingFolder, dead: DeadFolders, service: SlotService | None) -> None:
    """Leave the files of a closed slot to the slots that follow, or delete them: None deletes."""
    dead.release(None)
    if service is not None and service.keep_files is not False:
        if service.keep_files and service.damage() is None:
            note_digests(folder.path, folder.path / _STATE_FOLDER / STORE_FOLDER, service.uploaded_files())
        folder.leave()
        return
    dead.delete_all()
    folder.close()


def register(coordinator: FlightPeer, request: Register) -> RegisterAnswer | None:
    """Register with the coordinator, however long it reads what the slot restores: it answers that much from time to time.

    Returns:
        None if the process is to start again.

    Raises:
        UnavailableError: The coordinator does not answer.
    """
    while isinstance(answer := coordinator.call(request, timeout_s=_REGISTER_TIMEOUT_S), Wait):
        pass
    return answer


def _working_folder(config: SlotConfig, slot: int) -> tuple[WorkingFolder, DeadFolders]:
    """Return a new folder, and those of slots of the job that have died on this machine."""
    field = WORKING_FIELD if config.local_dir is None else "spec.stateBackend.rocksdb.localDir"
    own = private_folder(Path(config.local_dir or tempfile.gettempdir()) / f"statefulspark-{os.geteuid()}", field=field)
    root = own / config.job_name
    with translated(root, field):
        dead = DeadFolders(root, config.store.url, keep=config.local_recovery)  # first: they may have filled the disk
    try:
        folder = open_working_folder(root, slot, field=field)
        try:
            with local_disk(folder.path):
                mark_owner(folder.path, config.store.url)
        except BaseException:
            folder.close()
            raise
    except BaseException:
        dead.release(None)
        raise
    return folder, dead


def restored_service(
    config: SlotConfig, slot: int, registered: RegisterAnswer, work: Path, coordinator: FlightPeer, dead: Sequence[Path] = ()
) -> SlotService:
    """Restore the slot's state as the coordinator's answer to its registration says, and open its functions.

    Files of the checkpoint that are still in ``dead``, folders of slots that have died, are linked instead of downloaded.
    """
    epoch = registered.epoch
    plan = registered.restore.plan(config.store, lambda url: open_store(url, config.storage))
    key_groups = key_group_range(slot, config.parallelism, config.max_parallelism)
    started = time.monotonic()
    sys.path[:0] = [path for path in config.python_path if path not in sys.path and Path(path).exists()]
    open_state = store_opener(config)

    def restore(local: LocalFiles) -> tuple[RestoredSlot, RestoredOperatorState]:
        operator_state = RestoredOperatorState(slot, registered.operator_state, registered.restore.batch)
        with reported_restore(coordinator, slot, epoch, every_s=config.heartbeat_s) as progress:
            restored = restore_slot(
                plan,
                work / _STATE_FOLDER,
                open_state,
                operator_state=operator_state.restores,
                threads=config.restore_threads,
                progress=progress,
                local=local,
            )
        return restored, operator_state

    restored, operator_state = with_local_files(dead, work / _STATE_FOLDER, restore)
    failpoints.reach("slot.restored")
    uploader = SlotUploader(
        config.store, slot=slot, key_groups=key_groups, backend=config.backend, inline_max_bytes=config.inline_max_bytes
    )
    if restored.base_checkpoint_id is not None:
        uploader.seed(restored.base_checkpoint_id, restored.uploaded)
    steps: list[StepSpec] = cloudpickle.loads(config.steps)
    keyed_steps = {
        step.uid: KeyedStep(
            step,
            config=config.for_one_of(len(steps)),
            slot=slot,
            epoch=epoch,
            store=restored.store,
            batch=registered.expected[step.uid],
            work=work,
            coordinator=coordinator,
            attempt=registered.attempt,
            operator_state=operator_state.of(step.uid),
            report_ms=operator_state.report_ms(step.uid),
        )
        for step in steps
    }
    for keyed_step in keyed_steps.values():
        keyed_step.backend.reached(registered.processing_time_ms)
    service = SlotService(
        slot=slot,
        epoch=epoch,
        store=restored.store,
        keyed_steps=keyed_steps,
        uploader=uploader,
        work=work,
        coordinator=coordinator,
        job_store=config.store,
        open_store=lambda url: open_store(url, config.storage),
        async_snapshots=config.async_snapshots,
        left_behind=operator_state.left_by(keyed_steps.keys()),
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


def _reporter(config: SlotConfig, slot: int, service: SlotService, tuning: MemoryTuning | None, baseline_bytes: int) -> SlotReporter:
    store = service.store
    rocksdb = rocksdb_part(store)
    return SlotReporter(
        restore_ms=service.restore_ms,
        baseline_bytes=baseline_bytes,
        store=store,
        sizes=sizes_of(store, key_group_range(slot, config.parallelism, config.max_parallelism)),
        keyed_steps=service.keyed_steps,
        native_metrics=config.native_metrics,
        tuned=TunedMemory(rocksdb.memory, tuning) if tuning is not None and rocksdb is not None else None,
        uploading=service.uploading,
    )


def listen(config: SlotConfig, service: SlotService, slot: int) -> tuple[str, str]:
    """Serve on a Unix socket for exchanges of this host, and over TLS for those of others if there are others.

    Returns:
        The location for others, and the path of the socket.
    """
    own = FlightListener(None, config.coordinator.secret, service.actions(), service, name=slot)
    service.servers = [own]
    location = own.location
    if config.host is not None:
        host = config.host if config.host != "auto" else socket.gethostbyname(socket.gethostname())
        others = FlightListener(host, config.coordinator.secret, service.actions(), service, certificates=config.coordinator.certificates)
        service.servers.append(others)
        location = others.location
    return location, own.location.removeprefix("grpc+unix://")


def _settle_collector() -> None:
    """Keep Python's cycle collector off the long-lived objects of the slot.

    Decoded state is many small objects without cycles; walking them again and again doubles the cost of a row. The collector waits for so many new
    objects that most of what a batch makes is gone before: at 50,000 it took a twelfth of the time of session windows.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 50)


@dataclass(frozen=True, slots=True)
class _Heartbeat:
    """Parts of a heartbeat."""

    reporter: SlotReporter
    forwarded: ForwardedRecords
    dead: DeadFolders


def _send_heartbeats(
    config: SlotConfig,
    incarnation: tuple[int, int],
    coordinator: FlightPeer,
    service: SlotService,
    each: _Heartbeat,
) -> str:
    """Send heartbeats until the coordinator stops the slot, a newer epoch exists, or nobody answers.

    Raises:
        CorruptDataError: The files of the store are damaged. The next slot downloads what this one leaves damaged.
        UnavailableError: The coordinator does not answer.
    """
    slot, epoch = incarnation
    parent = os.getppid()
    last_answer = time.monotonic()
    while True:
        if service.stopping.wait(config.heartbeat_s):
            return STOPPED
        if (damage := service.damage()) is not None:
            with suppress(StatefulSparkError):  # the coordinator notices anyway that the slot has ended
                coordinator.call(StoreDamaged(slot=slot, epoch=epoch, error=damage), timeout_s=5)
            raise damage
        try:
            answer = coordinator.call(
                Heartbeat(slot=slot, epoch=epoch, report=each.reporter.read(), logs=each.forwarded.take()), timeout_s=5
            )
            last_answer = time.monotonic()
            if answer.stop:
                service.keep_files = answer.keep_files
                return STOPPED
            each.reporter.follow(answer.memory)
            if answer.processing_time_ms is not None:
                service.sweep(answer.processing_time_ms)
            each.dead.delete_expired()
        except FencedError:
            return STOPPED
        except UnavailableError:
            if time.monotonic() - last_answer > config.orphan_s:
                raise
        if os.getppid() != parent:
            os._exit(1)  # the executor is gone: nobody would collect this process
