"""One operator (uid) in one slot: runs batches against its keyed state backend and makes their changelogs durable."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from statefulspark import failpoints
from statefulspark.checkpoint.changelog import ChangelogHeader, ChangelogWriter, read_changelog
from statefulspark.checkpoint.digests import FileDigest
from statefulspark.checkpoint.paths import changelog_key
from statefulspark.errors import FencedError, UnavailableError
from statefulspark.exchange.config import SlotConfig
from statefulspark.exchange.figures import USER_METRICS_MAX, BatchClock, counted, operator_figures
from statefulspark.exchange.flight import ExchangeStream, FlightPeer
from statefulspark.exchange.states import CoordinatorStateIds
from statefulspark.keygroups import key_group_range
from statefulspark.process.keytypes import key_type_infos
from statefulspark.process.operator import KeyedProcessOperator, StepSpec
from statefulspark.process.skew import KeyGroupRows
from statefulspark.state.backend import BatchBudget, KeyedStateBackend
from statefulspark.state.keys import KeyCodec
from statefulspark.state.layout import key_group_of
from statefulspark.state.store import Change, KeyValueStore

_BUSY_S = 600.0


class OperatorSlot:
    """The state of one uid in this slot, at the end of batch ``batch``."""

    def __init__(
        self,
        step: StepSpec,
        *,
        config: SlotConfig,
        slot: int,
        epoch: int,
        store: KeyValueStore,
        batch: int,
        work: Path,
        coordinator: FlightPeer,
    ) -> None:
        self.step = step
        self.lock = threading.Lock()
        self._config = config
        self._slot = slot
        self._epoch = epoch
        self._store = store
        self._work = work / f"uid-{secrets.token_hex(4)}"
        self._work.mkdir(parents=True)
        self._coordinator = coordinator
        self._key_groups = key_group_range(slot, config.parallelism, config.max_parallelism)
        self._ids = CoordinatorStateIds(coordinator)
        self._rows = KeyGroupRows(self._key_groups, config.max_parallelism)
        self._clock = BatchClock()
        self._open(batch)

    def _open(self, batch: int) -> None:
        """Open the function on a backend that stands at the end of ``batch``."""
        self.backend = KeyedStateBackend(
            self._store,
            self._ids,
            uid=self.step.uid,
            key_codec=KeyCodec(key_type_infos(self.step)),
            key_groups=self._key_groups,
            budget=BatchBudget(cache_bytes=self._config.cache_bytes, dirty_bytes=self._config.dirty_bytes),
            spill_directory=self._work / "spill",
        )
        self.backend.batch = batch
        self._operator = KeyedProcessOperator(
            self.step,
            self.backend,
            slot=self._slot,
            parallelism=self._config.parallelism,
            job_name=self._config.job_name,
        )
        self._operator.open()

    def can_hold(self, batch: int, expected: int) -> bool:
        """Whether the batch can begin without writing the store; arguments as in `begin`."""
        return self.backend.batch in (expected, batch) and self.backend.can_hold

    def begin(self, batch: int, expected: int, processing_time_ms: int, *, hold: bool = False) -> None:
        """Bring the state to the start of ``batch``.

        Args:
            batch: the batch that runs.
            expected: the last batch before it that changed this operator here; the state is brought there first.
            processing_time_ms: the batch's processing time.
            hold: a snapshot of the store is being taken: leave it alone. Only after `can_hold` said so.

        Without ``hold`` the caller has the store for itself.
        """
        self._clock = BatchClock()
        with self._clock.part("begin"):
            if self.backend.batch not in (expected, batch):
                self._catch_up(expected)
            self.backend.begin_batch(batch, processing_time_ms=processing_time_ms, hold=hold)

    def settle(self, expected: int) -> None:
        """Put everything up to the committed batch ``expected`` into the store, which the caller has for itself."""
        if self.backend.batch != expected:
            self._catch_up(expected)
        self.backend.apply_pending()

    def settle_early(self, expected: int) -> None:
        """Like `settle`, but does nothing when the state stands at another batch: the word of the commit may come late."""
        if self.backend.batch == expected:
            self.backend.apply_pending()

    def _catch_up(self, expected: int) -> None:
        """Apply changelogs of committed batches that another incarnation of this slot wrote."""
        if self.backend.batch > expected:
            raise FencedError(f"slot {self._slot} is at batch {self.backend.batch} of {self.step.uid!r}, the job is at {expected}")
        self.backend.apply_pending()
        groups = self._key_groups
        request = {"uid": self.step.uid, "first": groups.first, "last": groups.last, "after": self.backend.batch, "until": expected}
        for ref in self._coordinator.call("changelogs", request)["changelogs"]:
            path = self._work / f"catch-up-{secrets.token_hex(4)}"
            self._config.store.get_file(ref["key"], path)
            _, changes = read_changelog(path)
            self._store.write(change for change in changes if key_group_of(change[0]) in groups)
            path.unlink()
        self._operator.close()
        self._open(expected)

    def run(self, request: dict[str, Any], stream: ExchangeStream) -> dict[str, Any]:
        """Process one batch that has begun, send its results, and make its changes durable.

        Returns:
            The acknowledgement the coordinator needs.
        """
        batch = int(request["batch"])
        clock = self._clock
        registered_before = self.backend.timers.registered
        path = self._work / f"changelog-{batch}-{secrets.token_hex(4)}"
        changelog = _Changelog(path, lambda: self._header(batch))
        finished = False
        try:
            for result in self._results(request, counted(clock.waits(stream.batches()), self._rows)):
                with clock.part("output"):
                    stream.send(result)
            failpoints.reach("slot.processed")
            with clock.part("encode"):
                self.backend.finish_batch(changelog.append)
            finished = True
            with clock.part("durable"):
                digest = changelog.close()
                ack = self._acknowledgement(batch)
                ack["changelog"] = self._make_durable(int(request["attempt"]), batch, path, digest)
            ack["timers_registered"] = self.backend.timers.registered - registered_before
            ack["seconds"] = clock.seconds()
            ack["exchange_seconds"] = {"slot": float(request.get("waited_s", 0.0)), "send": stream.sender_waited_s}
            failpoints.reach("slot.changelog.durable")
        except BaseException:
            if not finished:
                self.backend.abort_batch()
            raise
        finally:
            changelog.discard()
            path.unlink(missing_ok=True)
        return ack

    def _make_durable(self, attempt: int, batch: int, path: Path, digest: FileDigest) -> dict[str, Any]:
        """Upload the changelog. One without changes goes up too: it proves that the batch was processed here."""
        key = changelog_key(attempt, batch, self.step.uid, self._slot, self._epoch)
        self._config.store.put_file(key, path)
        return {
            "uid": self.step.uid,
            "slot": self._slot,
            "first": self._key_groups.first,
            "last": self._key_groups.last,
            "batch": batch,
            "epoch": self._epoch,
            "key": key,
            "size_bytes": digest.size_bytes,
            "checksum": digest.checksum,
        }

    def _header(self, batch: int) -> ChangelogHeader:
        return ChangelogHeader(
            uid=self.step.uid,
            slot=self._slot,
            batch=batch,
            epoch=self._epoch,
            first_key_group=self._key_groups.first,
            last_key_group=self._key_groups.last,
            max_event_time_ms=self._operator.max_event_time_ms,
            states=tuple(self._ids.known(self.step.uid)),
        )

    def _results(self, request: dict[str, Any], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self._operator.run(
            batches,
            watermark_ms=request["watermark"],
            processing_time_ms=int(request["processing_time"]),
            sort_bytes=self._config.sort_bytes,
            spill_directory=self._work / "sort",
        )

    def figures(self) -> dict[str, Any]:
        """What a sign of life says of the operator; called from another thread."""
        user: dict[str, float] = {}
        # A gauge is the user's code, and so is what it raises.
        with suppress(Exception):
            user = dict(islice(self._operator.metrics.values().items(), USER_METRICS_MAX))
        return operator_figures(self.backend, self._rows, user)

    def _acknowledgement(self, batch: int) -> dict[str, Any]:
        operator = self._operator
        event_timer, processing_timer = self.earliest_timers()
        return {
            "uid": self.step.uid,
            "slot": self._slot,
            "epoch": self._epoch,
            "batch": batch,
            "changelog": None,
            "max_event_time": operator.max_event_time_ms,
            "event_timer": event_timer,
            "processing_timer": processing_timer,
            "rows_in": operator.rows_in,
            "rows_out": operator.rows_out,
            "timers_fired": operator.timers_fired,
        }

    def earliest_timers(self) -> list[int | None]:
        """Timestamps of the earliest event-time and processing-time timer."""
        return [self.backend.timers.min_timestamp("event-timers"), self.backend.timers.min_timestamp("processing-timers")]

    def acquire(self) -> None:
        """Wait for an earlier attempt of the same batch to end."""
        if not self.lock.acquire(timeout=_BUSY_S):
            raise UnavailableError(f"uid {self.step.uid!r} is busy with an earlier attempt")

    def close(self) -> None:
        """Close the function."""
        self._operator.close()


class _Changelog:
    """A changelog that is begun when the batch has been processed, so that its header knows all states and event times."""

    def __init__(self, path: Path, header: Callable[[], ChangelogHeader]) -> None:
        self._path = path
        self._header = header
        self._writer: ChangelogWriter | None = None

    def append(self, changes: Iterable[Change]) -> None:
        """Write changes as they will be applied."""
        self._begun().append(changes)

    def close(self) -> FileDigest:
        """Complete the file."""
        return self._begun().close()

    def _begun(self) -> ChangelogWriter:
        if self._writer is None:
            self._writer = ChangelogWriter(self._path, self._header())
        return self._writer

    def discard(self) -> None:
        """Release the file, complete or not."""
        if self._writer is not None:
            self._writer.abandon()
