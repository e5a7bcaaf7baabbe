"""The service of a slot: exchanges of its keyed steps, and snapshots of its store."""

from __future__ import annotations

import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path

import pyarrow as pa

from statefulspark import failpoints
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.digests import FileDigest
from statefulspark.checkpoint.formats.metadata import OperatorFile, SlotState
from statefulspark.checkpoint.formats.operator_state import encode_operator_file
from statefulspark.checkpoint.write.progress import UploadedBytes
from statefulspark.checkpoint.write.upload import SlotUploader, upload_operator_state
from statefulspark.errors import CorruptDataError, FencedError, InvalidInputError, StatefulSparkError, UnavailableError
from statefulspark.rpc.codec import Action
from statefulspark.rpc.flight import ExchangeStream, FlightPeer
from statefulspark.rpc.listener import FlightListener
from statefulspark.rpc.messages.batches import Acknowledge, ExchangeRequest
from statefulspark.rpc.messages.slot_control import CancelSnapshot, NextBatch, Ping, Settle, Snapshot, Stop, Undo
from statefulspark.rpc.messages.slots import SnapshotDone, SnapshotPart
from statefulspark.rpc.messages.state_queries import ReadState, StateEntries
from statefulspark.slot.keyed_step import KeyedStep
from statefulspark.slot.snapshot_turns import SnapshotTurns
from statefulspark.slot.state_queries import StateQueries
from statefulspark.slot.store_gate import StoreGate
from statefulspark.slot.sweeps import SlotSweeps
from statefulspark.state.operator.entries import OperatorEntry
from statefulspark.state.store.base import KeyValueStore
from statefulspark.state.store.split_store import rocksdb_part
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.cancellation import Cancellation
from statefulspark.storage.local.os_errors import disk_error, local_disk

_SNAPSHOT_WAIT_S = 30.0
"""A snapshot waits this long for cancelled exchanges, and for an earlier one that still reads the store."""
_EARLIER_SNAPSHOT_WAIT_S = 1.0
"""A snapshot waits this long for an earlier one that was canceled and still writes or uploads: batches wait until all slots have answered."""
_CANCEL_WAIT_S = 5.0
"""The coordinator deletes what was uploaded once the slots have answered, and once more later."""


class SlotService:
    """One incarnation of a slot while it is ready. The store holds the last committed batch while the next one runs."""

    def __init__(  # noqa: PLR0913  what a slot is made of, by name
        self,
        *,
        slot: int,
        epoch: int,
        store: KeyValueStore,
        keyed_steps: dict[str, KeyedStep],
        uploader: SlotUploader,
        work: Path,
        coordinator: FlightPeer,
        job_store: ObjectStore,
        open_store: Callable[[str], ObjectStore],
        async_snapshots: bool = True,
        left_behind: Iterable[OperatorEntry] = (),
    ) -> None:
        self.stopping = threading.Event()
        self.keep_files: bool | None = None
        """Of the request to stop: True if other slots follow, which use the files of this one; False if the job has ended. None before it."""
        self.servers: list[FlightListener] = []
        self.restore_ms = 0
        self._slot = slot
        self._epoch = epoch
        self.store = store
        self._gate = StoreGate()
        self.keyed_steps = keyed_steps
        self._sweeps = SlotSweeps(store, self._gate, keyed_steps)
        self._queries = StateQueries(self._gate, keyed_steps, self._settle_early)
        self._uploader = uploader
        self._work = work
        self._coordinator = coordinator
        self._job_store = job_store
        self._open_store = open_store
        self._async_snapshots = async_snapshots
        self._left_behind = tuple(left_behind)
        """Broadcast state of steps that the job no longer has: each checkpoint holds it, as the store does their keyed state."""
        # Begun by `snapshot`, ended by its thread.
        self._snapshots = SnapshotTurns()

    def actions(self) -> tuple[Action, ...]:
        """Requests that the driver and exchange tasks may send to a slot, besides exchanges."""
        return (
            Ping.served_by(self.ping),
            Settle.served_by(self.settle),
            Undo.served_by(self.undo),
            Snapshot.served_by(self.snapshot),
            CancelSnapshot.served_by(self.cancel_snapshot),
            ReadState.served_by(self.read_state),
            Stop.served_by(self.stop),
        )

    def output_schema(self, request: ExchangeRequest) -> pa.Schema:
        """Schema of a step's results."""
        self._check_epoch(request.epoch)
        return self.keyed_steps[request.uid].step.result_schema

    def exchange(self, request: ExchangeRequest, stream: ExchangeStream) -> None:
        """Run one batch of one step and acknowledge it to the coordinator."""
        self._check_epoch(request.epoch)
        with local_disk(self._work):
            self._exchange(request, stream)

    def _exchange(self, request: ExchangeRequest, stream: ExchangeStream) -> None:
        keyed_step = self.keyed_steps[request.uid]
        batch, expected = request.batch, request.run.expected
        with keyed_step.exchange(), keyed_step.logs():
            with keyed_step.held():
                can_hold = self._async_snapshots and keyed_step.can_hold(batch, expected)
                with self._gate.turn(can_hold=can_hold) as store_is_free:
                    keyed_step.begin(batch, expected, request.run.processing_time_ms, hold=not store_is_free)
                failpoints.reach("slot.begun")
                ack = keyed_step.run(request, stream)
            # The step is free meanwhile: the coordinator may be waiting for it in a call to this slot, and takes no acknowledgement before.
            self._acknowledge(keyed_step, ack)

    def _acknowledge(self, keyed_step: KeyedStep, ack: Acknowledge) -> None:
        """Send the acknowledgement to the coordinator. If it may not have taken this run, another run's changelog may count, so the changes are dropped.

        Where they are committed already, only the answer was lost.
        """
        try:
            self._coordinator.call(ack)
            failpoints.reach("slot.acknowledged")
        except BaseException:
            with keyed_step.held(), self._gate.turn(can_hold=True), suppress(FencedError):
                keyed_step.undo(ack.batch)
            raise

    def _check_epoch(self, epoch: int) -> None:
        if epoch != self._epoch:
            raise FencedError(f"slot {self._slot} is at epoch {self._epoch}, the caller expects epoch {epoch}")
        if self.stopping.is_set():
            raise FencedError(f"slot {self._slot} is ending: {self.damage() or 'it was told to stop'}")

    def ping(self, request: Ping) -> None:
        """Answer while this incarnation serves."""
        self._check_epoch(request.epoch)

    def stop(self, request: Stop) -> None:
        """End in good order."""
        self._check_epoch(request.epoch)
        self.keep_files = request.keep_files
        self.stopping.set()

    def damage(self) -> CorruptDataError | None:
        """Damage that was found in the files of the store; None if there is none. Only a slot that restores its state gets rid of it."""
        rocksdb = rocksdb_part(self.store)
        return rocksdb.damage if rocksdb is not None else None

    def uploaded_files(self) -> dict[str, FileDigest]:
        """Digests of immutable files of the store, by name, as far as they are in a checkpoint."""
        return self._uploader.digests()

    def sweep(self, processing_time_ms: int) -> None:
        """Remove expired entries while no batch runs, so that a slot without rows gets rid of them too.

        Args:
            processing_time_ms: of the job's last committed batch: what has expired by then is seen by no later batch.
        """
        self._sweeps.run(processing_time_ms)

    def settle(self, request: Settle) -> None:
        """Write what the last batch changed, which is committed, while no rows of the next one are here yet.

        Only where nothing is in the way; otherwise the next batch does it when it begins.
        """
        self._check_epoch(request.epoch)
        for uid, expected in request.expected.items():
            self._settle_early(uid, expected, request.next_batch)
        self._sweeps.begin()

    def _settle_early(self, uid: str, expected: int, next_batch: NextBatch | None = None) -> bool:
        """Return False if something was in the way."""
        keyed_step = self.keyed_steps[uid]
        if not keyed_step.lock.acquire(blocking=False):
            return False
        try:
            with self._gate.turn(can_hold=True) as store_is_free:
                if store_is_free:
                    keyed_step.settle_early(expected, next_batch)
                return store_is_free
        finally:
            keyed_step.lock.release()

    def read_state(self, request: ReadState) -> StateEntries:
        """Read the entries of one key for a user, as committed batches have left them.

        Raises:
            InvalidInputError: The slot does not run the step.
            UnavailableError: Batches or a snapshot keep the state busy.
        """
        self._check_epoch(request.epoch)
        with local_disk(self._work):
            return self._queries.read(request)

    def undo(self, request: Undo) -> None:
        """Drop what a finished batch changed, because another attempt's changelogs of it count."""
        self._check_epoch(request.epoch)
        for keyed_step in self.keyed_steps.values():
            # In turn, because it deletes what a query may be reading.
            with keyed_step.held(), self._gate.turn(can_hold=True):
                keyed_step.undo(request.batch)

    def snapshot(self, request: Snapshot) -> None:
        """Start a snapshot of the committed state; flush, links, writing and upload run in the background.

        Settling writes the changes of the last batch, which the next batch would do otherwise. From then on until the content of the snapshot is
        fixed (hard links, frozen dicts) nobody writes the store: what batches commit meanwhile is held over it. Without asynchronous
        snapshots they wait until its files are written.

        One snapshot runs at a time, until it is uploaded: the disk or the storage of one that was canceled may be slow, and threads, frozen dicts
        and uploads must not pile up.

        A request that arrives late may meet a batch that has begun since. Settling holds each step's lock, as a batch does, because one that
        ends between the comparison of its number and the write would have its uncommitted changes written.

        Raises:
            FencedError: It was canceled.
            UnavailableError: An earlier snapshot, or a batch that runs, did not end in time.
        """
        self._check_epoch(request.epoch)
        keyed_steps = {uid: self.keyed_steps[uid] for uid in sorted(request.expected)}
        # Before the steps' locks, which batches need.
        cancellation = self._snapshots.begin(request.checkpoint_id, _EARLIER_SNAPSHOT_WAIT_S)
        try:
            with ExitStack() as held:
                # Before the gate, in the order in which a batch takes them.
                for keyed_step in keyed_steps.values():
                    held.enter_context(keyed_step.held(_SNAPSHOT_WAIT_S))
                self._begin_snapshot(request, keyed_steps, cancellation)
        except BaseException:
            self._snapshots.end()
            raise

    def cancel_snapshot(self, request: CancelSnapshot) -> None:
        """Stop the uploads of a snapshot that the coordinator has canceled; returns when they have ended, or after a few seconds."""
        self._check_epoch(request.epoch)
        self._snapshots.cancel(request.checkpoint_id, _CANCEL_WAIT_S)

    def _begin_snapshot(self, request: Snapshot, keyed_steps: dict[str, KeyedStep], cancellation: Cancellation) -> None:
        self._gate.close(timeout_s=_SNAPSHOT_WAIT_S)
        try:
            for uid, keyed_step in keyed_steps.items():
                keyed_step.settle(request.expected[uid])
            operator_state = [entry for keyed_step in keyed_steps.values() for entry in keyed_step.operator.committed()]
            operator_state += self._left_behind
            thread = threading.Thread(
                target=self._snapshot_in_background, args=(request, operator_state, cancellation), name="snapshot", daemon=True
            )
            thread.start()
        except BaseException:
            self._gate.open()
            raise

    def _snapshot_in_background(self, request: Snapshot, operator_state: list[OperatorEntry], cancellation: Cancellation) -> None:
        folder = self._work / f"snapshot-{secrets.token_hex(4)}"
        part, problem, refused = None, None, False
        started = time.monotonic()
        try:
            held_up_ms = 0.0
            try:
                if request.full or rocksdb_part(self.store) is None:
                    for keyed_step in self.keyed_steps.values():
                        keyed_step.backend.sweep_for_full_snapshot()
                snapshot = self.store.begin_snapshot(folder)
                held_up_ms = snapshot.held_up_ms
                if not self._async_snapshots:
                    snapshot.write()
            finally:
                self._gate.open(held_up_ms)
            if self._async_snapshots:
                snapshot.write()
            failpoints.reach("slot.snapshot.linked")
            linked = time.monotonic()
            cancellation.check()
            with self._uploader.progress.of(request.checkpoint_id):
                state, state_bytes = self._upload(folder, request, cancellation)
            cancellation.check()
            operator_file = self._upload_operator_state(request, operator_state)
            failpoints.reach("slot.snapshot.uploaded")
            part = SnapshotPart(
                state=state,
                state_bytes=state_bytes,
                operator_state=operator_file,
                sync_ms=self._gate.delay_ms,
                flush_ms=(linked - started) * 1000,
                upload_ms=(time.monotonic() - linked) * 1000,
                uploaded_bytes=_uploaded_bytes(state, request.checkpoint_id)
                + (operator_file.size_bytes if operator_file is not None else 0),
            )
        except Exception as error:  # noqa: BLE001  the coordinator must hear of every failure
            error = disk_error(error, self._work) or error
            refused = isinstance(error, InvalidInputError)
            problem = str(error) if refused else f"{type(error).__name__}: {error}"
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            # Before the report: the coordinator may ask for the next snapshot before it answers.
            self._snapshots.end()
        if part is None and self.stopping.is_set():
            return  # the coordinator notices that the slot is lost, which is no failure of storage
        try:
            done = SnapshotDone(
                slot=self._slot, epoch=self._epoch, checkpoint_id=request.checkpoint_id, part=part, error=problem, refused=refused
            )
            self._coordinator.call(done)
        except StatefulSparkError:
            return  # the coordinator times the checkpoint out

    def _upload(self, folder: Path, request: Snapshot, cancellation: Cancellation) -> tuple[SlotState, dict[int, int] | None]:
        batches = dict.fromkeys(self.keyed_steps, request.batch)
        base = request.base_checkpoint_id
        if request.savepoint is None:
            number, nonce = request.checkpoint_id, request.nonce
            return self._uploader.upload(
                folder, number, nonce=nonce, base_checkpoint_id=base, step_batches=batches, cancellation=cancellation
            )
        target, name = self._open_store(request.savepoint.url), request.savepoint.name
        shared_root = paths.common_root(self._job_store.url, target.url)
        common = self._open_store(shared_root) if shared_root is not None else None
        return self._uploader.upload_savepoint(
            folder, target, name, base_checkpoint_id=base, step_batches=batches, common=common, cancellation=cancellation
        )

    def _upload_operator_state(self, request: Snapshot, entries: list[OperatorEntry]) -> OperatorFile | None:
        target, folder = self._job_store, paths.checkpoint_folder(request.checkpoint_id)
        if request.savepoint is not None:
            target, folder = self._open_store(request.savepoint.url), request.savepoint.name
        return upload_operator_state(target, folder, self._slot, entries, request.nonce)

    def uploading(self) -> UploadedBytes | None:
        """Progress of a snapshot's upload; None if there is none."""
        return self._uploader.progress.read()

    def take_operator_reports(self) -> dict[str, bytes]:
        """New operator state of the functions after a redistribution: an operator file per uid."""
        reports = {uid: keyed_step.take_operator_report() for uid, keyed_step in self.keyed_steps.items()}
        return {uid: encode_operator_file(report) for uid, report in reports.items() if report is not None}

    def timers(self) -> dict[str, tuple[int | None, int | None]]:
        """Earliest event-time and processing-time timer per uid."""
        return {uid: keyed_step.earliest_timers() for uid, keyed_step in self.keyed_steps.items()}

    def close(self) -> None:
        """Stop serving and close the store. Safe to call once."""
        self.stopping.set()
        self._snapshots.close()
        self._sweeps.close()
        for keyed_step in self.keyed_steps.values():
            keyed_step.close()
        with (
            self._gate.turn(can_hold=False),
            suppress(UnavailableError, CorruptDataError),
        ):  # of the disk: all that is in the store is in storage too
            self.store.close()
        for server in self.servers:
            threading.Thread(target=server.shutdown, daemon=True).start()  # waits for open calls, which die with the process


def _uploaded_bytes(state: SlotState, checkpoint_id: int) -> int:
    """Bytes of the files that were uploaded for this checkpoint, or of what is in ``_metadata``; other files were named again."""
    inline_bytes = state.inline.size_bytes if state.inline is not None else 0
    return inline_bytes + sum(
        ref.size_bytes for ref in state.files if paths.shared_checkpoint_id(ref.path.removeprefix("../")) in (None, checkpoint_id)
    )
