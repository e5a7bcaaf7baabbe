"""What a canceled checkpoint has uploaded goes, whenever it arrives, and no deletion ever takes a file that a complete checkpoint names.

A state machine of one job: checkpoints whose uploads arrive one by one, or long after they were canceled; drivers that die, and that continue
after another one has taken over; retention by number and age under a clock that jumps; forks; garbage collection. The model is plain: sets of
keys, a dict per checkpoint, and the stored JSON read as docs/formats.md describes it.
"""

from __future__ import annotations

import json
import posixpath
import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test
from runtime.tests.checkpoint.bucket import DAY_S, Bucket, BucketStore
from runtime.tests.checkpoint.test_gc_lives import Life, State, stored
from runtime.tests.depth import examples

from statefulspark.checkpoint.catalog import checkpoint_ids
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.metadata import CheckpointMetadata
from statefulspark.checkpoint.write.canceled import CanceledUploads
from statefulspark.checkpoint.write.publish import publish
from statefulspark.checkpoint.write.retention import Retention
from statefulspark.errors import ConflictError, CorruptDataError
from statefulspark.storage.cancellation import Cancellation

URL = "mem://bucket/flights"
HOUR_S = 3600.0


@dataclass
class HeldStore:
    """Keeps what is written to it until the test lets it arrive; reads pass through."""

    inner: BucketStore
    held: list[tuple[str, bytes]] = field(default_factory=list)

    def put(self, key: str, data: bytes) -> None:
        self.held.append((key, data))

    def put_file(self, key: str, path: Path, cancellation: Cancellation | None = None) -> None:
        self.put(key, path.read_bytes())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@dataclass
class Taken:
    """A checkpoint that is not complete: what it has uploaded or will upload, and what would make it complete."""

    metadata: CheckpointMetadata
    nonce: str
    state: State
    held: list[tuple[str, bytes]]
    keys: frozenset[str]


class CanceledLives(RuleBasedStateMachine):
    """Each rule is one step of the job, of a driver before it, of storage or of the clock."""

    folder: Path
    made = 0

    @initialize()
    def start(self) -> None:
        CanceledLives.made += 1
        self.bucket = Bucket()
        self.life = Life(self.bucket, URL, self.folder / f"life-{CanceledLives.made}")
        self.last_id = 0
        self.pending: Taken | None = None
        self.canceled: list[Taken] = []
        """Of the driver that runs."""
        self.former: list[Taken] = []
        """Canceled by drivers that were replaced, which may still run."""
        self.frozen: list[Taken] = []
        """Those that a driver was about to publish when it was replaced."""
        self.late: list[tuple[str, bytes]] = []
        self.own_keys: set[str] = set()
        """Everything that canceled checkpoints have uploaded or will upload."""
        self.completed_s: dict[int, float] = {}
        self.forks: list[Life] = []

    # -- the job -----------------------------------------------------------------------------------------------------------

    @rule(choice=st.integers(0, 7))
    def run_batch(self, choice: int) -> None:
        self.life.run_batch(choice)

    @precondition(lambda self: self.pending is None and self.life.batch >= 0)
    @rule(uploaded=st.integers(0, 8))
    def begin_checkpoint(self, uploaded: int) -> None:
        """Number it as `DurableJob` does, so that two drivers may take the same number; so many of its objects arrive at once."""
        mini = self.life.mini
        self.last_id = max([self.last_id, *checkpoint_ids(mini.job)]) + 1
        nonce = paths.new_nonce()
        store = mini.job
        held = HeldStore(store)  # type: ignore[arg-type]  # lives use buckets
        mini.job = held
        for slot in mini.slots:
            slot.uploader._store = held
        created_ms = int(self.bucket.clock_s * 1000)
        metadata = mini.checkpoint(self.life.batch, publish_it=False, number=self.last_id, nonce=nonce, created_ms=created_ms)
        mini.job = store
        keys = frozenset(key for key, _ in held.held)
        arriving = sorted(held.held)
        cut = max(0, len(arriving) - uploaded)
        for key, data in arriving[cut:]:
            store.put(key, data)
        self.pending = Taken(metadata, nonce, self.life.history[self.life.batch], arriving[:cut], keys)

    @precondition(lambda self: self.pending is not None and self.pending.held)
    @rule(which=st.integers(0, 20))
    def upload(self, which: int) -> None:
        assert self.pending is not None
        held = self.pending.held
        self.life.mini.job.put(*held.pop(which % len(held)))

    @precondition(lambda self: self.pending is not None)
    @rule(answered=st.booleans())
    def complete(self, answered: bool) -> None:
        """If storage does not answer, the driver does not know that the checkpoint is complete, and must leave it alone."""
        assert self.pending is not None
        taken, self.pending = self.pending, None
        for key, data in taken.held:
            self.life.mini.job.put(key, data)
        try:
            self.publish(taken)
        except ConflictError:
            return  # another driver's, which continued after it was replaced: nothing is known of this one's _metadata
        except CorruptDataError:  # it took longer than garbage is old
            taken.held.clear()
            self.pending = taken
            self.cancel()
            return
        if answered:
            self.life.mini.base_id = taken.metadata.checkpoint_id

    def publish(self, taken: Taken) -> None:
        number = taken.metadata.checkpoint_id
        publish(self.life.mini.job, taken.metadata)
        self.life.expected[f"chk-{number}"] = taken.state
        self.completed_s[number] = (taken.metadata.created_ms + taken.metadata.duration_ms) / 1000

    @precondition(lambda self: self.pending is not None)
    @rule()
    def cancel(self) -> None:
        """Some uploads have arrived, others arrive later or never."""
        assert self.pending is not None
        taken, self.pending = self.pending, None
        self.late += taken.held
        self.own_keys |= taken.keys
        self.canceled.append(taken)
        self.delete(len(self.canceled) - 1)

    @precondition(lambda self: self.canceled)
    @rule(which=st.integers(0, 9))
    def delete(self, which: int) -> None:
        """Afterwards nothing is left of it, unless another driver has completed a checkpoint of this number."""
        taken = self.canceled[which % len(self.canceled)]
        number = taken.metadata.checkpoint_id
        self.uploads_of(taken).delete()
        left = stored(self.bucket, URL).keys()
        assert f"chk-{number}/_metadata" in left or not taken.keys & left

    def uploads_of(self, taken: Taken) -> CanceledUploads:
        return CanceledUploads(open_store=lambda: self.life.mini.job, checkpoint_id=taken.metadata.checkpoint_id, nonce=taken.nonce)

    @precondition(lambda self: self.late)
    @rule(which=st.integers(0, 50))
    def upload_late(self, which: int) -> None:
        """A slot was frozen, or an answer was lost."""
        self.life.mini.job.put(*self.late.pop(which % len(self.late)))

    @rule(parallelism=st.integers(1, 3))
    def replace_driver(self, parallelism: int) -> None:
        """The one before may be dead or frozen: what it was about to do comes later, or never."""
        self.former += self.canceled
        self.canceled = []
        if self.pending is not None:
            self.late += self.pending.held
            self.frozen.append(self.pending)
            self.pending = None
        self.last_id = 0
        self.life.restart(parallelism)

    # -- drivers that were replaced ----------------------------------------------------------------------------------------

    @precondition(lambda self: self.former)
    @rule(which=st.integers(0, 9))
    def delete_after_replacement(self, which: int) -> None:
        self.uploads_of(self.former[which % len(self.former)]).delete()

    @precondition(lambda self: self.frozen)
    @rule(cancels=st.booleans())
    def publish_after_replacement(self, cancels: bool) -> None:
        """It had checked its claim already. Or its checkpoint has timed out, and it deletes the uploads."""
        taken = self.frozen.pop()
        if cancels:
            self.own_keys |= taken.keys
            self.former.append(taken)
            self.uploads_of(taken).delete()
            return
        with suppress(ConflictError, CorruptDataError):  # there is one of this number, or an upload has not arrived
            self.publish(taken)

    @precondition(lambda self: self.pending is None and self.life.batch >= 0)
    @rule(uploaded=st.integers(0, 8), cancels=st.booleans(), answered=st.booleans())
    def take_over(self, uploaded: int, cancels: bool, answered: bool) -> None:
        """A driver is replaced before an upload of its checkpoint has arrived. The next one takes a checkpoint of the same number."""
        self.begin_checkpoint(0)
        self.replace_driver(1)
        self.run_batch(uploaded % 8)
        self.begin_checkpoint(uploaded)
        for key, data in self.late[-uploaded:]:
            self.life.mini.job.put(key, data)
        if answered:
            self.complete(answered)
        self.publish_after_replacement(cancels)

    # -- deletions ---------------------------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 3), max_age_s=st.sampled_from([None, 5.0, 1800.0]))
    def retain(self, count: int, max_age_s: float | None) -> None:
        """Exactly the checkpoints stay that the model keeps."""
        mini, lineage = self.life.mini, self.life.mini.lineage
        assert lineage is not None
        before = self.complete_numbers()
        inherited = {number for number in before if f"chk-{number}/_metadata" in lineage.checkpoints}
        own = [number for number in before if number in inherited or self.attempt_of(number) == mini.attempt]
        base = mini.base_id
        run = Retention(mini.job, retained=count, max_age_s=max_age_s, orphan_age_s=30 * DAY_S).run
        lineage = replace(lineage, record_keys=mini.lineage_now().record_keys)
        in_flight = () if self.pending is None else (self.pending.metadata.checkpoint_id,)
        now_s = self.bucket.clock_s
        run(lineage, now_s=now_s, in_flight=in_flight, pins=() if base is None else (base,), check_fence=mini.check_fence)

        def limited(numbers: list[int]) -> set[int]:
            newest, *older = sorted(numbers, reverse=True) or [0]
            recent = [number for number in older[: count - 1] if max_age_s is None or now_s - self.completed_s[number] <= max_age_s]
            return {newest, *recent}

        kept = limited(before) | limited(own) | {base}
        assert set(self.complete_numbers()) == kept & set(before)

    @rule()
    def collect_garbage(self) -> None:
        self.life.collect()

    # -- the world ---------------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([-HOUR_S, HOUR_S, 20.0, 7 * HOUR_S]))
    def set_clock(self, seconds: float) -> None:
        self.bucket.clock_s += seconds

    @precondition(lambda self: len(self.forks) < 2 and self.life.batch >= 0)
    @rule(which=st.integers(0, 5))
    def fork(self, which: int) -> None:
        """It copies what it starts from, so that the checkpoint may go afterwards."""
        numbers = self.complete_numbers()
        if numbers:
            number = numbers[which % len(numbers)]
            name = f"fork-{len(self.forks)}"
            state = self.life.expected[f"chk-{number}"]
            self.forks.append(Life(self.bucket, f"mem://bucket/{name}", self.life.folder / name, f"{URL}/chk-{number}", state))

    # -- the model ---------------------------------------------------------------------------------------------------------

    def complete_numbers(self) -> list[int]:
        return [int(match[1]) for key in stored(self.bucket, URL) if (match := re.fullmatch(r"chk-(\d+)/_metadata", key))]

    def attempt_of(self, number: int) -> int:
        return int(json.loads(stored(self.bucket, URL)[f"chk-{number}/_metadata"][0])["body"]["attempt"])

    @invariant()
    def every_file_of_a_complete_checkpoint_is_stored(self) -> None:
        objects = stored(self.bucket, URL)
        for key, (data, _) in objects.items():
            if key.endswith("/_metadata"):
                written = (match.decode() for match in re.findall(rb'"path": ?"([^"]+)"', data))
                named = {posixpath.normpath(posixpath.join(posixpath.dirname(key), path)) for path in written}
                assert named, "the invariant would prove nothing"
                assert named <= objects.keys()

    def teardown(self) -> None:
        """Whatever arrives late goes in the end, without the driver that canceled it, and all that is complete can be restored."""
        self.pending = None
        for key, data in self.late:
            self.life.mini.job.put(key, data)
        self.life.check()
        for number in range(2):
            self.life.run_batch(number)
        self.life.wait(2)
        self.life.collect()
        named = {key for key in stored(self.bucket, URL) if f"{key.partition('/')[0]}/_metadata" in stored(self.bucket, URL)}
        assert not (self.own_keys & stored(self.bucket, URL).keys()) - named
        self.life.check()
        self.bucket.objects = {key: value for key, value in self.bucket.objects.items() if not key.startswith("flights/")}
        for fork in self.forks:
            fork.check()


def test_canceled_lives(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The promises above hold after every step of random lives."""

    class Lives(CanceledLives):
        folder = tmp_path_factory.mktemp("lives")

    run_state_machine_as_test(Lives, settings=settings(max_examples=examples(20, 100), stateful_step_count=30, deadline=None))


def test_a_file_that_is_missing_is_noticed(tmp_path: Path) -> None:
    """The invariant can fail."""

    class Lives(CanceledLives):
        folder = tmp_path

    lives = Lives()
    lives.start()
    lives.run_batch(1)
    lives.begin_checkpoint(0)
    lives.complete(answered=True)
    lives.every_file_of_a_complete_checkpoint_is_stored()
    lives.life.mini.job.delete([lives.life.mini.job.list("shared/")[0].key])
    with pytest.raises(AssertionError):
        lives.every_file_of_a_complete_checkpoint_is_stored()


def test_another_drivers_checkpoint_of_the_same_number(tmp_path: Path) -> None:
    """Its files, and its uploads while it is not complete, are not those of the canceled one."""
    bucket = Bucket()
    store = bucket.open(URL)
    own, other = "1234567", "abcdef0"
    mine = [
        f"shared/0000000007-{own}{'0' * 25}",
        f"chk-7/slot-0-{own}0/MANIFEST",
        f"chk-7/slot-0-{own}1/operator",
        f"chk-7/spark-location-{own}0",
    ]
    others = [
        f"shared/0000000007-{other}{'0' * 25}",
        f"shared/0000000070-{own}{'0' * 25}",
        f"chk-7/slot-0-{other}0/MANIFEST",
        f"chk-70/slot-0-{own}0/MANIFEST",
        "chk-7/notes",
    ]
    for key in (*mine, *others):
        store.put(key, b"")
    uploads = CanceledUploads(open_store=lambda: store, checkpoint_id=7, nonce=own)
    assert uploads.delete() == 4
    assert [info.key for info in store.list("")] == sorted(others)
    assert uploads.delete() == 0
    for key in mine:
        store.put(key, b"late")
    store.put("chk-7/_metadata", b"")
    assert uploads.delete() == 0, "complete: retention decides"


def test_a_canceled_savepoint_leaves_nothing(tmp_path: Path) -> None:
    """Its folder is its own."""
    store = Bucket().open("mem://bucket/savepoints")
    for key in ("savepoint-a-1/slot-0-00000000/x", "savepoint-a-1/spark-location-00000000", "savepoint-a-12/_metadata"):
        store.put(key, b"")
    uploads = CanceledUploads(open_store=lambda: store, checkpoint_id=7, nonce="0" * 7, savepoint_folder="savepoint-a-1")
    assert uploads.delete() == 2
    assert [info.key for info in store.list("")] == ["savepoint-a-12/_metadata"]
