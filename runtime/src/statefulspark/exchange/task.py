"""The exchange: streams one Spark partition's Arrow batches to the slot that owns its keys, and the results back.

A partition holds rows of one slot only. A partition without rows contacts no slot: its slot's state does not change in the batch.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from statefulspark.errors import FencedError, UnavailableError
from statefulspark.exchange.config import Endpoint, ExchangeConfig
from statefulspark.exchange.flight import ExchangeCall, FlightPeer
from statefulspark.keygroups import slot_of

KEY_HASH = "__kh"
"""xxhash64 of the key columns; null marks a tick row, which has no data."""
SOURCE = "__src"
"""Index of the source partition, the tie break of equal event times; of a tick row, its slot."""

_POLL_S = 0.05
_peers: dict[str, FlightPeer] = {}


def peer(endpoint: Endpoint, location: str | None = None) -> FlightPeer:
    """A connection that later batches of the same Python worker use again."""
    where = location or endpoint.location
    key = f"{where}|{endpoint.secret}"
    if key not in _peers:
        if len(_peers) > 64:
            _peers.clear()
        _peers[key] = FlightPeer(where, endpoint.secret)
    return _peers[key]


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
    return slot_of(key_hash % config.max_parallelism, config.parallelism, config.max_parallelism)


def exchange_partition(config: ExchangeConfig, batch_id: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run one partition of batch ``batch_id`` through its slot.

    Raises:
        UnavailableError: the slot went away; Spark retries the task.
        UserFunctionError: the user's function raised.
    """
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        if batch_id == 0:
            # Spark tells the coordinator of every batch before it runs (`job.ticks`), but not of the first.
            peer(config.coordinator).call("planned", {}, timeout_s=120)
        return
    slot = slot_of_first_row(first, config)
    ticket, call = _open(config, slot, batch_id, first.schema)
    failure: list[BaseException] = []
    stopped = threading.Event()

    def send() -> None:
        try:
            for batch in chain((first,), batches):
                if stopped.is_set():
                    return
                call.send(batch)
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
            forget(config.coordinator, ticket["connected"])
            if upstream is not None:
                raise upstream from error
        raise
    else:
        sender.join(timeout=5)
    finally:
        stopped.set()
        call.close(sending=sender.is_alive())


def _open(config: ExchangeConfig, slot: int, batch_id: int, schema: pa.Schema) -> tuple[dict[str, Any], ExchangeCall]:
    """Ask the coordinator for the batch and its slot, wait for the slot in bounded time, and connect."""
    request = {"uid": config.uid, "slot": slot, "batch": batch_id}
    started = time.monotonic()
    while True:
        ticket = peer(config.coordinator).call("begin", request, timeout_s=120)
        waited = time.monotonic() - started
        if "wait" in ticket:
            limit = config.restore_wait_s if ticket["wait"] in ("restoring", "paused") else config.start_wait_s
            if waited > limit:
                raise UnavailableError(f"slot {slot} is still {ticket['wait']} after {waited:.0f} s")
            time.sleep(_POLL_S)
            continue
        unix = ticket["unix"]
        location = f"grpc+unix://{unix}" if unix and Path(unix).exists() else ticket["location"]
        try:
            slot_peer = peer(config.coordinator, location)
            slot_peer.call("ping", {"epoch": ticket["epoch"]}, timeout_s=5)
            run = {**request, **ticket["run"], "epoch": ticket["epoch"], "waited_s": time.monotonic() - started}
            call = slot_peer.open_exchange(run, schema)
        except (UnavailableError, FencedError):
            forget(config.coordinator, location)
            if waited > config.start_wait_s:
                raise
            peer(config.coordinator).call("slot-unreachable", {"slot": slot, "epoch": ticket["epoch"]})
            time.sleep(_POLL_S)
            continue
        ticket["connected"] = location
        return ticket, call
