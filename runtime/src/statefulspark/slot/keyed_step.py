"""One keyed step (uid) in one slot: runs batches against its keyed state backend and makes their changelogs durable."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Generator, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path

import cloudpickle
import pyarrow as pa

from statefulspark import failpoints
from statefulspark.checkpoint.formats.changelog import ChangelogHeader, ChangelogWriter
from statefulspark.errors import FencedError, InvalidInputError, UnavailableError
from statefulspark.exchange.config import SlotConfig
from statefulspark.process.api.metrics import LATE_RECORDS, count_of
from statefulspark.process.rows.key_group_rows import KeyGroupRows
from statefulspark.process.rows.keytypes import key_type_infos
from statefulspark.process.runner.failures import user_function_error
from statefulspark.process.runner.function_runner import KeyedFunctionRunner, StepSpec
from statefulspark.process.runner.lifecycle import FunctionLifecycle
from statefulspark.process.runner.two_inputs import runner_class
from statefulspark.rpc.flight import ExchangeStream, FlightPeer
from statefulspark.rpc.messages.batches import Acknowledge, BatchRun, ExchangeRequest, RunMetrics
from statefulspark.rpc.messages.heartbeat import StepReport
from statefulspark.rpc.messages.slot_control import NextBatch
from statefulspark.rpc.messages.slots import Reopened
from statefulspark.slot.logs import logs_of_step
from statefulspark.slot.state_ids import CoordinatorStateIds
from statefulspark.slot.step_changelogs import NO_CHANGELOG, HandedOver, StepChangelogs
from statefulspark.slot.step_metrics import BatchClock, counted, step_report, user_metrics
from statefulspark.state.backend import BatchBudget, KeyedStateBackend
from statefulspark.state.encoding.keys import KeyCodec
from statefulspark.state.operator.backend import OperatorStateBackend, StepOperatorState
from statefulspark.state.operator.entries import OperatorEntry
from statefulspark.state.store.base import Change, KeyValueStore
from statefulspark.state.timers import EVENT_TIMERS, PROCESSING_TIMERS

_BUSY_S = 600.0
_NOTHING = StepOperatorState()


class KeyedStep:
    """The state of one uid in this slot, at the end of batch ``batch``."""

    def __init__(  # noqa: PLR0913  what a step needs of its slot, by name
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
        attempt: int = 0,
        operator_state: StepOperatorState = _NOTHING,
        report_ms: int | None = None,
    ) -> None:
        """Open the function.

        Args:
            step: the step.
            config: the slot's configuration.
            slot: number of the slot.
            epoch: its incarnation.
            store: the slot's store, which is at ``batch``.
            batch: last batch that changed the step here.
            work: local folder for what the step spills.
            coordinator: the coordinator.
            attempt: how often the function was opened before in this slot.
            operator_state: the step's operator state after ``batch``.
            report_ms: processing time of the last batch, if operator state was redistributed: the function takes a snapshot for `take_operator_report`.
        """
        self.step = step
        self.lock = threading.Lock()
        self._exchange_lock = threading.Lock()
        self._waiting: set[object] = set()
        self._config = config
        self._slot = slot
        self._epoch = epoch
        self._store = store
        self._work = work / f"uid-{secrets.token_hex(4)}"
        self._work.mkdir(parents=True)
        self._coordinator = coordinator
        self._attempt: int | None = attempt
        self._changelogs = StepChangelogs(step.uid, config=config, slot=slot, epoch=epoch, coordinator=coordinator)
        self._key_groups = self._changelogs.key_groups
        self._ids = CoordinatorStateIds(coordinator)
        self._rows = KeyGroupRows(self._key_groups, config.max_parallelism)
        self._clock = BatchClock()
        self._operator_report: list[OperatorEntry] | None = None
        self.backend, self.operator = self._backends(batch, operator_state)
        with self.logs():
            self._function = FunctionLifecycle(self._fresh_runner)
            if report_ms is not None:
                self._function.runner.snapshot(self.operator.batch, report_ms)
                self._operator_report = self.operator.report()

    def logs(self) -> AbstractContextManager[None]:
        """Log records that this thread writes meanwhile have the step's uid, and the key group of the current key if there is one."""
        return logs_of_step(self.step.uid, lambda: self.backend.current_key_group())  # noqa: PLW0108  the backend is replaced in the meantime

    def take_operator_report(self) -> list[OperatorEntry] | None:
        """Return the function's new operator state after a redistribution; None if there was none, and from the second call on."""
        report, self._operator_report = self._operator_report, None
        return report

    def _backends(self, batch: int, operator_state: StepOperatorState) -> tuple[KeyedStateBackend, OperatorStateBackend]:
        """Return backends that stand at the end of ``batch``."""
        backend = KeyedStateBackend(
            self._store,
            self._ids,
            uid=self.step.uid,
            key_codec=KeyCodec(key_type_infos(self.step)),
            key_groups=self._key_groups,
            budget=BatchBudget(cache_bytes=self._config.cache_bytes, dirty_bytes=self._config.dirty_bytes),
            spill_directory=self._work / "spill",
        )
        backend.batch = batch
        parallelism = self._config.parallelism
        return backend, OperatorStateBackend(self._ids, uid=self.step.uid, slot=self._slot, parallelism=parallelism, start=operator_state)

    def _fresh_runner(self) -> KeyedFunctionRunner:
        """Make a runner with a new copy of what the user passed to ``process()``."""
        steps: list[StepSpec] = cloudpickle.loads(self._config.steps)
        self.backend.redeclare()
        self.operator.redeclare()
        attempt, self._attempt = self._attempt, None
        if attempt is None:
            attempt = self._coordinator.call(Reopened(slot=self._slot, epoch=self._epoch)).attempt
        return runner_class(self.step)(
            next(step for step in steps if step.uid == self.step.uid),
            self.backend,
            operator_state=self.operator,
            slot=self._slot,
            parallelism=self._config.parallelism,
            job_name=self._config.job_name,
            attempt=attempt,
            job_parameters=self._config.parameters,
        )

    def can_hold(self, batch: int, expected: int) -> bool:
        """True if the batch can begin without writing the store; arguments as in `begin`."""
        return self.backend.batch in (expected, batch) and self.backend.can_hold

    def begin(self, batch: int, expected: int, processing_time_ms: int, *, hold: bool = False) -> None:
        """Bring the state to the start of ``batch``.

        Args:
            batch: the batch that runs.
            expected: the last batch before it that changed this keyed step here; the state is brought there first.
            processing_time_ms: the batch's processing time.
            hold: a snapshot of the store is being taken: leave it alone. Only after `can_hold` said so.

        Without ``hold`` the caller has the store for itself.
        """
        self._clock = BatchClock()
        with self._clock.part("begin"):
            if self.backend.batch not in (expected, batch):
                self._catch_up(expected)
            if self.backend.batch == batch:
                self._function.undone()
            self.backend.begin_batch(batch, processing_time_ms=processing_time_ms, hold=hold)
            if not hold:
                # Before operator state begins the batch: if the disk fails here, what the function did when it was opened is kept.
                self.backend.sweep_overdue()
            self.operator.begin_batch(batch)

    def settle(self, expected: int) -> None:
        """Put everything up to the committed batch ``expected`` into the store, which the caller has for itself."""
        if self.backend.batch != expected:
            self._catch_up(expected)
        self._apply_pending()

    def settle_early(self, expected: int, next_batch: NextBatch | None) -> None:
        """Like `settle`, but does nothing when the state stands at another batch: the call may be late. Then read what ``next_batch`` will need."""
        if self.backend.batch == expected:
            self._apply_pending()
            if next_batch is not None:
                self.backend.timers.read_ahead(next_batch.watermarks_ms.get(self.step.uid), next_batch.processing_time_ms)

    def _apply_pending(self) -> None:
        self.backend.apply_pending()
        self.operator.apply_pending()

    def undo(self, batch: int) -> None:
        """Drop what ``batch`` changed if it was the last to run here.

        Raises:
            FencedError: It is part of the store already.
        """
        if self.backend.batch == batch:
            self._function.undone()
            self.backend.begin_batch(batch, processing_time_ms=0)
            self.operator.begin_batch(batch)
            self._abort_batch()

    def _abort_batch(self) -> None:
        self.backend.abort_batch()
        self.operator.abort_batch()

    def _catch_up(self, expected: int) -> None:
        """Apply changelogs of committed batches that another incarnation of this slot wrote."""
        if self.backend.batch > expected:
            raise FencedError(f"slot {self._slot} is at batch {self.backend.batch} of {self.step.uid!r}, the job is at {expected}")
        self._apply_pending()
        stored, broadcast = self._changelogs.catch_up(self._store, after=self.backend.batch, until=expected, work=self._work)
        # Ids are requested again, because the changelogs may have brought states that another attempt declared.
        self._ids = CoordinatorStateIds(self._coordinator)
        uid = self.step.uid
        lists, states = stored.lists(uid).get(self._slot, {}), [*stored.states(uid), *broadcast.states(uid)]
        backend, operator = self._backends(expected, self.operator.caught_up(expected, lists, states, broadcast.changes(uid)))
        backend.reached(self.backend.reached_ms)
        # All at once, so that a failure before leaves everything at the earlier batch. If the fresh copy of the function cannot be opened, the next
        # batch tries again: the present copy has the states of the earlier backends.
        self.backend, self.operator = backend, operator
        self._function.undone()
        with self.logs():
            self._function.renew_if_stale()

    def run(self, request: ExchangeRequest, stream: ExchangeStream) -> Acknowledge:
        """Process one batch that has begun, send its results, and make its changes durable, unless the driver does or the batch has no changelogs.

        Returns:
            The acknowledgement for the coordinator.
        """
        batch = request.batch
        clock = self._clock
        registered_before = self.backend.timers.registered
        path = self._work / f"changelog-{batch}-{secrets.token_hex(4)}"
        changelog: ChangelogWriter | None = None
        finished = False
        try:
            self._function.renew_if_stale()
            late_before = count_of(self._function.runner.metrics, LATE_RECORDS)
            # Closed before the batch is undone: a generator of the user's may still change state in its ``finally``.
            with closing(self._results(request.run, counted(clock.waits(stream.batches()), self._rows))) as results:
                for result in results:
                    with clock.part("output"):
                        stream.send(result)
            self._function.runner.snapshot(batch, request.run.processing_time_ms)
            failpoints.reach("slot.processed")
            with clock.part("encode"):
                entries = self.operator.changes(whole=request.run.operator_state == "all")
                # Begun only now, so that its header knows all states and event times.
                changelog = ChangelogWriter(path, self._header(request, entries), entries) if request.run.changelog else None
                take = changelog.append if changelog is not None else _taken_by_nobody
                self.backend.finish_batch(take, rows=self._function.runner.rows_in)
                self.operator.finish_batch()
            finished = True
            handed_over = NO_CHANGELOG
            if changelog is not None:
                with clock.part("durable"):
                    handed_over = self._changelogs.hand_over(request.run, batch, path, changelog.close())
            metrics = RunMetrics(
                timers_fired=self._function.runner.timers_fired,
                timers_registered=self.backend.timers.registered - registered_before,
                seconds=clock.seconds(),
                exchange_seconds={"slot": request.waited_s, "send": stream.sender_waited_s},
                late_rows_dropped=count_of(self._function.runner.metrics, LATE_RECORDS) - late_before,
            )
            ack = self._acknowledgement(batch, handed_over, metrics)
            failpoints.reach("slot.changelog.durable")
        except BaseException as error:
            key_group = self._current_key_group()
            if not finished:
                self._abort_batch()
                self._function.undone()
            if isinstance(error, Exception):
                raise
            # Signals come to the main thread, so the function raised it. The server would drop it, and the slot would seem to have gone silent.
            raise user_function_error(error, uid=self.step.uid, key_group=key_group) from error
        finally:
            if changelog is not None:
                changelog.abandon()
            path.unlink(missing_ok=True)
        return ack

    def _current_key_group(self) -> int | None:
        with suppress(InvalidInputError):
            return self.backend.current_key_group()
        return None

    def _header(self, request: ExchangeRequest, entries: list[OperatorEntry]) -> ChangelogHeader:
        states = {state["state_id"]: state for state in self._ids.known(self.step.uid)}
        # Also those that the function does not declare, because this header may be the only one that names them.
        states |= {info.state_id: info.to_json() for info in self.operator.states()}
        rows = self._function.runner.broadcast
        has_operator_state = bool(entries) or request.run.operator_state == "all"
        return self._changelogs.header(
            request.batch,
            event_times_ms=(self._function.runner.max_event_time_ms, self._function.runner.second_max_event_time_ms),
            event_times_by_value=self._function.runner.event_times_by_value,
            states=states.values(),
            operator_state=request.run.operator_state if has_operator_state else None,
            broadcast=(rows.digest, request.run.query) if rows is not None and rows.rows else None,
        )

    def _results(self, run: BatchRun, batches: Iterator[pa.RecordBatch]) -> Generator[pa.RecordBatch, None, None]:
        return self._function.runner.run(
            batches,
            watermark_ms=run.watermark_ms,
            processing_time_ms=run.processing_time_ms,
            sort_bytes=self._config.sort_bytes,
            spill_directory=self._work / "sort",
        )

    def report(self) -> StepReport:
        """Returns the heartbeat's report of the step; called from another thread."""
        return step_report(self.backend, self._rows, user_metrics(self._function.runner.metrics))

    def _acknowledgement(self, batch: int, changelog: HandedOver, metrics: RunMetrics) -> Acknowledge:
        runner = self._function.runner
        event_timer, processing_timer = self.earliest_timers()
        return Acknowledge(
            uid=self.step.uid,
            slot=self._slot,
            epoch=self._epoch,
            batch=batch,
            changelog=changelog.ref,
            inline=changelog.inline,
            changelog_bytes=changelog.size_bytes,
            max_event_time_ms=runner.max_event_time_ms,
            second_max_event_time_ms=runner.second_max_event_time_ms,
            event_times_by_value=runner.event_times_by_value,
            event_timer_ms=event_timer,
            processing_timer_ms=processing_timer,
            rows_in=runner.rows_in,
            rows_out=runner.rows_out,
            metrics=metrics,
            broadcast=runner.broadcast,
        )

    def earliest_timers(self) -> tuple[int | None, int | None]:
        """Timestamps of the earliest event-time and processing-time timer."""
        return self.backend.timers.min_timestamp(EVENT_TIMERS), self.backend.timers.min_timestamp(PROCESSING_TIMERS)

    @contextmanager
    def exchange(self) -> Iterator[None]:
        """Run one attempt at a batch at a time, up to the answer to its acknowledgement, so that the coordinator takes them in order.

        Raises:
            UnavailableError: An earlier attempt did not end in time.
        """
        with self._taken(self._exchange_lock, _BUSY_S):
            yield

    @contextmanager
    def held(self, timeout_s: float = _BUSY_S) -> Iterator[None]:
        """Have the state for oneself. Nobody who has it may wait for the coordinator's batch lock, whose holder may wait for the state.

        Raises:
            UnavailableError: A batch that runs did not end in time.
        """
        ticket = object()
        self._waiting.add(ticket)
        try:
            with self._taken(self.lock, timeout_s):
                self._waiting.remove(ticket)
                yield
        finally:
            self._waiting.discard(ticket)

    @property
    def waiting(self) -> bool:
        """True if a batch or a snapshot waits for the state. Locks are not fair: who takes it again and again must stop then."""
        return bool(self._waiting)

    @contextmanager
    def _taken(self, lock: threading.Lock, timeout_s: float) -> Iterator[None]:
        if not lock.acquire(timeout=timeout_s):
            raise UnavailableError(f"uid {self.step.uid!r} is busy with an earlier attempt")
        try:
            yield
        finally:
            lock.release()

    def close(self) -> None:
        """Close the function."""
        with self.logs():
            self._function.close()


def _taken_by_nobody(changes: Iterable[Change]) -> None:
    """Stands for a changelog: the changes are kept in the backend alone."""
