"""The coordinator's knowledge of batches: the one that runs, what slots acknowledged, and the changelogs since the base checkpoint. Pure.

A batch is *begun* by its first exchange and *committed* when Spark has written its commit, which is certain when the next batch begins.

In one batch, a step fires its timers up to its watermark, and what it emits then is older than that. It reaches the next step in the same batch.
So the watermark of a step never passes those that the steps before it had in the batch before, up to which they have emitted everything: a
step after another lives one batch behind it.

With ``watermark_by``, each value of an input's columns counts as an input. Values come and go, so a step keeps the watermark that it had reached.

An input of a step with ``idle_after`` is idle when the batches up to the last committed one show that it has had no rows for so long, by their
processing times: each batch reads what has arrived, so a batch that takes long makes no input idle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace

from statefulspark.checkpoint.formats.records import BatchRecord, ChangelogRef
from statefulspark.coordinator.batches.event_times import Delays, EventTimes, Mark, watermark_of
from statefulspark.coordinator.batches.totals import StepTotals
from statefulspark.coordinator.core.life import BatchParameters
from statefulspark.errors import InternalError
from statefulspark.keygroups import KeyGroupRange
from statefulspark.process.rows.value_times import NO_VALUES, VALUES_MAX, InputValueTimes, too_many_values
from statefulspark.rpc.messages.batches import Acknowledge

Position = tuple[int, int]
"""Progress of a job in this driver: input rows, then batches, that were processed and not abandoned since."""


def parameters_of(record: BatchRecord) -> BatchParameters:
    """The parameters that a batch record fixes."""
    return BatchParameters(
        batch=record.batch,
        watermarks=dict(record.watermarks),
        processing_time_ms=record.processing_time_ms,
        with_changelogs=record.without_changelogs is None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """An earlier attempt's work in a batch; takes the place of a slot's acknowledgement."""

    changelog: ChangelogRef
    max_event_time_ms: int | None
    second_max_event_time_ms: int | None
    event_times_by_value: InputValueTimes = NO_VALUES


@dataclass(slots=True)
class BatchLog:
    """The state of the job's batches; the caller guards it with a lock."""

    delays_ms: Mapping[str, Delays]
    """Watermark delay of each input per uid; its keys are all uids with event time or without."""
    after: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Uids of the steps before each step whose watermarks it does not pass; steps without any may be left out."""
    idle_after_ms: Mapping[str, int] = field(default_factory=dict)
    """Per uid of a step with ``idle_after``: time without rows after which an input of it is idle."""
    watermark_by: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    """Columns of each input by whose values its event times are known, per uid of a step with ``watermark_by``."""
    watermarks: Mapping[str, int | None] = field(default_factory=dict)
    """Watermarks of the last committed batch per uid."""
    committed: int = -1
    """Last batch known to be committed."""
    commits: int = 0
    """Batches that were committed after they ran in this driver."""
    current: BatchParameters | None = None
    acknowledgements: dict[tuple[str, int], Acknowledge | Adopted] = field(default_factory=dict)
    """Newest acknowledgement per (uid, slot) of the current batch."""
    without_rows: list[ChangelogRef] = field(default_factory=list)
    """Changelogs of the current batch with the operator state of slots that had no rows."""
    event_times: EventTimes = field(default_factory=EventTimes)
    """Greatest event times over committed batches."""
    base: int = -1
    """Batch of the base checkpoint: slots restore it, then the changelogs after it."""
    changelogs: list[ChangelogRef] = field(default_factory=list)
    """Changelogs of committed batches after ``base``, in batch order."""
    lacking: list[int] = field(default_factory=list)
    """Committed batches after ``base`` that left no changelogs: a slot that starts again cannot restore the state after them."""
    expected: dict[tuple[str, int], int] = field(default_factory=dict)
    """Last committed batch that reached the step in the slot, where it is later than ``expected_base``."""
    expected_base: int = -1
    """Last batch every slot has after being started from scratch."""
    timers: dict[tuple[str, int], tuple[int | None, int | None]] = field(default_factory=dict)
    """Earliest (event time, processing time) timer per (uid, slot)."""
    processing_time_ms: int = 0
    committed_time_ms: int | None = None
    """Processing time of the last batch that is known to be committed, in this attempt or before it; None if there is none."""
    position: Position = (0, 0)
    gained: dict[int, int] = field(default_factory=dict)
    """Input rows per committed batch after ``base`` that was processed in this driver: going back abandons them."""
    rows_in: int = 0
    rows_out: int = 0
    totals: dict[tuple[str, int], StepTotals] = field(default_factory=dict)
    """Of this driver's committed batches per (uid, slot)."""
    rows_before: dict[int, int] = field(default_factory=dict)
    """Rows of these per slot as of the last rescale."""

    def commit_current(self) -> None:
        """The current batch is committed. Does nothing when it already is."""
        if self.current is None or self.current.batch <= self.committed:
            return
        if any(isinstance(ack, Acknowledge) and ack.inline is not None for ack in self.acknowledgements.values()):
            raise InternalError("a changelog of the batch is not stored")
        batch = self.current.batch
        self.committed = batch
        self.commits += 1
        self.committed_time_ms = self.current.processing_time_ms
        self.watermarks = self.current.watermarks
        if not self.current.with_changelogs:
            self.lacking.append(batch)
        rows = 0
        for (uid, slot), ack in self.acknowledgements.items():
            self.expected[(uid, slot)] = batch
            if ack.changelog is not None:
                self.changelogs.append(ack.changelog)
            self._see(self.event_times, uid, ack, self.current.processing_time_ms)
            if isinstance(ack, Acknowledge):
                rows += ack.rows_in
                self.rows_out += ack.rows_out
                self.totals.setdefault((uid, slot), StepTotals()).add(ack)
        self.changelogs += self.without_rows
        self.rows_in += rows
        if self.acknowledgements:
            self.gained[batch] = rows
            self._move(rows, 1)

    def _move(self, rows: int, batches: int) -> None:
        self.position = (self.position[0] + rows, self.position[1] + batches)

    @staticmethod
    def _see(event_times: EventTimes, uid: str, ack: Acknowledge | Adopted, processed_ms: int) -> None:
        latest_ms = ack.max_event_time_ms, ack.second_max_event_time_ms
        event_times.see(uid, *latest_ms, by_value=ack.event_times_by_value, processed_ms=processed_ms)

    def chained_watermarks(self) -> dict[str, int]:
        """Watermarks of the last committed batch that those of later batches depend on: of steps after others, before others, with ``idle_after`` or ``watermark_by``."""
        chained = {*self.after, *self.idle_after_ms, *self.watermark_by, *(uid for before in self.after.values() for uid in before)}
        return {uid: mark for uid, mark in self.watermarks.items() if uid in chained and mark is not None}

    def next_parameters(
        self, batch: int, now_ms: int, *, drain: bool = False, with_changelogs: bool = True, ready: bool = True
    ) -> BatchParameters:
        """Fix a new batch's watermarks and processing time; neither ever goes back while no batch is abandoned.

        Args:
            batch: Its number.
            now_ms: Current time.
            drain: Whether the job is drained.
            with_changelogs: As in the parameters.
            ready: Whether every slot has reported its timers.
        """
        processed_ms = max(now_ms, self.processing_time_ms)
        for uid in self.idle_after_ms:
            self.event_times.await_rows(uid, processed_ms)
        return BatchParameters(
            batch=batch,
            watermarks={uid: self.watermark(uid, drain=drain, ready=ready) for uid in self.delays_ms},
            processing_time_ms=processed_ms,
            with_changelogs=with_changelogs,
        )

    def begin(self, parameters: BatchParameters) -> None:
        """Start a batch whose record is durable."""
        self.current = parameters
        self.processing_time_ms = parameters.processing_time_ms
        self.acknowledgements = {}
        self.without_rows = []

    def acknowledge(self, ack: Acknowledge) -> bool:
        """Take a slot's acknowledgement; False when it is of another batch than the current one."""
        if self.current is None or ack.batch != self.current.batch or self.committed >= ack.batch:
            return False
        key = (ack.uid, ack.slot)
        self.acknowledgements[key] = ack
        self.timers[key] = (ack.event_timer_ms, ack.processing_timer_ms)
        return True

    def check_values(self, ack: Acknowledge) -> None:
        """Check that the values of ``watermark_by`` stay few with those of an acknowledgement.

        Raises:
            InvalidInputError: There are too many.
        """
        for number, values in enumerate(ack.event_times_by_value):
            if not values:
                continue
            known = self.event_times.values(ack.uid, number) | values.keys()
            for (uid, _), other in self.acknowledgements.items():
                if uid == ack.uid:
                    known |= other.event_times_by_value[number].keys()
            if len(known) > VALUES_MAX:
                raise too_many_values(self.watermark_by[ack.uid][number], ack.uid)

    def forget_other_orders(self, uid: str, digest: str) -> bool:
        """Forget acknowledgements of the running batch whose rows of the broadcast stream were in another order; True if there were any."""
        others = [
            key
            for key, ack in self.acknowledgements.items()
            if key[0] == uid and isinstance(ack, Acknowledge) and ack.broadcast is not None and ack.broadcast.digest != digest
        ]
        for key in others:
            del self.acknowledgements[key]
        return bool(others)

    def watermark(self, uid: str, *, drain: bool = False, ready: bool = True) -> int | None:
        """Watermark of ``uid`` for a batch that begins now; see `next_parameters`."""
        before, seen, until_ms = self.after.get(uid, ()), self.event_times, self.committed_time_ms
        marks = [Mark(_MAX_WATERMARK)] if drain else self._own_marks(uid, seen, until_ms)
        if not before and self._follows_rows(uid):
            return watermark_of(marks)
        reached = self.watermarks.get(uid)
        if reached == _MAX_WATERMARK and not drain:
            reached = None  # the job was drained, and goes on
        if before and (not ready or any(map(self._has_due_timers, before))):
            return reached
        marks += [Mark(self._passed_on(each, drain=drain), not drain and self._is_idle(each, seen, until_ms)) for each in before]
        return _greatest(reached, watermark_of(marks))

    def _follows_rows(self, uid: str) -> bool:
        """True if the marks of a step's inputs never go back, so that its last watermark need not be known."""
        return uid not in self.idle_after_ms and uid not in self.watermark_by

    def _own_marks(self, uid: str, seen: EventTimes, until_ms: int | None) -> list[Mark]:
        """Marks of a step's inputs; none of those that have the watermark of the steps before."""
        return seen.marks(uid, self.delays_ms[uid], idle_after_ms=self.idle_after_ms.get(uid), until_ms=until_ms)

    def _is_idle(self, uid: str, seen: EventTimes, until_ms: int | None) -> bool:
        """True if all inputs of a step are idle, and all steps before it."""
        marks, before = self._own_marks(uid, seen, until_ms), self.after.get(uid, ())
        return bool(marks or before) and all(mark.idle for mark in marks) and all(self._is_idle(each, seen, until_ms) for each in before)

    def _passed_on(self, uid: str, *, drain: bool) -> int | None:
        """Up to where everything that ``uid`` emits has reached the steps after it."""
        reached = self.watermarks.get(uid)
        return self.watermark(uid) if reached == _MAX_WATERMARK and not drain else reached

    def _has_due_timers(self, uid: str) -> bool:
        """True if ``uid`` has yet to fire timers behind the watermark of the last batch, because that had no tick and did not reach every slot."""
        reached = self.watermarks.get(uid)
        timers = [event_timer for (owner, _), (event_timer, _) in list(self.timers.items()) if owner == uid and event_timer is not None]
        return reached is not None and min(timers, default=_MAX_WATERMARK) < reached

    def final_watermark(self, uid: str, until_ms: int | None = None) -> int | None:
        """Watermark that ``uid`` comes to if no more rows follow, counting what the current batch has acknowledged.

        A step after others comes to it when each of these has had a batch of its own.

        Args:
            uid: The step.
            until_ms: Time up to which the inputs stay without rows; None if no input becomes idle.
        """
        seen = self.event_times.copy()
        processed_ms = self.current.processing_time_ms if self.current is not None else 0
        for (owner, _), ack in self.acknowledgements.items():
            self._see(seen, owner, ack, processed_ms)
        return self._final(uid, seen, until_ms)

    def _final(self, uid: str, seen: EventTimes, until_ms: int | None) -> int | None:
        marks, before = self._own_marks(uid, seen, until_ms), self.after.get(uid, ())
        if not before and self._follows_rows(uid):
            return watermark_of(marks)
        reached = (self.watermarks if self.current is None else self.current.watermarks).get(uid)
        marks += [Mark(self._final(each, seen, until_ms), self._is_idle(each, seen, until_ms)) for each in before]
        return _greatest(None if reached == _MAX_WATERMARK else reached, watermark_of(marks))

    def tick_due(self, uid: str, now_ms: int, *, drain: bool = False) -> bool:
        """True if a timer of ``uid`` could fire in a batch that begins now."""
        watermark = _MAX_WATERMARK if drain else self.final_watermark(uid, now_ms)
        for (owner, _), (event_timer, processing_timer) in self.timers.items():
            if owner != uid:
                continue
            if event_timer == UNKNOWN_TIMER_MS:
                return True  # also without a watermark: a processing-time timer may be due
            if event_timer is not None and watermark is not None and event_timer <= watermark:
                return True
            if processing_timer is not None and processing_timer <= now_ms:
                return True
        return False

    def cleanup_due(self, due_ms: Iterable[int | None], now_ms: int) -> bool:
        """True if an idle job should run a batch without rows, because only batches move the clock by which state expires.

        Args:
            due_ms: What slots report of a step: when their cleanup needs a batch.
            now_ms: Current time.
        """
        if self.committed_time_ms is None or now_ms < self.committed_time_ms + _CLEANUP_PAUSE_MS:
            return False
        return any(due is not None and due <= now_ms for due in due_ms)

    def expected_batch(self, uid: str, slot: int) -> int:
        """Last committed batch that changed ``uid`` in ``slot``."""
        return self.expected.get((uid, slot), self.expected_base)

    def reset_slots(self) -> None:
        """All slots start from scratch at the committed batch (rescale, recovery); they report their timers again."""
        self.expected = {}
        self.expected_base = self.committed
        self.timers = {}
        self.rows_before = self._rows_by_slot()

    def slot_rows(self) -> dict[int, int]:
        """Rows of all keyed steps per slot since the last rescale: a slot of the same number had other key groups before."""
        return {slot: rows - self.rows_before.get(slot, 0) for slot, rows in self._rows_by_slot().items()}

    def _rows_by_slot(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for (_, slot), total in list(self.totals.items()):
            found[slot] = found.get(slot, 0) + total.rows_in
        return found

    def rebase(self, batch: int) -> None:
        """A checkpoint of ``batch`` is complete: earlier changelogs are no longer needed by this attempt."""
        self.base = batch
        self.changelogs = [ref for ref in self.changelogs if ref.batch > batch]
        self.lacking = [each for each in self.lacking if each > batch]
        self.gained = {each: rows for each, rows in self.gained.items() if each > batch}

    def fall_back(self, batch: int, changelogs: Iterable[ChangelogRef], lacking: Iterable[int] = ()) -> None:
        """The base checkpoint is damaged: slots restore the one of ``batch`` instead, and the changelogs after it, unless batches are ``lacking`` them."""
        self.base = batch
        self.lacking = sorted({*lacking, *self.lacking})
        known = {(ref.key, ref.member): ref for ref in (*changelogs, *self.changelogs)}
        self.changelogs = sorted((ref for ref in known.values() if batch < ref.batch <= self.committed), key=lambda ref: ref.batch)

    def can_restore(self, slot: int) -> bool:
        """True if a new incarnation of ``slot`` can be brought to where the job is; False if what the last one changed is nowhere else."""
        current = self.current
        running = current is not None and current.batch > self.committed and not current.with_changelogs
        return not self.lacking and not (running and any(index == slot for _, index in self.acknowledgements))

    def lacks(self, after: int, until: int) -> bool:
        """True if one of the batches ``after < batch <= until`` left no changelogs."""
        return any(after < batch <= until for batch in self.lacking)

    def go_back(self, other: BatchLog) -> None:
        """Continue from what ``other`` knows. Totals of this driver go on, because what was processed was processed."""
        for each in fields(self):
            if each.name not in _TOTALS:
                setattr(self, each.name, getattr(other, each.name))
        self.rows_before = self._rows_by_slot()
        abandoned = [rows for batch, rows in self.gained.items() if batch > self.committed]
        self._move(-sum(abandoned), -len(abandoned))
        self.gained = {batch: rows for batch, rows in self.gained.items() if batch <= self.committed}

    def changelogs_of(self, uid: str, key_groups: KeyGroupRange, after: int, until: int) -> list[ChangelogRef]:
        """Changelogs of ``uid`` that touch ``key_groups``, of batches ``after < batch <= until``."""
        return [ref for ref in self.changelogs if ref.uid == uid and _touches(ref, key_groups) and after < ref.batch <= until]

    def adopt(
        self,
        parameters: BatchParameters,
        done: Iterable[Adopted],
        slots: Iterable[KeyGroupRange],
    ) -> None:
        """Commit a batch that an attempt processed completely. Nothing that the present slots acknowledged of it counts.

        Args:
            parameters: of the batch.
            done: its changelogs with their event times.
            slots: key groups of the present slots, which stand at the batch before and catch up.
        """
        taken = list(done)
        self.begin(replace(parameters, with_changelogs=True))
        for number, each in enumerate(taken):
            # Attempts of another parallelism have other slots of the same number, so the number here only tells entries apart.
            self.acknowledgements[(each.changelog.uid, -1 - number)] = each
        self.commit_current()
        self.commits -= 1
        self.expected = {key: batch for key, batch in self.expected.items() if key[1] >= 0}
        for index, key_groups in enumerate(slots):
            # Slots do not run steps that the job no longer has, so these neither catch up nor report timers.
            for uid in self.delays_ms.keys() & {each.changelog.uid for each in taken if _touches(each.changelog, key_groups)}:
                self.expected[(uid, index)] = parameters.batch
                # Its timers are known once the slot has caught up, so let a tick go there.
                self.timers[(uid, index)] = (UNKNOWN_TIMER_MS, None)


def _greatest(*marks: int | None) -> int | None:
    return max((mark for mark in marks if mark is not None), default=None)


def _touches(ref: ChangelogRef, key_groups: KeyGroupRange) -> bool:
    return ref.first <= key_groups.last and key_groups.first <= ref.last


_TOTALS = frozenset({"commits", "position", "gained", "rows_in", "rows_out", "totals", "rows_before"})
_MAX_WATERMARK = (1 << 63) - 1
_CLEANUP_PAUSE_MS = 60_000
"""Shortest time between a batch and one that only the cleanup of expired state needs."""
UNKNOWN_TIMER_MS = -_MAX_WATERMARK
"""Stands for the first timer of a slot that has not caught up with an adopted batch: always due, so that a tick goes there."""
