"""The exchange: streams one Spark partition's Arrow batches to the slot that owns its keys, and the results back.

A partition holds rows of one slot only. A partition without rows contacts no slot: its slot's state does not change in the batch. It
reports to the coordinator, because a batch counts only once all partitions were computed.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Generator, Iterator
from functools import cache
from itertools import chain
from pathlib import Path

import pyarrow as pa

from statefulspark.errors import FencedError, UnavailableError
from statefulspark.exchange.config import ExchangeConfig
from statefulspark.exchange.endpoint import Endpoint
from statefulspark.keygroups import key_group_of_hash, slot_of
from statefulspark.process.output.pieces import pieces
from statefulspark.process.rows.reserved_columns import KEY_HASH, SOURCE
from statefulspark.rpc.flight import ExchangeCall, FlightPeer
from statefulspark.rpc.messages.batches import Begin, BeginAnswer, EmptyPartition, ExchangeRequest, PartitionRun, SlotUnreachable, Wait
from statefulspark.rpc.messages.slot_control import Ping

_POLL_S = 0.05
_MESSAGE_BYTES = 8 << 20
"""Rows sent to a slot at once. Spark hands over up to ``spark.sql.execution.arrow.maxBytesPerBatch``, 64 MiB by default; gRPC ends at 2 GiB."""
_peers: dict[str, FlightPeer] = {}


def peer(endpoint: Endpoint, location: str | None = None) -> FlightPeer:
    """A connection that later batches of the same Python worker use again."""
    where = location or endpoint.location
    key = f"{where}|{endpoint.secret}"
    if key not in _peers:
        if len(_peers) > 64:
            _peers.clear()
        _peers[key] = FlightPeer(where, endpoint.secret, endpoint.certificates)
    return _peers[key]


def peer_of(endpoint: Endpoint) -> FlightPeer:
    """A connection of the caller's own, which closes it."""
    return FlightPeer(endpoint.location, endpoint.secret, endpoint.certificates)


def forget(endpoint: Endpoint, location: str) -> None:
    """Drop a connection that failed."""
    _peers.pop(f"{location}|{endpoint.secret}", None)


@cache
def spare_collector() -> None:
    """Keep Python's cycle collector off what this Python worker has loaded; once per process.

    Spark collects all garbage of a worker after each task. With modules as large as ours and pyarrow's that is nearly all that an
    exchange costs.
    """
    gc.collect()
    gc.freeze()


def slot_of_first_row(batch: pa.RecordBatch, config: ExchangeConfig) -> int:
    """The slot of a partition, read off its first row."""
    key_hash = batch.column(KEY_HASH)[0].as_py()
    if key_hash is None:
        return int(batch.column(SOURCE)[0].as_py())
    return slot_of(key_group_of_hash(key_hash, config.max_parallelism), config.parallelism, config.max_parallelism)


def exchange_partition(
    config: ExchangeConfig, batch_id: int, run: PartitionRun, batches: Iterator[pa.RecordBatch]
) -> Generator[pa.RecordBatch, None, None]:
    """Run one partition of batch ``batch_id`` through its slot.

    Args:
        config: of the keyed step.
        batch_id: number of the batch.
        run: the task that computes the partition.
        batches: its rows.

    Raises:
        UnavailableError: the slot went away; Spark retries the task.
        UserFunctionError: the user's function raised.
    """
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        _report_empty(config, batch_id, run)
        return
    slot = slot_of_first_row(first, config)
    location, call = _open(config, slot, batch_id, first.schema)
    failure: list[BaseException] = []
    stopped = threading.Event()

    def send() -> None:
        try:
            for batch in chain((first,), batches):
                for piece in pieces(batch, _MESSAGE_BYTES):
                    if stopped.is_set():
                        return
                    call.send(piece)
            call.end()
        except BaseException as error:  # noqa: BLE001  raised again by the receiving side
            failure.append(error)
            call.cancel()

    sender = threading.Thread(target=send, name=f"exchange-{config.uid}-{batch_id}", daemon=True)
    sender.start()
    try:
        yield from call.results()
    except Exception as error:
        stopped.set()
        sender.join(timeout=5)
        upstream = next((cause for cause in failure if not isinstance(cause, pa.ArrowException)), None)
        if isinstance(error, UnavailableError):
            forget(config.coordinator, location)
            if upstream is not None:
                raise upstream from error
        raise
    else:
        sender.join(timeout=5)
    finally:
        stopped.set()
        call.close(sending=sender.is_alive())


def _report_empty(config: ExchangeConfig, batch_id: int, run: PartitionRun) -> None:
    """Tell the coordinator that a partition had no rows; waits in bounded time until the batch has begun, and until slots have operator state."""
    patience = _Patience(config)
    request = EmptyPartition(uid=config.uid, batch=batch_id, run=run)
    while (wait := peer(config.coordinator).call(request, timeout_s=120)) is not None:
        if patience.is_over(wait):
            raise UnavailableError(f"batch {batch_id} cannot go on after {patience.waited_s:.0f} s: {wait.reason}")
        time.sleep(_POLL_S)


class _Patience:
    """Time limits of a waiting task: shorter for a slot that has not been started, which may need the core that the task occupies.

    That time starts again when the slot has restored or the query was paused: a slot is between two states for a moment, for example when what it
    restores has been read and it has not registered yet, and a task that has waited for long must not fail then.
    """

    def __init__(self, config: ExchangeConfig) -> None:
        self._config = config
        self._began_s = self._last_restoring_s = time.monotonic()

    @property
    def waited_s(self) -> float:
        return time.monotonic() - self._began_s

    def is_over(self, wait: Wait) -> bool:
        """Return True if the task must fail now that it was told to wait again."""
        if wait.reason in ("restoring", "paused"):
            self._last_restoring_s = time.monotonic()
        too_long = time.monotonic() - self._last_restoring_s > self._config.start_wait_s
        return too_long or self.waited_s > self._config.restore_wait_s


def _open(config: ExchangeConfig, slot: int, batch_id: int, schema: pa.Schema) -> tuple[str, ExchangeCall]:
    """Ask the coordinator for the batch and its slot, wait for the slot in bounded time, and connect; returns where to."""
    request = Begin(uid=config.uid, slot=slot, batch=batch_id)
    patience = _Patience(config)
    while True:
        begun = peer(config.coordinator).call(request, timeout_s=120)
        waited = patience.waited_s
        if isinstance(begun, Wait):
            if patience.is_over(begun):
                raise UnavailableError(f"slot {slot} is still {begun.reason} after {waited:.0f} s")
            time.sleep(_POLL_S)
            continue
        location = _nearest(begun)
        try:
            slot_peer = peer(config.coordinator, location)
            slot_peer.call(Ping(epoch=begun.epoch), timeout_s=5)
            exchange = ExchangeRequest(
                uid=config.uid, slot=slot, batch=batch_id, epoch=begun.epoch, run=begun.run, waited_s=patience.waited_s
            )
            call = slot_peer.open_exchange(exchange, schema)
        except (UnavailableError, FencedError):
            forget(config.coordinator, location)
            if waited > config.start_wait_s:
                raise
            peer(config.coordinator).call(SlotUnreachable(slot=slot, epoch=begun.epoch))
            time.sleep(_POLL_S)
            continue
        return location, call


def _nearest(slot: BeginAnswer) -> str:
    """The slot's Unix socket where the slot is on this host."""
    return f"grpc+unix://{slot.unix}" if slot.unix and Path(slot.unix).exists() else slot.location
