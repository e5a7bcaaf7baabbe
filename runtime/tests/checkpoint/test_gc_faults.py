"""The fault matrix of garbage collection: whatever fails, dies or comes late, what is named stays, and the next run ends the work."""

from __future__ import annotations

import copy
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from runtime.tests.checkpoint.bucket import DAY_S, Bucket
from runtime.tests.checkpoint.dict_store import DictStore
from runtime.tests.checkpoint.miniature import Miniature, apply
from runtime.tests.checkpoint.test_gc_lives import GRACE_S, Life, littered, needed, stored
from runtime.tests.depth import examples, left_to_test_all
from runtime.tests.faulty_calls import KINDS, Faults, KilledError
from runtime.tests.killed_calls import statuses_of_killed
from typer.testing import CliRunner

from statefulspark.checkpoint.catalog import OpenStore
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.gc import collecting
from statefulspark.checkpoint.gc.collecting import GcResult, collect_garbage
from statefulspark.cli.main import build_app
from statefulspark.errors import InvalidInputError, UnavailableError
from statefulspark.state.store.base import Change
from statefulspark.storage.keys import probe_key
from statefulspark.storage.open import open_store

_STEP = examples(4, 1)
"""`make test` takes every fourth call, and each that deletes."""


def _again(life: Life, objects: dict[str, tuple[bytes, float]], clock_s: float) -> Life:
    """The same job in a bucket of its own, as it was when these objects were there."""
    found = copy.copy(life)
    found.bucket = Bucket(objects=dict(objects), clock_s=clock_s)
    found.history, found.expected = dict(life.history), dict(life.expected)
    return found


def _collect(life: Life, opener: OpenStore) -> GcResult:
    return collect_garbage(life.url, open_store=opener, now_s=life.bucket.clock_s, older_than_s=GRACE_S, dry_run=False)


@pytest.mark.parametrize(
    "kind", ["late", "killed after", *left_to_test_all(each for each in KINDS if each not in ("late", "killed after"))]
)
def test_each_call_of_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The job lives on before storage makes what it had not answered, and everything can be restored then. A second run finds the rest."""
    monkeypatch.setattr(collecting, "KEYS_PER_REQUEST", 3)
    whole = littered(tmp_path)
    objects, clock_s = dict(whole.bucket.objects), whole.bucket.clock_s
    counted = _again(whole, objects, clock_s)
    faults = Faults(kind, 0, counted.bucket.open)
    garbage = _collect(counted, faults.open).plan.garbage
    assert len(garbage) > 6, "it takes several requests to delete them"
    outcomes, deletions = set(), 0
    deletes = {number for number, name in enumerate(faults.names, 1) if name == "delete"}
    for at in sorted(deletes.union(range(1 + len(kind) % _STEP, faults.calls + 1, _STEP))):
        life = _again(whole, objects, clock_s)
        names = needed(life.bucket, life.url) & stored(life.bucket, life.url).keys()
        faults = Faults(kind, at, life.bucket.open)
        try:
            _collect(life, faults.open)
        except (UnavailableError, InvalidInputError, KilledError) as error:
            outcomes.add(type(error))
        assert names <= stored(life.bucket, life.url).keys()
        if faults.late:
            deletions += 1
            life.restart(2)
            life.run_batch(6)
            life.checkpoint(1)
            names = needed(life.bucket, life.url) & stored(life.bucket, life.url).keys()
            for write in faults.late:
                write()
            assert names <= stored(life.bucket, life.url).keys()
            life.check()
        life.gc()
        assert not life.gc().plan.garbage
        if at % 9 == 0:
            life.check()
    assert len(outcomes) == (kind != "full"), "deleting is what helps if storage is full"
    assert (deletions > 1) == (kind == "late")


def collect_in_folder(opener: OpenStore, url: str) -> None:
    """Collect garbage in a process of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collecting, "KEYS_PER_REQUEST", 1)
        collect_garbage(url, open_store=opener, now_s=time.time() + 10 * DAY_S, older_than_s=DAY_S, dry_run=False)


def _lived(folder: Path) -> tuple[Miniature, dict[bytes, bytes], list[str]]:
    """A job on the local disk, its state, and what nobody needs of its objects."""
    (folder / "local").mkdir()
    mini = Miniature(open_store((folder / "flights").as_uri()), folder / "local", DictStore)
    mini.start(2)
    state: dict[bytes, bytes] = {}
    for batch in range(2):
        changes: list[Change] = [(bytes([0, group, 0, 1]), b"%d" % (batch + group)) for group in range(8)]
        mini.begin(batch)
        mini.run(batch, changes)
        state = apply(state, changes)
        mini.checkpoint(batch)
    orphans = [f"shared/0000000001-{digit * 32}" for digit in "abcdef"] + ["savepoint-flights-0123456789ab/slot-0-01234567/MANIFEST"]
    for key in orphans:
        mini.job.put(key, b"left")
    return mini, state, orphans


def test_a_process_that_is_killed(tmp_path: Path) -> None:
    """By SIGKILL before each of its calls, one process after another: the job has all it needs, and the next run deletes the rest."""
    mini, state, orphans = _lived(tmp_path)
    keys = {info.key for info in mini.job.list("")}
    url = mini.job.url
    counted = Faults("killed", 0)
    shutil.copytree(tmp_path / "flights", tmp_path / "copy" / "flights")
    collect_in_folder(counted.open, (tmp_path / "copy" / "flights").as_uri())
    calls = counted.names.index("delete") + 3  # each of the last two deletes an object before it dies
    assert calls < counted.calls
    points = sorted({*range(1, calls, _STEP), calls - 1, calls})
    statuses = statuses_of_killed(collect_in_folder, points, url)
    assert statuses == [-signal.SIGKILL] * len(points)
    left = {info.key for info in mini.job.list("")}
    assert keys - set(orphans) <= left
    assert 0 < len(left & set(orphans)) < len(orphans), "some have deleted an object before they died"
    collect_in_folder(open_store, url)
    assert {info.key for info in mini.job.list("")} == keys - set(orphans)
    assert mini.start(3) == 1
    assert mini.contents() == state


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_a_clock_that_jumps_an_hour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: float) -> None:
    """Ages are those of storage's clock if that is behind: uploads of a checkpoint that is being taken stay, whatever this machine believes."""
    mini, state, orphans = _lived(tmp_path)
    folder = Path(mini.job.url.removeprefix("file://"))
    old = time.time() - 3 * 3600
    os.utime(folder / orphans[0], (old, old))
    pending = mini.checkpoint(1, publish_it=False)
    clock = time.time
    monkeypatch.setattr("statefulspark.checkpoint.gc.collecting.time", type("Clock", (), {"time": staticmethod(lambda: clock() + jump_s)}))
    listed = {info.key for info in mini.job.list("")}
    left = probe_key()
    mini.job.put(left, b"")
    os.utime(folder / left, (old, old))
    result = CliRunner().invoke(build_app(), ["gc", mini.job.url, "--older-than", "1h"])
    assert result.exit_code == 0, result.output
    assert {info.key for info in mini.job.list("")} == listed - {orphans[0]}
    assert paths.metadata_key("chk-3") not in listed
    assert {paths.resolve_reference("chk-3/_metadata", file.path) for file in pending.files()} <= listed
    assert mini.start(1) == 1
    assert mini.contents() == state


@pytest.mark.parametrize("kind", ["full", "denied"])
def test_storage_that_is_full(tmp_path: Path, kind: str) -> None:
    """What helps is to delete, so the command does not depend on writing; the right to delete it needs."""
    mini, _, orphans = _lived(tmp_path)
    folder = Path(mini.job.url.removeprefix("file://"))
    for key in orphans:
        os.utime(folder / key, (0, 0))
    faults = Faults(kind, 1)

    def collected() -> GcResult:
        return collect_garbage(mini.job.url, open_store=faults.open, older_than_s=3600, dry_run=False)

    if kind == "full":
        assert {each.key for each in collected().plan.garbage} == set(orphans)
    else:
        with pytest.raises(InvalidInputError, match="denied delete"):
            collected()
    assert bool({info.key for info in mini.job.list("")} & set(orphans)) == (kind == "denied")
