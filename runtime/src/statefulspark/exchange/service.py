"""What a slot serves: exchanges of its operators, and snapshots of its store."""

from __future__ import annotations

import secrets
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from statefulspark import failpoints
from statefulspark.checkpoint import paths
from statefulspark.checkpoint.metadata import SlotState
from statefulspark.checkpoint.upload import SlotUploader
from statefulspark.errors import FencedError, StatefulSparkError
from statefulspark.exchange.flight import Action, ExchangeStream, FlightPeer, FlightService
from statefulspark.exchange.gate import StoreGate
from statefulspark.exchange.operators import OperatorSlot
from statefulspark.state.store import KeyValueStore
from statefulspark.storage.base import ObjectStore


class SlotService:
    """One incarnation of a slot while it is ready. The store holds the last committed batch while the next one runs."""

    def __init__(
        self,
        *,
        slot: int,
        epoch: int,
        store: KeyValueStore,
        operators: dict[str, OperatorSlot],
        uploader: SlotUploader,
        work: Path,
        coordinator: FlightPeer,
        job_url: str,
        open_store: Callable[[str], ObjectStore],
    ) -> None:
        self.stopping = threading.Event()
        self.servers: list[FlightService] = []
        self.socket_folder: Path | None = None
        self.restore_ms = 0
        self._slot = slot
        self._epoch = epoch
        self.store = store
        self._gate = StoreGate()
        self.operators = operators
        self._uploader = uploader
        self._work = work
        self._coordinator = coordinator
        self._job_url = job_url
        self._open_store = open_store

    def actions(self) -> dict[str, Action]:
        """The JSON actions of a slot."""
        return {"ping": self._ping, "settle": self._settle, "snapshot": self._snapshot, "stop": self._stop}

    def output_schema(self, request: dict[str, Any]) -> pa.Schema:
        """Schema of an operator's results."""
        self._check_epoch(request)
        return self.operators[request["uid"]].step.output_schema

    def exchange(self, request: dict[str, Any], stream: ExchangeStream) -> dict[str, Any]:
        """Run one batch of one operator and acknowledge it to the coordinator."""
        self._check_epoch(request)
        operator = self.operators[request["uid"]]
        operator.acquire()
        try:
            batch, expected = int(request["batch"]), int(request["expected"])
            with self._gate.turn(can_hold=operator.can_hold(batch, expected)) as store_is_free:
                operator.begin(batch, expected, int(request["processing_time"]), hold=not store_is_free)
            failpoints.reach("slot.begun")
            ack = operator.run(request, stream)
            self._coordinator.call("ack", ack)
            failpoints.reach("slot.acknowledged")
        finally:
            operator.lock.release()
        return {"rows_out": ack["rows_out"]}

    def _check_epoch(self, request: dict[str, Any]) -> None:
        if int(request["epoch"]) != self._epoch or self.stopping.is_set():
            raise FencedError(f"slot {self._slot} is at epoch {self._epoch}, the caller asks for {request['epoch']}")

    def _ping(self, request: dict[str, Any]) -> dict[str, Any]:
        self._check_epoch(request)
        return {}

    def _stop(self, request: dict[str, Any]) -> dict[str, Any]:
        self._check_epoch(request)
        self.stopping.set()
        return {}

    def _settle(self, request: dict[str, Any]) -> dict[str, Any]:
        """Write what the last batch changed, which is committed, while no rows of the next one are here yet.

        Only where nothing is in the way; otherwise the next batch does it when it begins.
        """
        self._check_epoch(request)
        for uid, expected in request["expected"].items():
            operator = self.operators[uid]
            if operator.lock.acquire(blocking=False):
                try:
                    with self._gate.turn(can_hold=True) as store_is_free:
                        if store_is_free:
                            operator.settle_early(int(expected))
                finally:
                    operator.lock.release()
        return {}

    def _snapshot(self, request: dict[str, Any]) -> dict[str, Any]:
        """Start a snapshot of the committed state; flush, links and upload run in the background.

        Settling writes the changes of the last batch, which the next batch would do otherwise. From then on until the hard links are
        there nobody writes the store: what batches commit meanwhile is held over it.
        """
        self._check_epoch(request)
        started = time.monotonic()
        self._gate.close(timeout_s=30)
        try:
            for uid, expected in request["expected"].items():
                self.operators[uid].settle(int(expected))
            thread = threading.Thread(target=self._snapshot_in_background, args=(request,), name="snapshot", daemon=True)
            thread.start()
        except BaseException:
            self._gate.open()
            raise
        return {"settle_ms": (time.monotonic() - started) * 1000}

    def _snapshot_in_background(self, request: dict[str, Any]) -> None:
        folder = self._work / f"snapshot-{secrets.token_hex(4)}"
        body: dict[str, Any] = {"slot": self._slot, "epoch": self._epoch, "checkpoint_id": request["checkpoint_id"]}
        started = time.monotonic()
        try:
            held_up_ms = 0.0
            try:
                held_up_ms = self.store.snapshot(folder)
            finally:
                self._gate.open(held_up_ms)
            failpoints.reach("slot.snapshot.linked")
            linked = time.monotonic()
            state = self._upload(folder, request)
            failpoints.reach("slot.snapshot.uploaded")
            body |= {
                "state": state.model_dump(mode="json"),
                "sync_ms": self._gate.delay_ms,
                "flush_ms": (linked - started) * 1000,
                "upload_ms": (time.monotonic() - linked) * 1000,
                "uploaded_bytes": _uploaded_bytes(state, int(request["checkpoint_id"])),
            }
        except Exception as error:  # noqa: BLE001  the coordinator must hear of every failure
            body["error"] = f"{type(error).__name__}: {error}"
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        try:
            self._coordinator.call("snapshot-done", body)
        except StatefulSparkError:
            return  # the coordinator times the checkpoint out

    def _upload(self, folder: Path, request: dict[str, Any]) -> SlotState:
        batches = {uid: int(request["batch"]) for uid in self.operators}
        base = request["base_checkpoint_id"]
        if request["savepoint"] is None:
            return self._uploader.upload(folder, int(request["checkpoint_id"]), base_checkpoint_id=base, operator_batches=batches)
        target = self._open_store(request["savepoint"])
        name = request["savepoint_folder"]
        shared_root = paths.common_root(self._job_url, target.url)
        common = self._open_store(shared_root) if shared_root is not None else None
        return self._uploader.upload_savepoint(folder, target, name, base_checkpoint_id=base, operator_batches=batches, common=common)

    def timers(self) -> dict[str, list[int | None]]:
        """Earliest event-time and processing-time timer per uid."""
        return {uid: operator.earliest_timers() for uid, operator in self.operators.items()}

    def close(self) -> None:
        """Stop serving and close the store. Safe to call once."""
        self.stopping.set()
        for operator in self.operators.values():
            operator.close()
        with self._gate.turn(can_hold=False):
            self.store.close()
        for server in self.servers:
            threading.Thread(target=server.shutdown, daemon=True).start()  # waits for open calls, which die with the process
        if self.socket_folder is not None:
            shutil.rmtree(self.socket_folder, ignore_errors=True)


def _uploaded_bytes(state: SlotState, checkpoint_id: int) -> int:
    """Bytes of the files that were uploaded for this checkpoint; the others were named again."""
    return sum(ref.size_bytes for ref in state.files if paths.shared_checkpoint_id(ref.path.removeprefix("../")) in (None, checkpoint_id))
