"""TestingJob: runs one keyed function through failures, rescaling and upgrades, on the real runtime, without Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from statefulspark.checkpoint.catalog import open_checkpoint
from statefulspark.checkpoint.formats.pipeline import StepKey
from statefulspark.checkpoint.inspect.decoding import StateEntry
from statefulspark.checkpoint.inspect.reader import read_state
from statefulspark.checkpoint.write.inline import InlineLimits
from statefulspark.errors import ClosedError, InvalidInputError, NotRestorableError, StatefulSparkError
from statefulspark.process.adapters.function_adapters import AnyFunction, adapted_to
from statefulspark.process.api.output_tag import OutputTag
from statefulspark.process.rows.step_spec import StepSpec
from statefulspark.state.store.own_backend import imported_backend, is_own_backend, trust_backend
from statefulspark.storage.open import open_store
from statefulspark.testing.events import AnyEvent, Event
from statefulspark.testing.inputs import BroadcastInput, SecondInput
from statefulspark.testing.interruptible_driver import FaultyJob
from statefulspark.testing.job_events import EventRunner
from statefulspark.testing.job_input import check_items, is_event
from statefulspark.testing.key_hash import check_stored_key
from statefulspark.testing.local_job import Row
from statefulspark.testing.schemas import Schema, arrow_schema, side_outputs_of

_RETAINED = 2
_INLINE_MAX_BYTES = 1 << 20


class TestingJob:
    """Runs rows and events in the order of a list, and keeps what the sink got.

    The coordinator, the slots (in threads), changelogs, checkpoints and savepoints are those of production; a small engine stands for Spark.
    Rows that stand together are one batch. An event ends the batch of the rows before it. After each batch, timers that are due fire, in
    batches of their own.

    >>> import pyarrow as pa
    >>> from statefulspark import KeyedProcessFunction, Types, ValueStateDescriptor
    >>> from statefulspark.testing import KILL_SLOT, RESCALE, TestingJob
    >>> class Count(KeyedProcessFunction):
    ...     def open(self, runtime_context):
    ...         self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
    ...     def process_element(self, value, ctx):
    ...         self.count.update((self.count.value() or 0) + 1)
    ...         yield value.user, self.count.value()
    >>> with TestingJob(Count(), {"user": pa.string()}, {"user": pa.string(), "count": pa.int64()}, key="user") as job:
    ...     output = job.run([("ada",), KILL_SLOT(0), ("ada",), RESCALE(3), ("ada",)])
    ...     state = job.state("count")
    >>> output
    [('ada', 1), ('ada', 2), ('ada', 3)]
    >>> state
    {'ada': 3}

    Args:
        function: The function under test: a KeyedProcessFunction or BatchKeyedProcessFunction, or a map, flat-map, filter or reduce function; with ``second`` a KeyedCoProcessFunction, CoMapFunction or CoFlatMapFunction; with ``broadcast`` a KeyedBroadcastProcessFunction. Slots run copies of it.
        input_schema: The columns of its input: an Arrow schema, a dict of Arrow types, DDL text or a StructType.
        output_schema: The columns of its output.
        key: The key column, or several.
        event_time: The event-time column; None for a step without event time.
        watermark_ms: How far the watermark stays behind the latest event time, in milliseconds.
        watermark_by: Column, or several, of which each value has its own latest event time; the watermark follows the smallest of these.
        idle_after_ms: Time without rows in milliseconds, by the clock that ``ADVANCE`` moves, after which an input, or a value of ``watermark_by``,
            does not hold the watermark any more; None if it always does.
        parallelism: Number of slots, 1..max_parallelism.
        max_parallelism: Number of key groups, 1..32768.
        backend: ``memory``, ``filesystem``, ``rocksdb``, or a `StateBackend` of one's own as ``module:Class``; it gets no settings.
        changelog_inline_threshold: Largest changelog in bytes that slots send to the driver, which stores those of a batch in one object
            (``checkpointing.changelogInlineThreshold``), 0..1,048,576. Defaults to 0: slots store each of their changelogs.
        timer_service: Where the backend ``rocksdb`` keeps timers: ``rocksdb``, or ``heap`` for the Python heap.
        folder: Where storage and working files go. Defaults to a temporary folder that `close` deletes.
        restore_from: URL of a checkpoint or savepoint of another job to start from, which may be one with Spark. Rows before it are not read again.
        uid: The uid of the step, which names its state: with ``restore_from`` that of the step in the job.
        side_outputs: The tags of the function's side outputs. Each has a sink of its own.
        second: The second input of a step with two. Its rows are written ``SECOND(row)``.
        broadcast: The broadcast stream of a step that has one. Its rows are written ``BROADCAST(row)``.

    Attributes:
        savepoints: URLs of the savepoints taken, oldest first.
        errors: The errors of drivers that were paused and resumed.

    Raises:
        InvalidInputError: The arguments do not fit together; names the field and the remedy.
    """

    __test__ = False  # pytest takes classes named Test* for tests

    def __init__(  # noqa: PLR0913  as the arguments of key_by and process, by name
        self,
        function: AnyFunction,
        input_schema: Schema,
        output_schema: Schema,
        *,
        key: str | Sequence[str],
        event_time: str | None = None,
        watermark_ms: int = 0,
        watermark_by: str | Sequence[str] = (),
        idle_after_ms: int | None = None,
        parallelism: int = 2,
        max_parallelism: int = 128,
        backend: str = "memory",
        timer_service: str = "rocksdb",
        changelog_inline_threshold: int = 0,
        folder: Path | None = None,
        restore_from: str | None = None,
        uid: str = "testing",
        side_outputs: Iterable[OutputTag] = (),
        second: SecondInput | None = None,
        broadcast: BroadcastInput | None = None,
    ) -> None:
        if is_own_backend(backend):
            imported_backend(backend)
            trust_backend(backend)
        elif backend not in ("memory", "filesystem", "rocksdb"):
            raise InvalidInputError(
                f"{backend!r} is not known", field="backend", remedy="Choose memory, filesystem, rocksdb or module:Class"
            )
        if timer_service not in ("rocksdb", "heap"):
            raise InvalidInputError(f"{timer_service!r} is not known", field="timer_service", remedy="Choose rocksdb or heap")
        if not 0 <= changelog_inline_threshold <= _INLINE_MAX_BYTES:
            raise InvalidInputError(
                f"{changelog_inline_threshold} is out of range",
                field="changelog_inline_threshold",
                remedy=f"Choose 0 to {_INLINE_MAX_BYTES}",
            )
        if second is not None and broadcast is not None:
            raise InvalidInputError("there is a second input too", field="broadcast", remedy="Pass second or broadcast")
        other = second if broadcast is None else broadcast
        step = StepSpec(
            uid=uid,
            function=adapted_to(function, arrow_schema(input_schema)),
            input_schema=arrow_schema(input_schema),
            output_schema=arrow_schema(output_schema),
            key_columns=(key,) if isinstance(key, str) else tuple(key),
            event_time=event_time,
            watermark_delay_ms=watermark_ms,
            max_parallelism=max_parallelism,
            side_outputs=side_outputs_of(side_outputs),
            second=None if other is None else other.spec(),
            broadcast=() if broadcast is None else broadcast.descriptors,
            watermark_by=(watermark_by,) if isinstance(watermark_by, str) else tuple(watermark_by),
            idle_after_ms=idle_after_ms,
        )
        self._temporary = tempfile.TemporaryDirectory(prefix="statefulspark-job-") if folder is None else None
        self._folder = folder if folder is not None else Path(self._temporary.name if self._temporary is not None else "")
        self._job = FaultyJob(
            folder=self._folder,
            step=step,
            backend=backend,
            heap_timers=timer_service == "heap",
            inline_limits=InlineLimits(changelog_bytes=changelog_inline_threshold),
            retained=_RETAINED,
            stored_key=None if restore_from is None else _stored_key(restore_from, step),
        )
        self._runner = EventRunner(self._job, parallelism, restore_from)
        self._closed = False

    @property
    def savepoints(self) -> list[str]:
        """URLs of the savepoints taken, oldest first."""
        return self._runner.savepoints

    @property
    def errors(self) -> list[StatefulSparkError]:
        """The errors of drivers that were paused and resumed."""
        return self._runner.errors

    @property
    def output(self) -> list[Row]:
        """All rows of the main output that its sink has committed, batch by batch. Rows of one key are in the order in which the function gave them out."""
        return [row for batch in self.batches for row in batch]

    def get_side_output(self, tag: OutputTag) -> list[Row]:
        """Returns all rows that the sink of a side output has committed, batch by batch.

        Raises:
            InvalidInputError: The job was made without this tag.
        """
        if tag not in [output.tag for output in self._job.step.side_outputs]:
            raise InvalidInputError(
                f"the job has no side output {tag.tag_id!r}", field="tag", remedy="Pass the tag to TestingJob: side_outputs=[...]"
            )
        return [row for _, rows in sorted(self._job.side_sinks[tag.tag_id].items()) for row in rows]

    @property
    def batches(self) -> list[list[Row]]:
        """Committed rows by batch; batches without output are left out."""
        return [rows for _, rows in sorted(self._job.sink.items()) if rows]

    def run(self, items: Iterable[Any | AnyEvent]) -> list[Row]:
        """Run rows and events; may be called again to go on.

        Args:
            items: Rows (tuples, ``Row`` or dicts of the input schema; ``SECOND(row)`` for the second input, ``BROADCAST(row)`` for the broadcast stream), and events of `statefulspark.testing`.

        Returns:
            The rows of the main output that its sink has committed during the call.

        Raises:
            InvalidInputError: A row does not fit the input schema, or an event cannot happen where it stands.
            UserFunctionError: The function raised. The batch is undone and runs again with the next call, perhaps after an ``UPGRADE``.
            NotRestorableError: New code or savepoint and state do not fit each other.
        """
        self._check_open()
        listed = list(items)
        check_items(listed, self._job, self._runner)
        before = set(self._job.sink)
        rows: list[Any] = []
        for item in listed:
            if not is_event(item):
                rows.append(item)
                continue
            self._runner.happen(item, rows)
            rows = []
        self._runner.happen(Event.BATCH, rows)
        return [row for batch in sorted(set(self._job.sink) - before) for row in self._job.sink[batch]]

    def slot_of(self, key: Any) -> int:
        """Returns the slot that has a key now, for ``KILL_SLOT``; pass a tuple for several key columns."""
        return self._job.slot_of_key(key, self._runner.driver.parallelism)

    def state(self, name: str) -> dict[Any, Any]:
        """Returns a state by key, as the next batch would find it; of a map state, a dict by map key for each key.

        Raises:
            InvalidInputError: No row has used a state of this name, or a batch has failed and was not run again.
        """
        now_ms = self._job.processing_time_ms
        found: dict[Any, Any] = {}
        for entry in self._entries(name):
            if entry.expires_ms is not None and entry.expires_ms <= now_ms:
                continue
            if entry.user_key is None:
                found[entry.key] = entry.value
            else:
                found.setdefault(entry.key, {})[entry.user_key] = entry.value
        return found

    def operator_state(self, name: str) -> list[list[Any]]:
        """Returns the elements of an operator state by slot, as the next batch would find them.

        Raises:
            InvalidInputError: No function has declared an operator state of this name, or a batch has failed and was not run again.
        """
        found: list[list[Any]] = [[] for _ in range(self._runner.driver.parallelism)]
        for entry in self._entries(name):
            if entry.slot is not None:
                found[entry.slot].append(entry.value)
        return found

    def broadcast_state(self, name: str) -> dict[Any, Any]:
        """Returns a broadcast state, as the next batch would find it. All slots have the same copy.

        Raises:
            InvalidInputError: The job has no broadcast state of this name, or a batch has failed and was not run again.
        """
        return {entry.user_key: entry.value for entry in self._entries(name)}

    def event_time_timers(self) -> list[tuple[Any, int]]:
        """Returns key and time (milliseconds since the epoch) of every event-time timer that has not fired."""
        return self._timers("event-timers")

    def processing_time_timers(self) -> list[tuple[Any, int]]:
        """Returns key and time (milliseconds since the epoch) of every processing-time timer that has not fired."""
        return self._timers("processing-timers")

    def _timers(self, name: str) -> list[tuple[Any, int]]:
        with suppress(InvalidInputError):  # no timer of this kind was ever registered
            return [(entry.key, entry.timestamp_ms) for entry in self._entries(name) if entry.timestamp_ms is not None]
        return []

    def _entries(self, name: str) -> list[StateEntry]:
        """Read a savepoint, which leaves the job's checkpoints as they are."""
        self._check_open()
        url = self._runner.savepoint(f"file://{self._folder}/inspection")
        return list(read_state(url, self._job.step.uid, name, unpickle=True))

    def close(self) -> None:
        """End the job. ``with`` does it too."""
        if not self._closed:
            self._closed = True
            self._runner.close()
            if self._temporary is not None:
                self._temporary.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the job is closed; use it within its with statement")


def _stored_key(url: str, step: StepSpec) -> StepKey | None:
    """The key of the step in a savepoint of a job with Spark; None if a test has taken the savepoint.

    Raises:
        NotRestorableError: The savepoint has no such step, or the step has another key.
    """
    metadata = open_checkpoint(url, open_store).metadata
    uids = sorted({str(info["uid"]) for info in metadata.states})
    if uids and step.uid not in uids:
        raise NotRestorableError(
            f"{url} contains state of uid {', '.join(map(repr, uids))}, but the test has {step.uid!r}",
            field="uid",
            remedy=f"Pass uid={uids[0]!r}",
        )
    stored = metadata.pipeline.step(step.uid) if metadata.pipeline is not None else None
    if stored is not None:
        check_stored_key(step.inputs[0], stored)
    return stored
