"""A pipeline that does not fit the stored one is refused, and locations survive any sequence of pipelines, drivers and checkpoints."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import structlog.testing
from runtime.tests.checkpoint.test_source_offsets import Plan, sources

from statefulspark.checkpoint.formats.metadata import SlotState
from statefulspark.checkpoint.formats.pipeline import EXACT, TICKS, WIDENED, KeyColumn, Pipeline, SourceId, SparkStep, StepKey
from statefulspark.checkpoint.lineage.identity import ensure_job
from statefulspark.checkpoint.lineage.lineage import begin_attempt
from statefulspark.checkpoint.spark.location import LocationFiles
from statefulspark.checkpoint.spark.state_uploader import SparkStateUploader
from statefulspark.coordinator.batches.log import BatchLog
from statefulspark.coordinator.core.life import BatchParameters
from statefulspark.coordinator.durable.durable_job import DurableJob
from statefulspark.coordinator.durable.recovery import batch_log, recovered_batch, restore_location
from statefulspark.coordinator.snapshots.pending import PendingCheckpoint
from statefulspark.errors import NotRestorableError
from statefulspark.job.start.preflight import RestorableState, restorable_state
from statefulspark.job.start.stored_pipeline import check_pipeline, hashings, warn_of_repeated_steps
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.open import open_store

_READ = ("one", "two", "three")


def _key(*columns: tuple[str, str], hashing: int = WIDENED) -> StepKey:
    return StepKey(uid="count", hashing=hashing, columns=tuple(KeyColumn(name=name, type=kind) for name, kind in columns))


def _before(step: StepKey) -> RestorableState:
    return RestorableState(max_parallelism=8, uids=frozenset({"count"}), url="file:///job", pipeline=Pipeline(steps=(step,)))


@pytest.mark.parametrize(
    ("stored", "now"),
    [
        (_key(("k", "decimal(10,2)")), _key(("k", "decimal(12,4)"))),
        (_key(("a", "string"), ("b", "string")), _key(("b", "string"), ("a", "string"))),
        (_key(("a", "string")), _key(("a", "string"), ("b", "string"))),
        (_key(("k", "date")), _key(("k", "timestamp"))),
        (_key(("k", "int")), _key(("k", "string"))),
        (_key(("k", "int"), hashing=EXACT), _key(("k", "bigint"), hashing=EXACT)),
    ],
)
def test_a_key_under_which_no_state_would_be_found_is_refused(stored: StepKey, now: StepKey) -> None:
    """Both keys are printed; nothing has been claimed."""
    with pytest.raises(NotRestorableError) as refusal:
        check_pipeline(_before(stored), Pipeline(steps=(now,)), may_drop=True)
    assert f"the key of step 'count' was {stored} when its state was stored, and is {now} now" in str(refusal.value)
    assert "before key_by as they were, or give the step a new uid" in str(refusal.value)


@pytest.mark.parametrize(
    ("stored", "now", "found"),
    [
        ("user", "user = id", True),
        ("user = id", "user", True),
        ("user = id", "user = id", True),
        ("user = id", "user = account", False),
        ("user = user", "user = account", False),
        ("user", "user = user", True),
        ("user", "id = user", False),
        ("user = id", "id", False),
    ],
)
def test_a_second_input_may_come_and_go(stored: str, now: str, found: bool) -> None:
    """The names of its key columns count only if there was one before, and is one now."""
    assert _key((now, "int")).finds_state_of(_key((stored, "int"))) is found
    assert not _key((now, "int")).finds_state_of(_key((stored, "string")))


def test_a_keyed_step_that_feeds_both_inputs_is_warned_of() -> None:
    """Spark would run it once per input, which is right but slow."""

    def ticks(uid: str) -> SourceId:
        return SourceId(provider=TICKS, identity=uid, label=f"ticks of {uid!r}", feeds=uid, number=0)

    with structlog.testing.capture_logs() as logs:
        warn_of_repeated_steps(Pipeline(sources=(ticks("first"), ticks("both"))))
        assert logs == []
        warn_of_repeated_steps(Pipeline(sources=(ticks("first"), ticks("first"), ticks("both"))))
    assert [(each["log_level"], each["uid"]) for each in logs] == [("warning", "first")]


def test_an_integer_that_becomes_wider_keeps_its_state() -> None:
    """Integers of every width have one hash in jobs that began with this release; others keep the hash that they began with."""
    check_pipeline(_before(_key(("k", "smallint"))), Pipeline(steps=(_key(("k", "bigint")),)), may_drop=False)
    exact = _key(("k", "int"), hashing=EXACT)
    assert hashings(_before(exact)) == {"count": EXACT}
    assert hashings(RestorableState(max_parallelism=8, uids=frozenset({"old"}), url="file:///job")) == {"old": EXACT}


_JOIN, _LIMIT = SparkStep(name="join of two streams", reads=("json a", "json b")), SparkStep(name="limit", reads=("json a",))
_OTHER = SparkStep(name="limit", reads=("json b",))


@pytest.mark.parametrize(
    ("stored", "now"), [((_JOIN, _LIMIT), (_LIMIT, _JOIN)), ((_JOIN,), (_JOIN, _LIMIT)), ((_LIMIT, _OTHER), (_OTHER, _LIMIT))]
)
def test_sparks_own_steps_that_change_places_are_refused(stored: tuple[SparkStep, ...], now: tuple[SparkStep, ...]) -> None:
    """Spark numbers them from the top of the plan, so one would get the state of another."""
    before = replace(_before(_key(("k", "int"))), spark_state=True, pipeline=Pipeline(spark_steps=stored))
    with pytest.raises(NotRestorableError, match=r"by their position in the plan: they were .* when it was stored, and are .* now"):
        check_pipeline(before, Pipeline(spark_steps=now), may_drop=True)
    check_pipeline(before, Pipeline(spark_steps=stored), may_drop=False)
    moved = tuple(step.model_copy(update={"reads": (*step.reads, "json new")}) for step in stored)
    check_pipeline(before, Pipeline(spark_steps=moved), may_drop=False)


class Past:
    """A job's folder, and what its sources have been read up to."""

    def __init__(self, folder: Path, chance: Random) -> None:
        self.folder = folder
        self.chance = chance
        self.store: ObjectStore = open_store(f"file://{folder}/job")
        ensure_job(self.store, "job", 32)
        self.read: dict[str, int] = {}
        """By what a source reads: its position after the newest planned batch."""
        self.planned = -1
        self.locations = 0

    def plan(self, before: Plan) -> Plan:
        """Another pipeline: steps come, go and change places; a source that was read stays."""
        kept = sorted({read for _, read in before})
        steps = self.chance.sample("abcde", self.chance.randint(len(kept) or 1, 5))
        plan = [(step, self.chance.choice([*kept, self.chance.choice(_READ)])) for step in steps]
        return [(step, read) for (step, _), read in zip(plan, kept, strict=False)] + plan[len(kept) :]

    def live(self, plan: Plan) -> None:
        """One driver with this pipeline: it finds every source where it was, plans batches, and is lost at any step."""
        pipeline = Pipeline(sources=sources(plan))
        check_pipeline(restorable_state(self.store, None, open_store), pipeline, may_drop=False)
        lineage = begin_attempt(self.store, now_ms=1, open_store=open_store)
        self.locations += 1
        root = self.folder / f"location-{self.locations}"
        files, state = LocationFiles(root), SparkStateUploader(root)
        restore_location(files, lineage, pipeline)
        self.planned = files.planned_batch()
        self._check(root, pipeline)
        durable = DurableJob(
            store=self.store,
            open_store=open_store,
            job_id="job",
            name="job",
            max_parallelism=32,
            backend="memory",
            lineage=lineage,
            savepoint_dir=None,
            retained=1,
        )
        durable.pipeline = pipeline
        log = batch_log(lineage, {})
        again = recovered_batch(lineage, log)
        for _ in range(self.chance.randint(0, 4)):
            log.commit_current()
            self._begin(durable, log, files, state, again)
            again = None
            if self.chance.random() < 0.3:
                return
            self._write(root, "commits", "c")
            if self.chance.random() < 0.3:
                log.commit_current()
                self._checkpoint(durable, log, files)

    def _begin(
        self, durable: DurableJob, log: BatchLog, files: LocationFiles, state: SparkStateUploader, again: BatchParameters | None
    ) -> None:
        if again is None:
            self.planned += 1
            assert durable.pipeline is not None
            self._plan_batch(files._root, durable.pipeline)
        parameters = again or log.next_parameters(self.planned, 1)
        durable.write_record(parameters, files, state, log)
        log.begin(parameters)

    def _plan_batch(self, root: Path, pipeline: Pipeline) -> None:
        """Spark writes offsets that are further, and each source's own log."""
        users = {source.number: source.identity for source in pipeline.sources if source.provider != TICKS}
        for identity in set(users.values()):
            self.read[identity] = self.read.get(identity, 0) + self.chance.randint(0, 3)
        for number, identity in users.items():
            self._write(root, f"sources/{number}", f"{identity} {self.read[identity]}")
        lines = [
            '{"tick": 7}' if each.provider == TICKS else f'{{"{each.identity}": {self.read[each.identity]}}}' for each in pipeline.sources
        ]
        self._write(root, "offsets", "\n".join(("v1", "{}", *lines)))

    def _write(self, root: Path, folder: str, content: str) -> None:
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder / str(self.planned)).write_text(content)

    def _checkpoint(self, durable: DurableJob, log: BatchLog, files: LocationFiles) -> None:
        progress = PendingCheckpoint(
            checkpoint_id=durable.next_checkpoint_id(),
            batch=log.committed,
            request=None,
            started_s=time.monotonic(),
            created_ms=1,
            savepoint_folder=None,
            base_checkpoint_id=None,
            full=False,
            frame={
                "files": files.all_files(batch=log.committed),
                "spark_state": (),
                "watermarks": {},
                "second_watermarks": {},
                "event_times_by_value": {},
                "batch_watermarks": {},
                "processing_time_ms": 1,
                "parallelism": 1,
            },
            waiting=set(),
            epochs={},
        )
        durable.publish(progress, (SlotState(slot=0, first=0, last=31, backend="memory"),), [])

    def _check(self, root: Path, pipeline: Pipeline) -> None:
        """Every source that was read stands where it was, and its log is its own and whole."""
        if self.planned < 0:
            return
        lines = (root / "offsets" / str(self.planned)).read_text().split("\n")[2:]
        for source, line in zip(pipeline.sources, lines, strict=True):
            if source.provider == TICKS:
                assert not (root / "sources" / str(source.number)).exists()
                continue
            assert line == (f'{{"{source.identity}": {self.read[source.identity]}}}' if source.identity in self.read else "-")
            logs = [path.read_text().split()[0] for path in (root / "sources" / str(source.number)).glob("*")]
            assert set(logs) <= {source.identity}
            assert bool(logs) == (source.identity in self.read)


@pytest.mark.parametrize("seed", range(12))
def test_sources_stand_where_they_were_through_any_sequence_of_pipelines(tmp_path: Path, seed: int) -> None:
    """Drivers are lost before and after each record, with checkpoints or without, and each one brings another pipeline."""
    chance = Random(seed)
    past = Past(tmp_path, chance)
    plan: Plan = [("a", "one")]
    for _ in range(8):
        past.live(plan)
        if past.planned >= 0:
            plan = past.plan(plan)
