"""The local Spark checkpoint location is carried over whole, and cut at the right batch."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.checkpoint.formats.bundle import decode_bundle, encode_bundle
from statefulspark.checkpoint.spark.location import LocationFiles
from statefulspark.errors import CorruptDataError, IncompatibleFormatError, InvalidInputError


def _spark_writes(root: Path, batch: int, *, commit: bool) -> None:
    files = {"metadata": b"{}", f"offsets/{batch}": b"o%d" % batch, f"sources/0/{batch}": b"s%d" % batch}
    files |= {f".offsets/{batch}": b"x", f"offsets/.{batch}.crc": b"crc", f"state/0/0/{batch}.delta": b"big", "offsets/.7.tmp": b""}
    if commit:
        files[f"commits/{batch}"] = b"c%d" % batch
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        if not (root / path).exists():
            (root / path).write_bytes(content)


def _files(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_each_batch_takes_only_what_is_new(tmp_path: Path) -> None:
    """What was confirmed is not taken again; what was not confirmed is."""
    location = LocationFiles(tmp_path / "loc")
    assert location.new_files() == {}
    _spark_writes(tmp_path / "loc", 0, commit=True)
    first = location.new_files()
    assert location.new_files() == first
    location.confirm()
    _spark_writes(tmp_path / "loc", 1, commit=False)
    assert location.new_files() == {"offsets/1": b"o1", "sources/0/1": b"s1"}


def test_restore_for_an_uncommitted_batch(tmp_path: Path) -> None:
    """Offsets up to the batch, commits before it: Spark runs it again with the same offsets; nothing is new afterwards."""
    source = tmp_path / "source"
    layers = []
    location = LocationFiles(source)
    for batch in range(3):
        _spark_writes(source, batch, commit=True)
        layers.append(location.new_files())
        location.confirm()
    _spark_writes(source, 3, commit=False)
    layers.append(location.new_files())
    restored = LocationFiles(tmp_path / "restored")
    restored.restore({path: content for layer in layers for path, content in layer.items()}, planned=2, committed=1)
    assert _files(tmp_path / "restored") == {
        "metadata": b"{}",
        "offsets/0": b"o0",
        "offsets/1": b"o1",
        "offsets/2": b"o2",
        "commits/0": b"c0",
        "commits/1": b"c1",
        "sources/0/0": b"s0",
        "sources/0/1": b"s1",
        "sources/0/2": b"s2",
        "sources/0/3": b"s3",
    }
    assert restored.new_files() == {}


def test_all_files_of_a_checkpoint_end_at_its_batch(tmp_path: Path) -> None:
    """A checkpoint of batch 1 taken while batch 2 runs does not contain batch 2."""
    for batch in range(3):
        _spark_writes(tmp_path, batch, commit=batch < 2)
    names = {name for name in LocationFiles(tmp_path).all_files(batch=1) if not name.startswith("sources")}
    assert names == {"metadata", "offsets/0", "offsets/1", "commits/0", "commits/1"}


def test_a_used_folder_is_not_overwritten(tmp_path: Path) -> None:
    """Restoring needs an empty folder, and batches that fit each other."""
    _spark_writes(tmp_path, 0, commit=True)
    with pytest.raises(InvalidInputError, match="not empty"):
        LocationFiles(tmp_path).restore({}, planned=0, committed=0)
    with pytest.raises(InvalidInputError, match="committed"):
        LocationFiles(tmp_path / "new").restore({}, planned=3, committed=1)


NAMES = st.lists(st.text(alphabet="abc.0\\", min_size=1, max_size=5), min_size=1, max_size=3).map("/".join)


@given(files=st.dictionaries(NAMES, st.binary(max_size=30), max_size=6), data=st.data())
def test_bundles_give_back_what_was_packed_and_damage_is_seen(files: dict[str, bytes], data: st.DataObject) -> None:
    """Also that no path in a bundle can lead outside the folder."""
    bundle = encode_bundle(files)
    if any(part in (".", "..") or "\\" in part for name in files for part in name.split("/")):
        with pytest.raises(CorruptDataError, match="outside"):
            decode_bundle(bundle, path="p")
        return
    assert decode_bundle(bundle, path="p") == files
    damaged = bytearray(bundle)
    damaged[data.draw(st.integers(0, len(bundle) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptDataError):
        decode_bundle(bytes(damaged), path="p")
    with pytest.raises(CorruptDataError):
        decode_bundle(bundle[: data.draw(st.integers(0, len(bundle) - 1))], path="p")


def test_a_bundle_of_another_version_is_refused_as_such() -> None:
    """The version stands before everything else."""
    bundle = bytearray(encode_bundle({"a": b"b"}))
    bundle[4] = 9
    with pytest.raises(IncompatibleFormatError, match="version 9"):
        decode_bundle(bytes(bundle), path="p")


def test_a_batch_that_runs_again_is_carried_again(tmp_path: Path) -> None:
    """A commit that was taken back and written anew is new, and so is the plan of a batch that was planned anew."""
    location = LocationFiles(tmp_path)
    for batch in range(3):
        _spark_writes(tmp_path, batch, commit=True)
    location.new_files()
    location.confirm()
    location.forget_commit(1)
    assert location.planned_batch() == 1
    assert not location.is_committed(1)
    assert location.is_committed(0)
    (tmp_path / "commits/1").write_bytes(b"another watermark")
    assert location.new_files() == {"commits/1": b"another watermark"}
