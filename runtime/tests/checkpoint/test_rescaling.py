"""From any checkpoint, any number of slots finds every key's state byte for byte, with the changelogs since on top."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime.tests.checkpoint.dict_store import DictStore
from runtime.tests.checkpoint.miniature import STATES, UID, Miniature, apply
from runtime.tests.depth import examples

from statefulspark.checkpoint.formats.paths import common_root
from statefulspark.errors import CorruptDataError, NotRestorableError
from statefulspark.state.store.base import Change
from statefulspark.storage.open import open_store

KEY_GROUPS = 8

KEYS = st.builds(
    lambda key_group, key: key_group.to_bytes(2, "big") + b"\x00\x01" + len(key).to_bytes(4, "big") + key,
    st.integers(0, KEY_GROUPS - 1),
    st.sampled_from([b"", b"\x00", b"a", b"ab", b"\xff\xff"]),
)
BATCHES = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=5)), max_size=25)
SLOTS = st.integers(1, KEY_GROUPS)


def _job(folder: Path) -> Miniature:
    job = open_store((folder / "flights").as_uri())
    (folder / "local").mkdir()
    return Miniature(job, folder / "local", DictStore, max_parallelism=KEY_GROUPS)


@settings(max_examples=examples(20, 150))
@given(
    batches=st.lists(BATCHES, min_size=3, max_size=6),
    slots=st.tuples(SLOTS, SLOTS, SLOTS),
    checkpoints=st.sets(st.integers(0, 5)),
    restarts=st.tuples(st.integers(0, 5), st.integers(0, 5)),
)
def test_state_survives_rescaling_twice(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[list[Change]],
    slots: tuple[int, int, int],
    checkpoints: set[int],
    restarts: tuple[int, int],
) -> None:
    """From n slots to m, then to k, in the middle of a batch that then runs again; checkpoints lie anywhere before."""
    mini = _job(tmp_path_factory.mktemp("job"))
    states: list[dict[bytes, bytes]] = [{}]
    for changes in batches:
        states.append(apply(states[-1], changes))
    mini.start(slots[0])
    for batch, changes in enumerate(batches):
        for number, restart in enumerate(restarts, start=1):
            if restart == batch:
                # The driver dies while the batch runs: some slots have written a changelog of it, nobody knows.
                mini.begin(batch)
                mini.run(batch, [(key, b"lost") for key, _ in changes])
                assert mini.start(slots[number]) == batch - 1
                assert mini.contents() == states[batch]
        mini.begin(batch)
        mini.run(batch, changes)
        if batch in checkpoints:
            mini.checkpoint(batch)
    assert mini.contents() == states[-1]
    mini.begin(len(batches))
    assert mini.start(slots[0]) == len(batches) - 1
    assert mini.contents() == states[-1]


def test_the_same_slots_reuse_every_uploaded_file(tmp_path: Path) -> None:
    """Checkpoint, restart, checkpoint: nothing that lies in shared/ is uploaded again, and only new changes are."""
    mini = _job(tmp_path)
    mini.start(2)
    mini.begin(0)
    mini.run(0, [(bytes([0, key_group, 0, 1]), b"x" * 100) for key_group in range(8)])
    first = mini.checkpoint(0)
    mini.start(2)
    again = mini.checkpoint(0)
    assert [slot.shared for slot in again.slots] == [slot.shared for slot in first.slots]
    mini.begin(1)
    mini.run(1, [(bytes([0, 0, 0, 1]), b"y")])
    third = mini.checkpoint(1)
    assert set(first.slots[0].shared) < set(third.slots[0].shared)
    assert third.slots[1].shared == first.slots[1].shared


def test_files_of_a_given_up_checkpoint_are_not_named_again(tmp_path: Path) -> None:
    """Retention may delete what an unfinished checkpoint uploaded, so the next one uploads it itself."""
    mini = _job(tmp_path)
    mini.start(1)
    mini.begin(0)
    mini.run(0, [(bytes([0, 1, 0, 1]), b"x")])
    given_up = mini.checkpoint(0, publish_it=False)
    complete = mini.checkpoint(0)
    assert not {file.path for file in given_up.slots[0].shared} & {file.path for file in complete.slots[0].shared}


@pytest.mark.parametrize("copied", [False, True])
def test_a_savepoint_is_self_contained_and_can_be_moved(tmp_path: Path, copied: bool) -> None:
    """Restored with another number of slots after it was moved and the job folder was deleted."""
    mini = _job(tmp_path)
    mini.start(3)
    mini.begin(0)
    changes: list[Change] = [(bytes([0, key_group, 0, 1]), bytes([key_group])) for key_group in range(8)]
    mini.run(0, changes)
    mini.checkpoint(0)
    target = open_store((tmp_path / "savepoints").as_uri())
    common = open_store(common_root(mini.job.url, target.url) or "") if copied else None
    mini.savepoint(target, "savepoint-flights-1", 0, common=common)
    mini.job.delete([info.key for info in mini.job.list("")])
    moved = tmp_path / "elsewhere"
    (tmp_path / "savepoints" / "savepoint-flights-1").rename(moved)
    (tmp_path / "other").mkdir()
    other = _job(tmp_path / "other")
    assert other.start(2, origin=moved.as_uri()) == 0
    assert other.contents() == apply({}, changes)
    # The savepoint is its owner's, who may delete it: the job stands on a copy.
    shutil.rmtree(moved)
    other.begin(1)
    assert other.start(3) == 0
    assert other.contents() == apply({}, changes)


def test_restored_slot_knows_batch_and_states(tmp_path: Path) -> None:
    """Keyed steps start after the last committed batch, also those whose states only the changelogs name."""
    mini = _job(tmp_path)
    mini.start(2)
    mini.begin(0)
    mini.run(0, [(bytes([0, 1, 0, 1]), b"x")])
    mini.begin(1)
    mini.start(1)
    restored = mini.slots[0].restored
    assert (restored.batch, restored.step_batches, restored.states) == (0, {UID: 0}, STATES)


def _damage(path: Path, how: str) -> None:
    if how == "missing":
        path.unlink()
    elif how == "shorter":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)


@pytest.mark.parametrize("how", ["missing", "shorter", "flipped"])
@pytest.mark.parametrize("what", ["shared/*", "chk-1/slot-*/MANIFEST", "changelog/*/*/*"])
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, what: str, how: str) -> None:
    """Whatever a slot needs is verified before use; the error names it."""
    mini = _job(tmp_path)
    mini.start(1)
    mini.begin(0)
    mini.run(0, [(bytes([0, 1, 0, 1]), b"x" * 50)])
    mini.checkpoint(0)
    mini.begin(1)
    mini.run(1, [(bytes([0, 1, 0, 1]), b"y" * 50)])
    mini.begin(2)
    lineage = mini.lineage_now()
    mini.lineage = lineage
    (path, *_) = sorted((tmp_path / "flights").glob(what), reverse=True)
    _damage(path, how)
    with pytest.raises(CorruptDataError, match=path.name):
        mini._restore(0, 1, lineage)


def test_another_number_of_key_groups_or_kind_of_store_is_refused(tmp_path: Path) -> None:
    """The state stays untouched and the text says what to set."""
    mini = _job(tmp_path)
    mini.start(1)
    mini.begin(0)
    mini.checkpoint(0)
    lineage = mini.lineage_now()
    mini.backend = "rocksdb"
    with pytest.raises(NotRestorableError, match="'dict'"):
        mini._restore(0, 1, lineage)
    mini.backend, mini.max_parallelism = "dict", 16
    with pytest.raises(NotRestorableError, match="Set maxParallelism to 8"):
        mini._restore(0, 1, lineage)
