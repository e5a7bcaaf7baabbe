"""A claimed savepoint has one owner, is whole until the owner's start is durable, and is deleted whole; whoever dies in between."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from runtime.tests.checkpoint.dict_store import DictStore
from runtime.tests.checkpoint.miniature import Miniature
from runtime.tests.checkpoint.test_crashes import BATCHES, STATES, MortalStore, _new_folder
from runtime.tests.depth import examples

from statefulspark.checkpoint.catalog import open_checkpoint
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.write.claiming import check_claimable, claim_savepoint, delete_claimed
from statefulspark.checkpoint.write.disposal import dispose_savepoint
from statefulspark.errors import CorruptDataError, FencedError, InvalidInputError, UnavailableError
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.open import open_store

_JOB = "file:///jobs/orders"
_NAME = "savepoint-flights-0123456789ab"


def taken(folder: Path) -> str:
    """Run a job of two slots for three batches, and return the URL of its savepoint."""
    mini = Miniature(open_store((folder / "origin").as_uri()), _new_folder(folder), DictStore)
    mini.start(2)
    for batch in range(3):
        mini.begin(batch)
        mini.run(batch, BATCHES[batch])
    mini.begin(3)
    return mini.savepoint(open_store((folder / "savepoints").as_uri()), _NAME, 2)


def no_fence() -> None:
    """The driver is the newest one."""


def objects(folder: Path) -> set[str]:
    """Names of all objects of the savepoint."""
    return {info.key for info in open_store((folder / "savepoints").as_uri()).list("")}


def test_a_savepoint_has_one_owner(tmp_path: Path) -> None:
    """The job may claim it again, another job may not, and neither deletes what the other has claimed."""
    url = taken(tmp_path)
    origin = open_checkpoint(url, open_store)
    check_claimable(origin, _JOB)
    assert f"{_NAME}/_claimed" not in objects(tmp_path), "checking claims nothing"
    claim_savepoint(origin, _JOB, now_ms=1)
    claim_savepoint(origin, f"{_JOB}/", now_ms=2)
    check_claimable(origin, _JOB)
    with pytest.raises(InvalidInputError, match="the job in file:///jobs/orders has claimed"):
        check_claimable(origin, "file:///jobs/other")
    with pytest.raises(InvalidInputError, match="the job in file:///jobs/orders has claimed"):
        claim_savepoint(origin, "file:///jobs/other", now_ms=3)
    assert not delete_claimed(url, "file:///jobs/other", open_store, no_fence)
    assert open_checkpoint(url, open_store).metadata == origin.metadata
    assert delete_claimed(url, _JOB, open_store, no_fence)
    assert objects(tmp_path) == set()
    assert not delete_claimed(url, _JOB, open_store, no_fence)


@pytest.mark.parametrize("how", ["dispose", "claim"])
def test_only_files_of_the_savepoint_are_deleted(tmp_path: Path, how: str) -> None:
    """Others who may write to the volume can put a link or a file of their own into the folder."""
    url = taken(tmp_path)
    folder = tmp_path / "savepoints" / _NAME
    other = tmp_path / "other"
    other.mkdir()
    for name in ("_metadata", "slot-0-12345678", "precious"):
        (other / name).write_bytes(b"x")
    (folder / "slot-9-12345678").symlink_to(other)
    (folder / "tables").symlink_to(other)
    (folder / "notes.txt").write_bytes(b"x")
    if how == "dispose":
        assert dispose_savepoint(url, open_store)
    else:
        claim_savepoint(open_checkpoint(url, open_store), _JOB, now_ms=1)
        assert delete_claimed(url, _JOB, open_store, no_fence)
    assert sorted(path.name for path in other.iterdir()) == ["_metadata", "precious", "slot-0-12345678"]
    assert objects(tmp_path) == {f"{_NAME}/notes.txt"}


def test_a_savepoint_behind_a_link_is_not_disposed_of(tmp_path: Path) -> None:
    """The link may be in a folder where the caller may delete, and the savepoint in one where it may not."""
    taken(tmp_path)
    before = objects(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / _NAME).symlink_to(tmp_path / "savepoints" / _NAME)
    with pytest.raises(InvalidInputError, match="a symbolic link leads there"):
        dispose_savepoint((tmp_path / "mine" / _NAME).as_uri(), open_store)
    assert objects(tmp_path) == before


def test_a_checkpoint_cannot_be_claimed(tmp_path: Path) -> None:
    """It belongs to the job that took it, whose later checkpoints reference its files."""
    mini = Miniature(open_store((tmp_path / "origin").as_uri()), _new_folder(tmp_path), DictStore)
    mini.start(1)
    mini.begin(0)
    mini.run(0, BATCHES[0])
    mini.checkpoint(0)
    before = {info.key for info in mini.job.list("")}
    with pytest.raises(InvalidInputError, match=r"claimMode: CLAIM is not possible for .*it is a checkpoint"):
        claim_savepoint(open_checkpoint(f"{mini.job.url}/chk-1", open_store), _JOB, now_ms=1)
    assert {info.key for info in mini.job.list("")} == before


def test_a_savepoint_without_a_claim_is_not_deleted(tmp_path: Path) -> None:
    """Somebody may have removed the claim, or have put another savepoint in its place."""
    url = taken(tmp_path)
    before = objects(tmp_path)
    assert not delete_claimed(url, _JOB, open_store, no_fence)
    assert objects(tmp_path) == before


@pytest.mark.parametrize("data", [b"", b"{}", b'{"format_version":11', b"\x00" * 40])
def test_a_damaged_claim_deletes_nothing(tmp_path: Path, data: bytes) -> None:
    """It does not say whose the savepoint is."""
    url = taken(tmp_path)
    open_store((tmp_path / "savepoints").as_uri()).put(f"{_NAME}/_claimed", data)
    before = objects(tmp_path)
    with pytest.raises(CorruptDataError, match="_claimed"):
        delete_claimed(url, _JOB, open_store, no_fence)
    assert objects(tmp_path) == before


def test_a_fenced_driver_deletes_nothing(tmp_path: Path) -> None:
    """Its successor may just be starting from the savepoint again."""
    url = taken(tmp_path)
    claim_savepoint(open_checkpoint(url, open_store), _JOB, now_ms=1)
    before = objects(tmp_path)

    def fenced() -> None:
        raise FencedError("a newer attempt")

    with pytest.raises(FencedError):
        delete_claimed(url, _JOB, open_store, fenced)
    assert objects(tmp_path) == before


@settings(max_examples=20, deadline=None)
@given(operations=st.integers(0, 12), last_one_happens=st.booleans())
@example(operations=0, last_one_happens=False)
@example(operations=1, last_one_happens=True)
def test_a_deletion_that_dies_leaves_a_savepoint_or_none_and_the_next_one_ends_it(
    tmp_path_factory: pytest.TempPathFactory, operations: int, last_one_happens: bool
) -> None:
    """Never a savepoint with some of its files gone, and never files that nobody deletes."""
    folder = tmp_path_factory.mktemp("claim")
    url = taken(folder)
    claim_savepoint(open_checkpoint(url, open_store), _JOB, now_ms=1)
    whole = objects(folder)

    def mortal(root: str) -> ObjectStore:
        return MortalStore(open_store(root), operations, last_one_happens=last_one_happens)

    try:
        delete_claimed(url, _JOB, mortal, no_fence)
    except UnavailableError:
        if f"{_NAME}/_metadata" in (left := objects(folder)):
            assert left == whole
        assert left == set() or f"{_NAME}/_claimed" in left
    delete_claimed(url, _JOB, open_store, no_fence)
    assert objects(folder) == set()


@settings(max_examples=examples(10, 60), deadline=None)
@given(operations=st.integers(0, 24), last_one_happens=st.booleans())
@example(operations=10_000, last_one_happens=True)
def test_a_start_that_dies_leaves_the_savepoint_whole(
    tmp_path_factory: pytest.TempPathFactory, operations: int, last_one_happens: bool
) -> None:
    """Either the job has started from it and names it, or it can be claimed again and started from."""
    folder = tmp_path_factory.mktemp("claim")
    url = taken(folder)
    whole = objects(folder)
    job = open_store((folder / "fork").as_uri())
    mortal = MortalStore(job, operations, last_one_happens=last_one_happens)

    def opened(root: str) -> ObjectStore:
        inner = open_store(root)
        return mortal if paths.same_folder(root, job.url) else _Following(inner, mortal)

    try:
        Miniature(mortal, _new_folder(folder), DictStore, open_store=opened).start(2, origin=url, claims=True)
    except UnavailableError:
        assert objects(folder) - {f"{_NAME}/_claimed"} == whole
    again = Miniature(job, _new_folder(folder), DictStore)
    if again.lineage_now().base is None:
        again.start(3, origin=url, claims=True)
    else:
        again.start(3)
    assert again.contents() == STATES[3]
    assert again.lineage is not None
    assert again.lineage.claimed == url.removesuffix("/_metadata")
    assert delete_claimed(again.lineage.claimed, job.url, open_store, again.check_fence)
    assert objects(folder) == set()
    again.begin(3)
    again.start(1)
    assert again.contents() == STATES[3], "the job needs nothing of the savepoint"


def _Following(inner: ObjectStore, life: MortalStore) -> ObjectStore:  # noqa: N802  it makes a store that dies with another one
    """A store of the same driver: it dies when the driver has used up its operations."""
    follower = MortalStore(inner, 0, last_one_happens=life._last_one_happens)
    follower._live = life._live  # type: ignore[method-assign] # both count down the same life
    return follower
