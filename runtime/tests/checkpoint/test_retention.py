"""Retention never deletes what a restore needs and in the end deletes everything else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime.tests.checkpoint.dict_store import DictStore
from runtime.tests.checkpoint.miniature import Miniature, apply
from runtime.tests.depth import examples

from statefulspark.checkpoint.catalog import check_presence, checkpoint_ids, load, stored_sizes
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.lineage.lineage import read_record
from statefulspark.checkpoint.write.removal import remove_state
from statefulspark.checkpoint.write.retention import Retention, Situation, plan_retention
from statefulspark.errors import CorruptDataError, InvalidInputError, NotRestorableError
from statefulspark.state.store.base import Change
from statefulspark.storage.base import ObjectInfo
from statefulspark.storage.open import open_store

AGE_S = 1_000.0

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("batch"), st.integers(0, 7)),
        st.tuples(st.just("batch"), st.integers(0, 7)),
        st.tuples(st.just("checkpoint"), st.booleans()),
        st.tuples(st.just("checkpoint"), st.just(True)),
        st.tuples(st.just("restart"), st.integers(1, 3)),
        st.tuples(st.just("rewind"), st.integers(0, 2)),
        st.tuples(st.just("retention"), st.booleans()),
    ),
    max_size=14,
)


class History:
    """A job that lives through random steps, and the state after each batch of the branch it is on."""

    def __init__(self, folder: Path, retained: int) -> None:
        (folder / "local").mkdir()
        self.mini = Miniature(open_store((folder / "flights").as_uri()), folder / "local", DictStore)
        self.retention = Retention(self.mini.job, retained=retained, orphan_age_s=AGE_S)
        self.mini.start(1)
        self.states: dict[int, dict[bytes, bytes]] = {-1: {}}
        self.branches: dict[int, dict[int, dict[bytes, bytes]]] = {}
        self.batch = -1
        self.salt = 0

    def run_batch(self, choice: int) -> None:
        self.salt += 1
        changes: list[Change] = [(bytes([0, key_group, 0, 1]), b"%d" % self.salt) for key_group in {choice, (choice * 3) % 8}]
        self.mini.begin(self.batch + 1)
        self.mini.run(self.batch + 1, changes)
        self.batch += 1
        self.states[self.batch] = apply(self.states[self.batch - 1], changes)

    def checkpoint(self, publish: int) -> None:
        if self.batch < 0 and not publish:
            return  # a checkpoint begins when a batch is committed, so a given-up one never stands alone
        metadata = self.mini.checkpoint(self.batch, publish_it=bool(publish))
        if publish:
            self.branches[metadata.checkpoint_id] = {batch: state for batch, state in self.states.items() if batch <= self.batch}

    def restart(self, parallelism: int) -> None:
        self.mini.start(parallelism)
        self.batch = self._committed()
        self.check_contents()

    def _committed(self) -> int:
        assert self.mini.lineage is not None
        return self.mini.lineage.last_committed_in_spark

    def rewind(self, choice: int) -> None:
        complete = [number for number in checkpoint_ids(self.mini.job) if number in self.branches]
        if complete:
            number = complete[min(choice, len(complete) - 1)]
            origin = f"{self.mini.job.url}/chk-{number}"
            if max(self.branches[number]) < 0 <= max(self.states):
                with pytest.raises(NotRestorableError, match="before the first batch"):
                    self.mini.start(1, origin=origin)
                self.restart(1)  # a driver looks before it claims an attempt; here the claim has been made
                return
            self.states = dict(self.branches[number])
            back = self.mini.start(1, origin=origin)
            self.batch = self._committed()
            assert self.mini.base_id is not None
            self.branches[self.mini.base_id] = dict(self.states)  # the copy that the job stands on now
            self.states[self.batch] = self.states[back]  # whatever numbers were used meanwhile
            self.check_contents()

    def retain(self, late: int) -> None:
        now_s = max((info.modified_s for info in self.mini.job.list("")), default=0.0) + (AGE_S + 1 if late else 0)
        assert self.mini.lineage is not None
        lineage = replace(self.mini.lineage, record_keys=self.mini.lineage_now().record_keys)
        self.retention.run(lineage, now_s=now_s, check_fence=self.mini.check_fence)
        self.check_complete()

    def check_contents(self) -> None:
        assert self.mini.contents() == self.states[self.batch]

    def check_complete(self) -> None:
        """Every checkpoint that is left is whole, and each of the lineage leads to the same present state."""
        job = self.mini.job
        for number in checkpoint_ids(job):
            key = paths.metadata_key(paths.checkpoint_folder(number))
            if job.head(key) is not None:
                check_presence(load(job, key), key, stored_sizes(job, paths.checkpoint_folder(number)))
        lineage = self.mini.lineage_now()
        for folder in lineage.checkpoints:
            base_batch = load(job, folder).batch
            batch = base_batch
            for key in lineage.record_keys:
                record = read_record(job, key)
                if record.batch > base_batch:
                    assert record.previous == batch
                    batch = record.batch
                    assert all(job.head(ack.key) is not None for ack in record.acks if ack.batch > base_batch)


@settings(max_examples=examples(15, 100))
@given(steps=STEPS, retained=st.integers(1, 3), late=st.booleans())
def test_random_histories(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], retained: int, late: bool) -> None:
    """Batches, checkpoints (also given-up ones), rescaling restarts, going back, and retention at any point."""
    history = History(tmp_path_factory.mktemp("history"), retained)
    actions = {
        "batch": history.run_batch,
        "checkpoint": history.checkpoint,
        "restart": history.restart,
        "rewind": history.rewind,
        "retention": history.retain,
    }
    for what, choice in steps:
        actions[what](choice)
    history.retain(late)
    history.restart(2)
    # In the end nothing unneeded is left: as many checkpoints as are retained, and what they and the batches since need.
    for _ in range(retained):
        history.run_batch(1)
        history.checkpoint(1)
    history.retain(1)
    _assert_nothing_unneeded(history.mini, retained)
    history.restart(3)


def _assert_nothing_unneeded(mini: Miniature, retained: int) -> None:
    job = mini.job
    numbers = checkpoint_ids(job)
    assert len(numbers) == retained
    needed: set[str] = set()
    oldest = None
    for number in numbers:
        key = paths.metadata_key(paths.checkpoint_folder(number))
        metadata = load(job, key)
        oldest = metadata.batch if oldest is None else min(oldest, metadata.batch)
        needed |= {key, *(paths.resolve_reference(key, file.path) for file in metadata.files())}
    lineage = mini.lineage_now()
    records = {key: read_record(job, key) for key in lineage.record_keys}
    assert oldest is not None
    needed |= {key for key, record in records.items() if record.batch > oldest}
    needed |= {ack.key for record in records.values() for ack in record.acks if ack.batch > oldest}
    needed |= {ack.key for ack in mini.acks if ack.batch > oldest}
    left = {info.key for info in job.list("") if not info.key.startswith(("_job", "attempts/"))}
    assert left == needed


def _object(key: str, modified_s: float = 0.0) -> ObjectInfo:
    return ObjectInfo(key, 1, modified_s)


@pytest.fixture
def history(tmp_path: Path) -> History:
    """A job with three checkpoints of one batch each."""
    history = History(tmp_path, retained=1)
    for _ in range(3):
        history.run_batch(1)
        history.checkpoint(1)
    return history


def _situation(history: History, **changes: object) -> Situation:
    job = history.mini.job
    objects = job.list("")
    situation = Situation(
        checkpoints={number: load(job, f"chk-{number}/_metadata") for number in checkpoint_ids(job)},
        objects=objects,
        lineage=history.mini.lineage_now(),
        now_s=max(info.modified_s for info in objects),
    )
    return replace(situation, **changes)  # type: ignore[arg-type]  # the tests name fields of Situation


def test_checkpoints_that_exceed_the_maximum_age_go(history: History) -> None:
    """But not the newest one of the job, the pinned ones, and as many as the number allows."""
    completed_s = [load(history.mini.job, f"chk-{number}/_metadata").created_ms / 1000 for number in (1, 2, 3)]
    assert completed_s == [0.001] * 3
    situation = _situation(history, now_s=100.0)
    later = situation.checkpoints[2].model_copy(update={"created_ms": 60_000, "duration_ms": 10_000})
    situation = replace(situation, checkpoints={**situation.checkpoints, 2: later})
    assert plan_retention(situation, retained=3, max_age_s=100.0).checkpoints == ()
    assert plan_retention(situation, retained=3, max_age_s=30.0).checkpoints == (1,), "the time since their completion counts"
    assert plan_retention(situation, retained=3, max_age_s=29.0).checkpoints == (1, 2)
    assert plan_retention(situation, retained=3, max_age_s=1e-9).checkpoints == (1, 2)
    assert plan_retention(situation, retained=2, max_age_s=1e9).checkpoints == (1,)
    assert plan_retention(replace(situation, pins=(1,)), retained=3, max_age_s=0.0).checkpoints == (2,)
    assert plan_retention(replace(situation, damaged=(3,)), retained=3, max_age_s=0.0).checkpoints == (1,)


def test_the_newest_checkpoint_of_the_job_stays_although_those_of_another_branch_are_newer(history: History) -> None:
    """A driver that was replaced has published one more."""
    situation = _situation(history, now_s=1e9, lineage=history.mini.lineage)
    foreign = {number: situation.checkpoints[number].model_copy(update={"attempt": 99}) for number in (2, 3)}
    situation = replace(situation, checkpoints={**situation.checkpoints, **foreign})
    assert plan_retention(situation, retained=3, max_age_s=1.0).checkpoints == (2,)


def test_pinned_checkpoints_stay(history: History) -> None:
    """The base of a checkpoint that is being taken is kept beyond the number retained."""
    assert plan_retention(_situation(history), retained=1).checkpoints == (1, 2)
    assert plan_retention(_situation(history, pins=(2,)), retained=1).checkpoints == (1,)


def test_work_in_progress_stays_however_old(history: History) -> None:
    """Files and folders of a checkpoint in flight are kept; those nobody is working on are deleted only when old."""
    strays = [_object("shared/0000000009-" + "a" * 32), _object("chk-9/slot-0-x/MANIFEST")]
    now = {"objects": strays, "now_s": AGE_S + 1}
    assert plan_retention(_situation(history, **now), retained=1, orphan_age_s=AGE_S).rest == tuple(info.key for info in strays)
    assert plan_retention(_situation(history, **now, in_flight=(9,)), retained=1, orphan_age_s=AGE_S).rest == ()
    assert plan_retention(_situation(history, **now), retained=1, orphan_age_s=2 * AGE_S).rest == ()


def test_what_an_unreadable_checkpoint_may_name_stays(history: History) -> None:
    """Shared files are kept while an unreadable checkpoint is newer than what is retained; then both go."""
    assert any(key.startswith("shared/") for key in plan_retention(_without_references(history), retained=1).rest)
    newer = replace(_without_references(history), unreadable=(9,))
    assert not any(key.startswith("shared/") for key in plan_retention(newer, retained=1).rest)
    older = replace(_without_references(history), unreadable=(0,))
    assert any(key.startswith("shared/") for key in plan_retention(older, retained=1).rest)


def _without_references(history: History) -> Situation:
    """Checkpoint 3 names no shared file, so all of them are unreferenced once 1 and 2 go."""
    situation = _situation(history)
    bare = situation.checkpoints[3]
    slots = tuple(slot.model_copy(update={"shared": ()}) for slot in bare.slots)
    return replace(situation, checkpoints={**situation.checkpoints, 3: bare.model_copy(update={"slots": slots})})


def test_the_checkpoint_that_the_job_went_back_to_stays(history: History) -> None:
    """Checkpoints of the branch that was left do not push out the only one that the present state stands on: the job's copy of the first."""
    history.rewind(0)
    history.run_batch(2)
    history.retain(1)
    history.run_batch(3)
    history.restart(1)
    assert history.mini.lineage_now().checkpoints == ("chk-4/_metadata",)


def test_metadata_is_deleted_first(history: History) -> None:
    """A crash in the middle leaves files without a checkpoint, never a checkpoint without its files."""
    plan = plan_retention(_situation(history), retained=1)
    assert plan.first == ("chk-1/_metadata", "chk-2/_metadata")
    history.mini.job.delete(plan.first)
    history.check_complete()
    history.restart(1)


def test_a_damaged_newest_checkpoint_is_no_reason_to_delete_the_one_before(history: History) -> None:
    """With one checkpoint retained, the newest readable one stays and is what a restart uses."""
    job = history.mini.job
    job.put("chk-3/_metadata", b"{}")
    now_s = max(info.modified_s for info in job.list(""))
    history.retention.run(history.mini.lineage_now(), now_s=now_s, check_fence=history.mini.check_fence)
    assert job.head("chk-2/_metadata") is not None
    history.restart(1)


def test_removal_after_cancellation_leaves_savepoints_and_foreign_objects(history: History) -> None:
    """Everything of the job goes but what its owner keeps, and the number of its last attempt."""
    job = history.mini.job
    job.put("savepoint-x/_metadata", b"")
    job.put("notes.txt", b"")
    assert history.mini.lineage is not None
    assert history.mini.lineage.claim is not None
    remove_state(job, history.mini.lineage.claim, now_ms=0)
    last = history.mini.attempt + 1
    kept = ["_job", "notes.txt", "savepoint-x/_metadata", paths.attempt_key(last), paths.attempt_start_key(last)]
    assert sorted(info.key for info in job.list("")) == sorted(kept)
    assert history.mini.start(1) == -1


def test_at_least_one_checkpoint_is_retained(history: History) -> None:
    """Zero would delete the only way back."""
    with pytest.raises(InvalidInputError, match=r"checkpointing\.retained"):
        plan_retention(_situation(history), retained=0)


def test_latest_claims_stay(history: History) -> None:
    """Older ones go in ascending order, so that a driver which misses the claim after its own misses its own too."""
    lineage = replace(history.mini.lineage_now(), attempt=205)
    attempts = [_object(paths.attempt_key(number)) for number in (104, 105, 106, 205)]
    plan = plan_retention(_situation(history, objects=attempts, lineage=lineage), retained=1)
    assert (plan.rest, plan.claims) == ((), (paths.attempt_key(104), paths.attempt_key(105)))


def test_damage_seen_by_the_history(history: History) -> None:
    """The invariant used above can fail: it notices a shared file that was deleted too early."""
    job = history.mini.job
    job.delete([job.list("shared/")[0].key])
    with pytest.raises(CorruptDataError):
        history.check_complete()


def test_damaged_checkpoints_do_not_count(tmp_path: Path) -> None:
    """Of those that can be restored as many stay as are retained: the newest intact one is never given up for a damaged one."""
    history = History(tmp_path, retained=2)
    for _ in range(4):
        history.run_batch(1)
        history.checkpoint(1)
    job = history.mini.job
    for number in (2, 3):
        job.put(paths.damaged_key(paths.checkpoint_folder(number)), b"bytes changed")
    history.retain(0)
    complete = [number for number in checkpoint_ids(job) if job.head(paths.metadata_key(paths.checkpoint_folder(number))) is not None]
    assert complete == [1, 2, 3, 4], "damaged ones between them stay, to be looked at"
    history.batch = history.mini.start(1, damaged=tuple(f"{job.url}/chk-{number}" for number in (2, 3, 4)))
    history.check_contents()
    for _ in range(2):
        history.run_batch(2)
        history.checkpoint(1)
    history.retain(1)
    assert checkpoint_ids(job) == [5, 6]
