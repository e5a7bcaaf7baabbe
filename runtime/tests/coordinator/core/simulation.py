"""A job of which only the core is real: Spark, sink, slots, storage and the drivers around the core are a few sets and a dice.

Each turn something happens that could happen next: a task reports, a step ends or fails, a result comes twice or too late, the query or the driver is
started again, the job goes back. After each event, what the core wants is compared with what is durable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from statefulspark.coordinator.core import actions as do
from statefulspark.coordinator.core import events
from statefulspark.coordinator.core.decide import Decision
from statefulspark.coordinator.core.life import BatchParameters, Life, Part, Spark
from statefulspark.rpc.messages.batches import PartitionRun


@dataclass(kw_only=True)
class Storage:
    """Everything that outlives a driver."""

    records: dict[int, BatchParameters] = field(default_factory=dict)
    """The newest of each batch."""
    changelogs: dict[tuple[int, int], set[Part]] = field(default_factory=dict)
    """Durable parts by attempt and batch."""
    parts: dict[tuple[int, int], frozenset[Part]] = field(default_factory=dict)
    """All parts that the batch has in that attempt."""
    jumps: set[int] = field(default_factory=set)
    """Batches that stand for a way back."""
    sink: set[int] = field(default_factory=set)
    """Batches that the sink has."""


class Simulation:
    """One life of a job.

    Args:
        dice: Decides everything.
        decided: The core, or one with a fault.
        group: True if the driver stores changelogs.
        goes_back: True if batches run without changelogs, so that the job goes back when a slot is lost.
    """

    def __init__(
        self, dice: Random, decided: Callable[[Life, events.Event], Decision], *, group: bool = False, goes_back: bool = False
    ) -> None:
        self.dice = dice
        self.decided = decided
        self.storage = Storage()
        self.events = 0
        self.group = group
        self.goes_back = goes_back
        self.slots = 3
        self.execution = 0
        self.attempt = 0
        self.clock = 0
        self.calm = False
        self.has_spark_state = dice.random() < 0.5
        self.committed_ever: list[int] = []
        self.uids = frozenset({"a", "b"})
        self.start_driver()

    # -- drivers and queries ---------------------------------------------------------------------------------------------

    def start_driver(self) -> None:
        """The driver of before is gone with all that it knew."""
        self.attempt += 1
        if self.attempt > 1 and self.dice.random() < 0.3:
            self.uids = self.dice.choice([frozenset({"a"}), frozenset({"a", "b"}), frozenset({"a", "c"})])
        last = max(self.storage.records, default=-1)
        self.planned, self.spark_committed, self.spark_state = last, last - 1 if last >= 0 else -1, last - 1
        self.life = Life(
            uids=self.uids,
            parallelism=self.slots,
            group_changelogs=self.group,
            committed=last - 1 if last >= 0 else -1,
            again=self.storage.records.get(last),
        )
        self.pending: list[do.Action] = []
        self.late: list[events.Event] = []
        self.fixed: dict[int, BatchParameters] = {}
        self.inline: set[Part] = set()
        self.processed: set[Part] = set()
        self.start_query(first=True)

    def start_query(self, *, first: bool = False) -> None:
        self.tasks: dict[Part, str] = {}
        self.execution += 1
        self.reads: set[Part] = set()
        if not first and self.life.step is None:
            self.hand_over(self.feed(events.QueryStarts(self.spark())))
        self.running_query_dry = self.life.dry.running

    def parts(self) -> frozenset[Part]:
        return frozenset((uid, slot) for uid in self.uids for slot in range(self.slots))

    def spark(self) -> Spark:
        batch = self.life.in_question
        has_state = not self.has_spark_state or batch is None or batch > self.spark_committed or batch <= self.spark_state
        return Spark(planned=self.planned, committed=self.spark_committed, has_state=has_state)

    def rows_of(self, batch: int) -> set[Part]:
        """The parts that have rows in a batch: the same however often it runs."""
        dice = Random(batch)
        return {(uid, slot) for uid in ("a", "b", "c") for slot in range(4) if dice.random() < 0.6}

    # -- the core --------------------------------------------------------------------------------------------------------

    def feed(self, event: events.Event) -> tuple[do.Action, ...]:
        self.events += 1
        before = self.life
        self.life, actions = self.decided(self.life, event)
        steps = [
            action
            for action in actions
            if isinstance(action, do.WriteRecord | do.StartCheckpoint | do.Search | do.StoreLeftovers | do.GoBack)
        ]
        assert len(steps) <= 1, "one step at a time"
        if steps:
            assert self.life.step is not None
            assert self.life.step.number == steps[0].number
        for action in actions:
            self.check(action, before)
        return actions

    def check(self, action: do.Action, before: Life) -> None:
        match action:
            case do.Begin(parameters):
                assert self.storage.records.get(parameters.batch) == parameters, "a batch runs with other parameters than its record has"
                assert parameters.batch == before.committed + 1 or before.dry.batch == parameters.batch, (
                    "a batch runs before the one before is committed"
                )
                self.inline, self.processed, self.tasks, self.reads = set(), set(), {}, set()
            case do.Commit(batch):
                assert before.committed == batch - 1, "a batch counts twice, or before the one before it"
                durable, parts = self.durable(batch), self.parts()
                is_exempt = before.running is not None and not before.running.parameters.with_changelogs
                assert parts <= durable or is_exempt, f"a batch counts although changelogs are not durable: {sorted(parts - durable)}"
                assert self.rows_of(batch) & parts <= self.processed, "a batch counts although rows were not processed"
                self.committed_ever.append(batch)
            case do.StartCheckpoint():
                assert self.life.running is None, "a checkpoint starts in the middle of a batch"
            case do.Fail(batch):
                raise AssertionError(f"the job fails in batch {batch}, although nobody has left out rows twice")
            case _:
                pass

    # -- what may happen next --------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Let one thing happen."""
        moves = [
            self.spark_goes_on,
            self.spark_goes_on,
            self.task_goes_on,
            self.task_goes_on,
            self.task_goes_on,
            self.work,
            self.work,
            self.poll,
        ]
        if not self.calm:
            moves += [self.late_result, self.task_of_old_batch]
            if self.dice.random() < 0.08:
                moves = [
                    self.restart_query,
                    self.crash,
                    self.partial_read,
                    self.partial_read,
                    self.checkpoint,
                    self.late_sink,
                    self.rescale,
                    self.dispute,
                    self.go_back,
                    self.swallow,
                ]
        self.dice.choice(moves)()

    def poll(self) -> None:
        self.hand_over(self.feed(events.Looked(self.spark())))
        if self.life.dry_run_due(self.spark()) and self.life.step is None:
            self.start_query()

    def checkpoint(self) -> None:
        self.hand_over(self.feed(events.CheckpointDue()))

    def restart_query(self) -> None:
        if self.life.step is None:
            self.start_query()

    def crash(self) -> None:
        self.start_driver()

    def spark_goes_on(self) -> None:
        if self.planned == self.spark_committed:
            if not self.running_query_dry:
                self.planned += 1
            return
        batch = self.planned
        if not self.running_query_dry and batch in self.storage.sink and not self.life.is_running(batch):
            self.spark_committed = batch  # the sink has it, so Spark runs nothing
            return
        if not self.life.accepts(batch):
            with_changelogs = not self.goes_back or self.life.committed < 0
            self.hand_over(self.feed(events.Asked(batch=batch, spark=self.spark(), with_changelogs=with_changelogs)))
            return
        if self.reads >= self.parts():
            self.commit_spark(batch)

    def commit_spark(self, batch: int) -> None:
        self.spark_committed = batch
        if self.reads:
            self.spark_state = max(self.spark_state, batch)
        if not self.running_query_dry:
            self.storage.sink.add(batch)
            if not self.calm and self.dice.random() < 0.1:
                self.crash()

    def late_sink(self) -> None:
        """A driver that was replaced commits its sink at last."""
        if self.planned > self.spark_committed and any(self.is_complete(each, self.planned) for each in range(1, self.attempt)):
            self.storage.sink.add(self.planned)
            if self.dice.random() < 0.7:
                self.restart_query()

    def rescale(self) -> None:
        """Other slots, between two batches."""
        if self.life.is_idle and self.planned == self.spark_committed == self.life.committed:
            self.slots = self.dice.randrange(1, 5)
            self.feed(events.Rescaled(self.slots))

    def dispute(self) -> None:
        """Slots got broadcast rows in different orders: the query fails, and its next run counts."""
        running = self.life.running
        if running is not None and self.life.accepts(running.batch) and self.spark_committed < running.batch and not self.goes_back:
            uid = self.dice.choice(sorted(self.uids))
            kept = frozenset(part for part in running.acknowledged if part[0] != uid)
            self.feed(events.OrdersCompared(uid, kept, True))
            self.inline = {part for part in self.inline if part[0] != uid or part in running.rowless}
            self.durable(running.batch).difference_update(running.acknowledged - kept)
            self.restart_query()

    def go_back(self) -> None:
        """A slot has lost what is stored nowhere: the job continues after a jump, under new numbers."""
        if not self.goes_back or self.life.step is not None:
            return
        (action,) = self.feed(events.MustGoBack(self.planned))
        assert isinstance(action, do.GoBack)
        assert action.used >= max([self.life.committed, self.planned, *self.storage.records]), "a number is used twice"
        answers = self.feed(events.Asked(batch=max(self.planned, 0), spark=self.spark()))
        assert answers in ((do.Wait(),), (do.Refuse(max(self.planned, 0)),)), "a batch runs on the way back"
        if self.fails():
            self.result(events.StepFailed(action.number))
            return
        jump = BatchParameters(batch=action.used + 1, watermarks={}, processing_time_ms=self.clock)
        self.storage.records[jump.batch] = jump
        self.storage.jumps.add(jump.batch)
        self.planned = self.spark_committed = self.spark_state = jump.batch
        self.result(events.WentBack(action.number, action.used, jump))
        self.pending = []
        self.start_query()

    def partial_read(self) -> None:
        """The sink returns although it has not read everything."""
        if self.planned > self.spark_committed and self.life.accepts(self.planned) and not self.running_query_dry:
            self.commit_spark(self.planned)
            self.spark_state = max(self.spark_state, self.planned)

    def swallow(self) -> None:
        """The sink goes on although its last task has failed, because the driver could not store what slots had sent."""
        batch = self.planned
        if self.spark_committed < batch and self.life.accepts(batch) and not self.running_query_dry:
            for part in sorted(self.parts() - self.reads):
                if part in self.rows_of(batch):
                    self.feed(events.PartitionBegun(part))
                    self.acknowledge(part, batch)
                else:
                    self.report_empty(part, batch)
            self.commit_spark(batch)

    def task_goes_on(self) -> None:
        if self.planned == self.spark_committed or not self.life.accepts(self.planned):
            return
        batch, part = self.planned, (self.dice.choice(sorted(self.uids)), self.dice.randrange(self.slots))
        if part in self.reads:
            return
        if part not in self.rows_of(batch):
            self.report_empty(part, batch)
        elif part not in self.tasks:
            self.tasks[part] = "begun"
            self.feed(events.PartitionBegun(part))
        else:
            self.acknowledge(part, batch)

    def report_empty(self, part: Part, batch: int) -> None:
        run = PartitionRun(str(self.execution), part[1], self.events)
        if self.fails():
            self.feed(events.PartitionEmpty(part[0], batch, run))  # its task fails afterwards, and runs again
            run = PartitionRun(str(self.execution), part[1], self.events)
        self.answer(part, self.feed(events.PartitionEmpty(part[0], batch, run)), batch)

    def acknowledge(self, part: Part, batch: int) -> None:
        running = self.life.running
        is_inline = running is not None and running.grouped and self.dice.random() < 0.7
        actions = self.feed(events.Acknowledged(part, batch, not is_inline))
        if do.Refuse(batch) in actions:
            return
        self.processed.add(part)
        if is_inline:
            self.inline.add(part)
            self.durable(batch).discard(part)
        else:
            self.inline.discard(part)
            self.durable(batch).add(part)
        self.answer(part, actions, batch)

    def answer(self, part: Part, actions: tuple[do.Action, ...], batch: int) -> None:
        """The task is done when what the driver stores for it is durable."""
        if self.do_now(actions, batch):
            self.reads.add(part)

    def task_of_old_batch(self) -> None:
        """A task that nobody waits for any more."""
        batch = self.planned - self.dice.randrange(1, 3)
        if batch < 0 or self.life.is_running(batch):
            return
        before = self.life
        part = (self.dice.choice(sorted(self.uids)), self.dice.randrange(self.slots))
        self.feed(events.Acknowledged(part, batch, self.dice.random() < 0.5))
        assert self.life == before, "an acknowledgement counts although its batch has ended"

    # -- storage ---------------------------------------------------------------------------------------------------------

    def durable(self, batch: int) -> set[Part]:
        return self.storage.changelogs.setdefault((self.attempt, batch), set())

    def fails(self) -> bool:
        return not self.calm and self.dice.random() < 0.2

    def do_now(self, actions: tuple[do.Action, ...], batch: int) -> bool:
        """Store what a report leads to. False if storage does not answer."""
        for action in actions:
            if self.fails():
                return False
            if isinstance(action, do.KeepProofs):
                parts = frozenset((action.uid, slot) for slot in action.slots)
                if action.grouped:
                    self.inline |= parts
                else:
                    self.durable(batch).update(parts)
                unstored = frozenset(self.inline) if action.grouped else frozenset()
                if not self.do_now(self.feed(events.ProofsKept(action.uid, batch, action.slots, unstored)), batch):
                    return False
            elif isinstance(action, do.StoreGroup):
                self.store_group(batch)
                self.feed(events.GroupStored(batch, frozenset()))
        return True

    def store_group(self, batch: int) -> None:
        self.durable(batch).update(self.inline)
        self.inline = set()

    def hand_over(self, actions: tuple[do.Action, ...]) -> None:
        """Hand steps to those who carry them out."""
        for action in actions:
            if isinstance(action, do.WriteRecord | do.StartCheckpoint | do.Search | do.StoreLeftovers | do.Adopt):
                self.pending.append(action)
            elif isinstance(action, do.ForgetCommit):
                self.spark_committed, self.planned = action.batch - 1, action.batch
            elif isinstance(action, do.ForgetPlans):
                self.planned = min(self.planned, max(action.after, self.spark_committed))

    def result(self, event: events.Event) -> None:
        if not self.calm and self.dice.random() < 0.3:
            self.late.append(event)
        self.hand_over(self.feed(event))

    def late_result(self) -> None:
        """A result comes once more, when it is of no use."""
        if self.late:
            event = self.late.pop(self.dice.randrange(len(self.late)))
            if self.life.step is not None and self.life.step.number == getattr(event, "number", None):
                return  # it is the result of a step of now
            before = self.life
            self.feed(event)
            assert self.life == before, "a late result counts"

    def work(self) -> None:
        """Storage or slots answer, or do not."""
        match self.pending.pop(0) if self.pending else None:
            case do.WriteRecord() as action:
                self.write(action)
            case do.StartCheckpoint(number):
                # One that dies on the way is asked again.
                self.result(events.StepFailed(number) if self.fails() else events.CheckpointStarted(number))
            case do.StoreLeftovers(number) | do.Search(number) if self.fails():
                self.result(events.StepFailed(number))
            case do.StoreLeftovers(number, batch):
                self.store_group(batch)
                self.result(events.LeftoversStored(number, frozenset()))
            case do.Search(number, batch):
                self.result(events.Searched(number, self.complete(batch)))
            case do.Adopt() as action:
                self.adopt(action)
            case _:
                pass

    def write(self, action: do.WriteRecord) -> None:
        self.clock += 1
        stored = self.storage.records.get(action.batch)
        parameters = action.parameters or BatchParameters(batch=action.batch, watermarks={}, processing_time_ms=self.clock)
        is_answered, is_stored = not self.fails(), not self.fails()
        if is_answered or is_stored:
            own = self.fixed.get(action.batch)
            assert own in (None, parameters), "storage refuses another record of the same batch"
            assert stored is None or stored.processing_time_ms == parameters.processing_time_ms, (
                "a batch that has begun gets other parameters"
            )
            self.storage.records[action.batch] = self.fixed[action.batch] = parameters
            self.storage.parts[self.attempt, action.batch] = self.parts()
        event = events.RecordWritten(
            number=action.number,
            parameters=parameters,
            is_certain=is_answered,
            checkpoint=action.parameters is None or self.dice.random() < 0.5,
        )
        self.result(event)

    def complete(self, batch: int) -> frozenset[str] | None:
        """Steps of the newest attempt that has completed the batch, unless a later one with other steps has a part."""
        if batch in self.storage.jumps:
            return frozenset()
        later: set[frozenset[str]] = set()
        for attempt in range(self.attempt, 0, -1):
            if not self.storage.changelogs.get((attempt, batch)):
                continue
            steps = frozenset(uid for uid, _ in self.storage.parts[attempt, batch])
            if self.is_complete(attempt, batch):
                return steps if later <= {steps} else None
            later.add(steps)
        return None

    def is_complete(self, attempt: int, batch: int) -> bool:
        parts = self.storage.parts.get((attempt, batch))
        return parts is not None and self.storage.changelogs.get((attempt, batch), set()) >= parts

    def adopt(self, action: do.Adopt) -> None:
        batch, part = action.parameters.batch, (min(self.uids), 0)
        before = self.life
        assert do.Refuse(batch) in self.feed(events.Acknowledged(part, batch, True)), "a slot acknowledges what it must drop"
        assert self.life == before
        found = self.complete(batch)
        running = before.running
        if running is not None and running.computed:
            assert found == self.uids, "steps that the sink has read get nothing"
        self.result(events.Adopted(action.number, True))
        self.committed_ever.append(batch)

    # -- the end ---------------------------------------------------------------------------------------------------------

    def calm_down(self) -> None:
        """Without further trouble, all that was begun comes to its end."""
        self.calm = True
        for _ in range(3000):
            if self.life.is_idle and self.planned == self.spark_committed == self.life.committed:
                return
            self.turn()
        raise AssertionError(f"the job is stuck: {self.life}")
