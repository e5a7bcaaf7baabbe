"""Garbage collection at any point of any life of a job deletes nothing that is needed, and in the end everything else.

The oracle for references reads the stored JSON and knows only docs/formats.md. The oracle for state is a dict: every checkpoint and savepoint
that is left, and the job itself, are restored and compared with it.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from runtime.tests.checkpoint.bucket import DAY_S, Bucket, Killed, fail, kill
from runtime.tests.checkpoint.dict_store import DictStore
from runtime.tests.checkpoint.miniature import Miniature, apply
from runtime.tests.depth import examples

from statefulspark.checkpoint.catalog import checkpoint_ids
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.gc.collecting import GcResult, collect_garbage
from statefulspark.checkpoint.write.removal import remove_state
from statefulspark.checkpoint.write.retention import Retention
from statefulspark.errors import NotRestorableError, UnavailableError
from statefulspark.state.store.base import Change

GRACE_S = 6 * 3600.0
_LATE_S = 1800.0
"""How late an upload may be."""
State = dict[bytes, bytes]


def stored(bucket: Bucket, url: str) -> dict[str, tuple[bytes, float]]:
    """Objects below a URL by key."""
    prefix = url.removeprefix("mem://bucket/") + "/"
    return {key.removeprefix(prefix): value for key, value in bucket.objects.items() if key.startswith(prefix)}


def _paths_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if {"path", "checksum"} <= value.keys():
            yield value["path"]
        for each in value.values():
            yield from _paths_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from _paths_in(each)


def _body(data: bytes) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(data)["body"]
    return body


def needed(bucket: Bucket, url: str) -> set[str]:
    """Keys of everything that docs/formats.md says somebody needs: what documents name, and what nobody can name yet."""
    objects = stored(bucket, url)
    found = {key for key in objects if key == "_job" or key.startswith("attempts/")}
    for key, (data, _) in objects.items():
        if key.count("/") == 1 and key.endswith("/_metadata"):
            found |= {key, key.replace("_metadata", "_damaged")}
            found |= {posixpath.normpath(posixpath.join(posixpath.dirname(key), path)) for path in _paths_in(_body(data))}
    starts = {int(key[9:17]): _body(data) for key, (data, _) in objects.items() if re.fullmatch(r"attempts/\d{8}-start", key)}
    if not starts:
        return found
    newest = max(starts)
    records = {key for key in objects if key in starts[newest]["records"] or key.startswith(f"batches/{newest:08d}/")}
    for key in records:
        body = _body(objects[key][0])
        found |= {key, *(ack["key"] for ack in body["acks"]), *(pack["key"] for pack in body.get("spark_state", []))}
    since = max([number for number, start in starts.items() if not start["records"]], default=min(starts))
    bases = [_body(data) for key, (data, _) in objects.items() if re.fullmatch(r"chk-\d+/_metadata", key)]
    based = (
        body["batch"]
        for body in bases
        if body["attempt"] == newest or f"chk-{body['checkpoint_id']}/_metadata" in starts[newest]["checkpoints"]
    )
    last = max((int(key[17:]) for key in records), default=max(based, default=-1))
    of_batch = re.compile(r"(?:batches|changelog)/(\d{8})/(\d{12})")
    found |= {key for key in objects if (at := of_batch.match(key)) and int(at[1]) >= since and int(at[2]) >= last}
    found |= {key for key in objects if re.match(r"(batches|changelog)/", key) and int(key.split("/")[1]) > newest}
    claims = [at_s for key, (_, at_s) in objects.items() if re.fullmatch(r"attempts/\d{8}", key) and int(key[9:]) > newest]
    return found | {key for key, (_, at_s) in objects.items() if claims and at_s >= min(claims)}


class Life:
    """A job that lives through random steps, and the state that each of its snapshots must have."""

    def __init__(self, bucket: Bucket, url: str, folder: Path, origin: str | None = None, state: State | None = None) -> None:
        self.bucket, self.url, self.folder = bucket, url, folder
        self._numbers = count()
        self.mini = self._new()
        self.history: dict[int, State] = {-1: {}}
        self.expected: dict[str, State] = {}
        self._salt = 0
        self._removed_s = float("-inf")
        self._other: State | None = None
        """State of the branch that a driver is going to."""
        if origin is not None:
            self.expected["chk-1"] = state or {}
        self.mini.start(1, origin=origin)
        self.batch = self._committed()
        self.history[self.batch] = state or {}

    def _new(self) -> Miniature:
        local = self.folder / f"local-{next(self._numbers)}"
        local.mkdir(parents=True)
        return Miniature(self.bucket.open(self.url), local, DictStore, open_store=self.bucket.open)

    def _committed(self) -> int:
        assert self.mini.lineage is not None
        return self.mini.lineage.last_committed_in_spark

    def run_batch(self, choice: int) -> None:
        self._salt += 1
        batch = self.batch + 1
        changes: list[Change] = [(bytes([0, key_group, 0, 1]), b"%d" % self._salt) for key_group in {choice, (choice * 3) % 8}]
        self.history[batch] = apply(self.history[self.batch], changes)
        self.mini.begin(batch)
        self.mini.run(batch, changes)
        self.batch = batch

    def checkpoint(self, publish: int) -> None:
        """One that is abandoned may stand alone, if it was requested before the first batch."""
        self.expected[f"chk-{self._next_number()}"] = self.history[self.batch]
        self.mini.checkpoint(self.batch, publish_it=bool(publish) and self.batch >= 0)

    def savepoint(self, choice: int) -> None:
        """Savepoints in the job's own folder, some without ``_metadata``."""
        folder = f"savepoint-flights-{self.bucket.calls:012x}"
        self.expected[folder] = self.history[self.batch]
        self.mini.savepoint(self.mini.job, folder, self.batch)
        if choice % 2:
            self.bucket.objects.pop(f"{self.url.removeprefix('mem://bucket/')}/{folder}/_metadata")

    def late_upload(self, choice: int) -> None:
        """A slot that was presumed dead ends an upload, also shortly after the job's state was removed."""
        if self.batch >= 0 or self.bucket.clock_s - self._removed_s < _LATE_S:
            self.mini.job.put(paths.shared_key(choice), b"late")
        if self.batch >= 0:
            self.mini.job.put(paths.changelog_key(self.mini.attempt, self.batch, "u", 0, 1), b"late")

    def restart(self, parallelism: int) -> None:
        """A new driver goes on. If the one before died on its way to another branch, either branch may be the present one."""
        self.mini = self._new()
        self.mini.start(max(1, parallelism % 4))
        self.batch = self._committed()
        self._settle(self.mini.contents())

    def _settle(self, contents: State) -> None:
        if contents != self.history.get(self.batch):
            assert self._other is not None
            assert contents == self._other, "neither branch"
            self.history = {self.batch: self._other}
        self._other = None

    def rewind(self, choice: int) -> None:
        complete = [f"chk-{number}" for number in checkpoint_ids(self.mini.job) if self._is_complete(f"chk-{number}")]
        if not complete:
            return
        folder = complete[choice % len(complete)]
        self._other = self.expected[folder]
        self.expected[f"chk-{self._next_number()}"] = self._other
        self.mini = self._new()
        try:
            self.mini.start(1, origin=f"{self.url}/{folder}")
        except NotRestorableError:
            self.restart(1)  # the checkpoint is from before the first batch. A driver checks that before it claims an attempt
            return
        self.batch = self._committed()
        self._settle(self.mini.contents())

    def retain(self, retained: int) -> None:
        lineage = self.mini.lineage
        assert lineage is not None
        lineage = replace(lineage, record_keys=self.mini.lineage_now().record_keys)
        Retention(self.mini.job, retained=1 + retained % 3, orphan_age_s=30 * DAY_S).run(
            lineage, now_s=self.bucket.clock_s, check_fence=self.mini.check_fence
        )

    def cancel(self, _: int) -> None:
        """The job is cancelled without retained checkpoints, and started again with empty state."""
        assert self.mini.lineage is not None
        assert self.mini.lineage.claim is not None
        remove_state(self.mini.job, self.mini.lineage.claim, now_ms=0)
        self._removed_s = self.bucket.clock_s
        self.history = {-1: {}}
        self.restart(1)

    def wait(self, days: int) -> None:
        self.bucket.clock_s += days * DAY_S

    def gc(self, _: int = 0) -> GcResult:
        """Collect garbage and compare with the oracle of references."""
        before, names = stored(self.bucket, self.url), needed(self.bucket, self.url)
        at_s = self.bucket.clock_s
        result = self.collect()
        left = stored(self.bucket, self.url)
        assert not names.intersection(before) - left.keys(), "deleted an object that is needed"
        old = {key for key, (_, written_s) in left.items() if written_s < at_s - GRACE_S}
        assert old <= names, f"{sorted(old - names)}: left an old object that nobody needs"
        assert {each.key for each in result.plan.garbage} == before.keys() - left.keys()
        return result

    def collect(self) -> GcResult:
        return collect_garbage(self.url, open_store=self.bucket.open, now_s=self.bucket.clock_s, older_than_s=GRACE_S, dry_run=False)

    def _next_number(self) -> int:
        return max((int(key[4:].split("/")[0]) for key in stored(self.bucket, self.url) if key.startswith("chk-")), default=0) + 1

    def _is_complete(self, folder: str) -> bool:
        return f"{folder}/_metadata" in stored(self.bucket, self.url)

    def check(self) -> None:
        """Restore the job and every snapshot that is left."""
        for number, folder in enumerate(sorted(self.expected)):
            if self._is_complete(folder):
                copy = self._new()
                copy.job = self.bucket.open(f"mem://bucket/copies/{self.bucket.calls}-{number}")
                copy.start(1, origin=f"{self.url}/{folder}")
                assert copy.contents() == self.expected[folder], folder
        self.restart(2)


STEP = st.one_of(
    st.tuples(st.just("batch"), st.integers(0, 7)),
    st.tuples(st.just("batch"), st.integers(0, 7)),
    st.tuples(st.just("checkpoint"), st.sampled_from([0, 1, 1, 1])),
    st.tuples(st.just("checkpoint"), st.just(1)),
    st.tuples(st.just("savepoint"), st.integers(0, 1)),
    st.tuples(st.just("late"), st.integers(0, 9)),
    st.tuples(st.just("restart"), st.integers(1, 3)),
    st.tuples(st.just("rewind"), st.integers(0, 3)),
    st.tuples(st.just("retain"), st.integers(0, 2)),
    st.tuples(st.just("cancel"), st.just(0)),
    st.tuples(st.just("wait"), st.integers(1, 3)),
    st.tuples(st.just("gc"), st.just(0)),
)
DRIVER_STEP = STEP.filter(lambda step: step[0] not in ("wait", "gc", "cancel"))


def actions(life: Life) -> dict[str, Callable[[int], object]]:
    return {
        "batch": life.run_batch,
        "checkpoint": life.checkpoint,
        "savepoint": life.savepoint,
        "late": life.late_upload,
        "restart": life.restart,
        "rewind": life.rewind,
        "retain": life.retain,
        "cancel": life.cancel,
        "wait": life.wait,
        "gc": life.gc,
    }


def interrupted(how: str, life: Life) -> dict[str, Callable[[], object]]:
    """What happens before or after a call of a driver's step."""
    found: dict[str, dict[str, Callable[[], object]]] = {
        "gc within a step": {"before": life.collect},
        "killed": {"before": kill},
        "killed after": {"after": kill},
    }
    return found[how]


@settings(max_examples=examples(15, 100))
@given(
    steps=st.lists(STEP, max_size=14),
    between=DRIVER_STEP,
    call=st.integers(0, 60),
    how=st.sampled_from(["gc within a step", "a step within gc", "killed", "killed after"]),
    fork=st.booleans(),
)
@example(steps=[("batch", 1), ("checkpoint", 1), ("batch", 2), ("wait", 3)], between=("batch", 3), call=500, how="killed", fork=False)
@example(
    steps=[("batch", 1), ("checkpoint", 1), ("late", 1), ("wait", 2)], between=("checkpoint", 1), call=3, how="a step within gc", fork=True
)
@example(
    steps=[("batch", 1), ("checkpoint", 1), ("checkpoint", 1), ("wait", 2)],
    between=("retain", 0),
    call=4,
    how="a step within gc",
    fork=False,
)
def test_lives(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], between: tuple[str, int], call: int, how: str, fork: bool
) -> None:
    """Steps in any order, then one step and a collection, one within the other, or a step whose driver dies at any call."""
    bucket = Bucket()
    life = Life(bucket, "mem://bucket/flights", tmp_path_factory.mktemp("life"))
    for what, choice in steps:
        actions(life)[what](choice)
    forked = forked_from(life) if fork else None
    what, choice = between
    if how == "a step within gc":
        bucket.interrupt(call, before=lambda: actions(life)[what](choice))
        life.collect()
    else:
        bucket.interrupt(call, **interrupted(how, life))
        try:
            actions(life)[what](choice)
        except Killed:
            bucket.forget_interruption()
            life.gc()
            life.restart(1)
    bucket.forget_interruption()
    life.check()
    life.wait(2)
    life.gc()
    assert not life.gc().plan.garbage
    life.check()
    life.run_batch(5)
    if forked is not None:
        bucket.objects = {key: value for key, value in bucket.objects.items() if not key.startswith("flights/")}
        forked.check()
        forked.gc()
        forked.check()


def forked_from(life: Life) -> Life:
    """Another job that starts from the job's newest checkpoint and takes one of its own."""
    life.run_batch(6)
    life.checkpoint(1)
    newest = max(checkpoint_ids(life.mini.job))
    fork = Life(life.bucket, "mem://bucket/fork", life.folder / "fork", f"{life.url}/chk-{newest}", life.expected[f"chk-{newest}"])
    fork.run_batch(3)
    fork.checkpoint(1)
    return fork


def littered(folder: Path) -> Life:
    """A job whose folder has garbage of every kind."""
    life = Life(Bucket(), "mem://bucket/flights", folder)
    for number in range(3):
        life.run_batch(number)
        life.checkpoint(1)
    life.late_upload(2)
    life.savepoint(0)
    life.savepoint(1)
    life.rewind(0)
    life.run_batch(4)
    life.checkpoint(0)
    life.restart(2)
    life.mini.job.put(paths.spark_state_key(1, 0), b"left")
    life.wait(3)
    life.run_batch(5)
    return life


def test_garbage_of_every_kind_is_found(tmp_path: Path) -> None:
    """With size and age. Otherwise the tests below would prove nothing."""
    life = littered(tmp_path)
    before = stored(life.bucket, life.url)
    at_s = life.bucket.clock_s
    found = life.gc().plan.garbage
    assert {each.kind for each in found} == {"batch record", "changelog", "shared file", "pack", "checkpoint file", "savepoint file"}
    assert all(each.size_bytes == len(before[each.key][0]) for each in found)
    assert all(3 * DAY_S < each.age_s == at_s - before[each.key][1] for each in found)
    life.check()


@pytest.mark.parametrize("reply", ["failed", "lost"])
def test_any_call_fails(tmp_path: Path, reply: str) -> None:
    """Storage does not answer one call, whether the call had an effect or not: what is needed stays, and the next run ends the work."""
    whole = littered(tmp_path / "whole")
    objects, clock_s, calls = dict(whole.bucket.objects), whole.bucket.clock_s, whole.bucket.calls
    whole.gc()
    left, calls = whole.bucket.objects, whole.bucket.calls - calls
    assert calls > 50
    for call in range(calls):
        whole.bucket.objects, whole.bucket.clock_s = dict(objects), clock_s
        names = needed(whole.bucket, whole.url)
        whole.bucket.interrupt(call, **({"before": fail} if reply == "failed" else {"after": fail}))
        with pytest.raises(UnavailableError):
            whole.collect()
        assert names <= stored(whole.bucket, whole.url).keys() | {key for key in names if "_damaged" in key}
        whole.gc()
        assert whole.bucket.objects.keys() == left.keys()
