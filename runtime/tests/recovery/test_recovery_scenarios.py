"""What the runtime guarantees when something fails, one scenario per guarantee.

Each scenario is a list of rows and events, with the expected output beside it, written by hand. The function counts the rows of each user,
so a row that is lost gives a gap and a row that counts twice gives a jump. Everything but Spark is real; see `statefulspark.testing`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statefulspark import KeyedProcessFunction, RuntimeContext, StateTtlConfig, Time, Types, ValueStateDescriptor
from statefulspark.errors import FencedError, NotRestorableError, UserFunctionError
from statefulspark.testing import (
    ADVANCE,
    BATCH,
    CHECKPOINT,
    DAMAGE_CHECKPOINT,
    DOWNTIME,
    DRAIN,
    FAIL_STORAGE,
    KILL_DRIVER,
    KILL_DRIVER_AFTER_SINK_COMMIT,
    KILL_DRIVER_BEFORE_SINK_COMMIT,
    KILL_SLOT,
    PAUSE_DRIVER,
    RESCALE,
    RESTORE_FROM_SAVEPOINT,
    RESUME_DRIVER,
    RETRY_BATCH,
    SAVEPOINT,
    UPGRADE,
    TestingJob,
)

ADA, BOB = ("ada", 10), ("bob", 10)
"""Rows of two users, each with its event time in milliseconds."""
_INPUT = {"user": pa.string(), "at": pa.int64()}
_OUTPUT = {"user": pa.string(), "count": pa.int64()}


class Count(KeyedProcessFunction):
    """Counts the rows of each user. It caches counts in an attribute, as functions do, which must not survive an undone batch."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.cache: dict[str, int] = {}

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        count = (self.cache.get(value.user) or self.count.value() or 0) + 1
        self.cache[value.user] = count
        self.count.update(count)
        yield value.user, count


class CountWithFlag(Count):
    """Declares a state of its own before that of the code it replaces."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.flag = runtime_context.get_state(ValueStateDescriptor("flag", Types.LONG()))
        super().open(runtime_context)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.flag.update((self.flag.value() or 0) + 1)
        yield from super().process_element(value, ctx)


class Remind(KeyedProcessFunction):
    """Sets an event-time timer 100 ms after each row, and gives out the time of each timer that fires."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        ctx.timer_service().register_event_time_timer(value.at + 100)
        yield from ()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        yield ctx.get_current_key(), timestamp


class Alarm(Remind):
    """Sets a processing-time timer a second after each row."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        timers = ctx.timer_service()
        timers.register_processing_time_timer(timers.current_processing_time() + 1000)
        yield from ()


class Forget(KeyedProcessFunction):
    """Counts the rows of each user, and forgets a user a second after the last one."""

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor("count", Types.LONG())
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.seconds(1)).build())
        self.count = runtime_context.get_state(descriptor)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        yield value.user, self.count.value()


class Poisoned(Count):
    """Cannot process the rows of mallory."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield from super().process_element(value, ctx)
        if value.user == "mallory":
            raise ValueError("mallory is not welcome")


class Tenfold(Count):
    """A new release: gives out ten times the count."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        for user, count in super().process_element(value, ctx):
            yield user, 10 * count


class Renamed(KeyedProcessFunction):
    """Calls the count by another name."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("counted", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        yield value.user, self.count.value()


def job(function: KeyedProcessFunction | None = None, **settings: Any) -> TestingJob:
    """A job keyed by user, with one slot unless the scenario is about several."""
    return TestingJob(
        function if function is not None else Count(), _INPUT, _OUTPUT, key="user", event_time="at", **{"parallelism": 1, **settings}
    )


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
@pytest.mark.parametrize("when", ["idle", "before_changelog", "before_ack", "after_ack"])
def test_a_lost_slot_loses_and_repeats_no_row(backend: str, when: Any) -> None:
    """A slot that is lost at any moment of a batch counts every row exactly once, in output and state."""
    with job(backend=backend) as lost:
        items = [ADA, CHECKPOINT, ADA, KILL_SLOT(0, when), ADA, BOB]
        expected = [("ada", 1), ("ada", 2), ("ada", 3), ("bob", 1)]
        assert lost.run(items) == expected
        assert lost.state("count") == {"ada": 3, "bob": 1}


def test_a_lost_slot_leaves_the_others_alone() -> None:
    """Only the lost slot restores; keys of the other slot keep their state and their place in the output."""
    with job(parallelism=2) as two:
        assert two.slot_of("ada") != two.slot_of("joe")
        assert sorted(two.run([ADA, ("joe", 10)])) == [("ada", 1), ("joe", 1)]
        assert sorted(two.run([ADA, ("joe", 20), KILL_SLOT(two.slot_of("ada"), "before_ack")])) == [("ada", 2), ("joe", 2)]
        assert sorted(two.run([ADA, ("joe", 30)])) == [("ada", 3), ("joe", 3)]


def test_an_idle_slot_may_be_lost() -> None:
    """A slot without rows takes part in checkpoints and in every batch; losing it changes nothing."""
    with job(parallelism=2) as two:
        idle = 1 - two.slot_of("ada")
        assert two.run([ADA, CHECKPOINT, KILL_SLOT(idle), ADA, KILL_DRIVER, ADA]) == [("ada", 1), ("ada", 2), ("ada", 3)]


def test_a_driver_lost_before_the_sinks_commit_runs_the_batch_again() -> None:
    """Slots had acknowledged the batch and the sink had nothing: the batch runs again from the state before it."""
    with job() as lost:
        assert lost.run([ADA, ADA, KILL_DRIVER_BEFORE_SINK_COMMIT, ADA]) == [("ada", 1), ("ada", 2), ("ada", 3)]
        assert lost.batches == [[("ada", 1), ("ada", 2)], [("ada", 3)]]


def test_a_driver_lost_after_the_sinks_commit_does_not_run_the_batch_again() -> None:
    """The sink has the batch and Spark does not know: the state of the changelogs counts, and no row comes twice."""
    with job() as lost:
        assert lost.run([ADA, ADA, KILL_DRIVER_AFTER_SINK_COMMIT, ADA]) == [("ada", 1), ("ada", 2), ("ada", 3)]
        assert lost.state("count") == {"ada": 3}


def test_rows_since_the_checkpoint_come_back_from_changelogs() -> None:
    """A driver that is lost long after the last checkpoint loses nothing: every committed batch is durable by itself."""
    with job() as lost:
        items = [ADA, CHECKPOINT, BOB, BATCH, ADA, KILL_DRIVER, BOB, BATCH, ADA]
        expected = [("ada", 1), ("bob", 1), ("ada", 2), ("bob", 2), ("ada", 3)]
        assert lost.run(items) == expected


def test_a_job_without_a_checkpoint_recovers_too() -> None:
    """Changelogs alone rebuild the state from the beginning."""
    with job() as lost:
        items = [ADA, BATCH, BOB, KILL_DRIVER, BOB, KILL_DRIVER, ADA]
        expected = [("ada", 1), ("bob", 1), ("bob", 2), ("ada", 2)]
        assert lost.run(items) == expected


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_rescaling_keeps_state_and_timers(backend: str) -> None:
    """Scaling up, down, and a failure after it: each key finds its count in its new slot, and each timer fires once."""
    users = [(user, 10) for user in ("ada", "bob", "joe", "sam")]
    with job(backend=backend) as scaled:
        assert sorted(scaled.run([*users, RESCALE(3), *users, RESCALE(2), KILL_DRIVER, *users])) == [
            ("ada", 1), ("ada", 2), ("ada", 3),
            ("bob", 1), ("bob", 2), ("bob", 3),
            ("joe", 1), ("joe", 2), ("joe", 3),
            ("sam", 1), ("sam", 2), ("sam", 3),
        ]  # fmt: skip
    with job(Remind(), backend=backend) as scaled:
        assert sorted(scaled.run([*users, RESCALE(3), RESCALE(2), DRAIN])) == [("ada", 110), ("bob", 110), ("joe", 110), ("sam", 110)]


def test_a_savepoint_is_restored_with_another_parallelism() -> None:
    """The job goes back to the savepoint: rows since then are read again and counted from its state, on three slots."""
    with job() as restored:
        assert restored.run([ADA, BOB, SAVEPOINT, ADA]) == [("ada", 1), ("bob", 1), ("ada", 2)]
        assert restored.run([RESTORE_FROM_SAVEPOINT(parallelism=3)]) == [("ada", 2)]
        assert restored.run([BOB]) == [("bob", 2)]


def test_a_fork_does_not_disturb_its_origin(tmp_path: Path) -> None:
    """Two jobs go on from one savepoint; neither sees what the other counts, also after failures."""
    with job(folder=tmp_path / "origin") as origin:
        assert origin.run([ADA, SAVEPOINT]) == [("ada", 1)]
        with job(folder=tmp_path / "fork", restore_from=origin.savepoints[0]) as fork:
            assert fork.run([ADA, CHECKPOINT, ADA, KILL_DRIVER]) == [("ada", 2), ("ada", 3)]
            assert origin.run([KILL_DRIVER, ADA]) == [("ada", 2)]
            assert fork.run([ADA]) == [("ada", 4)]


def test_time_to_live_goes_on_across_restarts() -> None:
    """A state expires by the processing time at which it was written, however often the job restarts in between."""
    with job(Forget()) as forgetting:
        items = [ADA, DOWNTIME(900), ADA, CHECKPOINT, DOWNTIME(999), ADA, KILL_DRIVER, ADVANCE(1000), ADA]
        expected = [("ada", 1), ("ada", 2), ("ada", 3), ("ada", 1)]
        assert forgetting.run(items) == expected


@pytest.mark.parametrize("death", [[], [KILL_SLOT(0)], [KILL_DRIVER], [CHECKPOINT, KILL_DRIVER], [RESCALE(3)]])
def test_an_idle_job_deletes_what_has_expired(death: list[Any]) -> None:
    """One batch without rows runs once everything has expired, none before it, and none afterwards."""

    def seen(idle: TestingJob) -> tuple[int, int]:
        driver = idle._runner.driver
        return driver.planned() + 1, sum(len(list(service.store.scan(b"", b"\xff" * 9))) for service in driver.slots.values())

    with job(Forget()) as idle:
        idle.run([ADVANCE(1), ADA, BATCH, BOB, *death, ADVANCE(999)])
        # A batch of a lost driver is adopted, and a batch without rows finds out what timers it has set.
        ran = seen(idle)[0]
        assert ran == 2 or KILL_DRIVER in death
        idle.run([ADVANCE(2)])
        assert seen(idle)[0] == ran
        idle.run([ADVANCE(60_000)])
        assert seen(idle) == (ran + 1, 0)
        idle.run([ADVANCE(86_400_000), ADVANCE(86_400_000)])
        assert seen(idle) == (ran + 1, 0)


def test_a_job_that_is_drained_does_not_wait_for_state_to_expire() -> None:
    """It runs no batch for that alone."""
    with job(Forget()) as drained:
        drained.run([ADA, DRAIN])
        batches = drained._runner.driver.planned()
        drained.run([ADVANCE(60_000_000)])
        assert drained._runner.driver.planned() == batches


def test_an_event_time_timer_fires_once_after_recovery() -> None:
    """A timer survives the driver that registered it, and does not fire again when the batch in which it fired is lost."""
    with job(Remind()) as reminded:
        assert reminded.run([ADA, CHECKPOINT, KILL_DRIVER]) == []
        assert reminded.event_time_timers() == [("ada", 110)]
        assert reminded.run([("bob", 500), KILL_DRIVER]) == [("ada", 110)]
        assert reminded.run([KILL_SLOT(0), DRAIN, KILL_DRIVER]) == [("bob", 600)]
        assert reminded.event_time_timers() == []


def test_a_processing_time_timer_that_fell_due_during_downtime_fires_at_the_restart() -> None:
    """It fires once, with the time for which it was set."""
    with job(Alarm()) as alarmed:
        assert alarmed.run([ADA, ADVANCE(999)]) == []
        assert alarmed.run([DOWNTIME(60_000)]) == [("ada", 1000)]
        assert alarmed.run([ADVANCE(60_000)]) == []


def test_a_poison_row_fails_the_job_by_name_and_its_batch_leaves_no_trace() -> None:
    """The error carries the user's own exception; with fixed code the batch runs again and its rows count once."""
    with job(Poisoned()) as poisoned:
        assert poisoned.run([ADA]) == [("ada", 1)]
        with pytest.raises(UserFunctionError, match="mallory is not welcome"):
            poisoned.run([ADA, ("mallory", 20)])
        assert poisoned.output == [("ada", 1)]
        assert sorted(poisoned.run([UPGRADE(Count())])) == [("ada", 2), ("mallory", 1)]


def test_an_undone_batch_leaves_no_trace_in_attributes() -> None:
    """A task that runs again in the same slot starts with a fresh copy of the function: its cache does not remember the first run."""
    with job() as again:
        assert again.run([ADA, RETRY_BATCH, ADA, ADA, RETRY_BATCH]) == [("ada", 1), ("ada", 2), ("ada", 3)]


@pytest.mark.parametrize("lost", ["request", "answer"])
@pytest.mark.parametrize("writes", [1, 2, 3])
def test_storage_that_fails_costs_no_row(writes: int, lost: Any) -> None:
    """Whether a write was lost or only its answer: the batch keeps its rows and counts them once."""
    with job() as unlucky:
        assert unlucky.run([ADA, BATCH, ADA, FAIL_STORAGE(writes, lost), KILL_DRIVER, ADA]) == [("ada", 1), ("ada", 2), ("ada", 3)]


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(backend: str) -> None:
    """The job starts from the older checkpoint and the changelogs since, with nothing lost."""
    with job(backend=backend) as damaged:
        items = [ADA, CHECKPOINT, BOB, CHECKPOINT, ADA, DAMAGE_CHECKPOINT, KILL_DRIVER, BOB, BATCH, ADA]
        expected = [("ada", 1), ("bob", 1), ("ada", 2), ("bob", 2), ("ada", 3)]
        assert damaged.run(items) == expected


def test_a_driver_that_was_replaced_is_fenced() -> None:
    """A paused driver that resumes when another one runs the job is refused before it processes a row."""
    with job() as replaced:
        assert replaced.run([ADA, PAUSE_DRIVER, ADA, RESUME_DRIVER, ADA]) == [("ada", 1), ("ada", 2), ("ada", 3)]
        assert [type(error) for error in replaced.errors] == [FencedError]


def test_an_upgrade_keeps_the_state() -> None:
    """New code goes on with the counts of the old code."""
    with job() as upgraded:
        assert upgraded.run([ADA, UPGRADE(Tenfold()), ADA]) == [("ada", 1), ("ada", 20)]


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_an_upgrade_may_declare_another_state_first(backend: Any) -> None:
    """A state keeps its values whatever the order, also when the last batch before the upgrade was the first to use it."""
    with job(backend=backend) as upgraded:
        assert upgraded.run([ADA, ADA, UPGRADE(CountWithFlag()), ADA]) == [("ada", 1), ("ada", 2), ("ada", 3)]
        assert upgraded.state("count") == {"ada": 3}
        assert upgraded.state("flag") == {"ada": 1}


@pytest.mark.parametrize("before", [[ADA, CHECKPOINT], [ADA, BATCH, ADA], [ADA]])
def test_an_upgrade_that_renames_a_state_is_refused(before: list[Any]) -> None:
    """The state would start empty. The error names both states, no row is processed, and the old code goes on."""
    with job() as renamed:
        renamed.run(before)
        with pytest.raises(NotRestorableError, match=r"'counted'.*'count'"):
            renamed.run([UPGRADE(Renamed()), ADA])
        renamed.run([UPGRADE(Count()), BOB])
        rows = [count for user, count in renamed.output if user == "ada"]
        assert rows in ([*range(1, before.count(ADA) + 1)], [*range(1, before.count(ADA) + 2)]), (
            "with the row that was not processed, or without"
        )
        assert renamed.state("count") == {"ada": rows[-1], "bob": 1}
