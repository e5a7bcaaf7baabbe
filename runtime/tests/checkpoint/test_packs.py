"""Packs give back what was packed, and damage is seen before it is used."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.checkpoint.formats.packs import check_pack, extract, write_pack
from statefulspark.errors import CorruptDataError, IncompatibleFormatError

NAMES = st.from_regex(r"\Astate/[0-9]/[a-z0-9_é]{1,8}(/[0-9]{1,3}\.delta)?\Z")
FILES = st.dictionaries(NAMES, st.binary(max_size=200), max_size=6).filter(
    lambda files: not any(other.startswith(f"{path}/") for path in files for other in files)
)


def _packed(folder: Path, files: dict[str, bytes]) -> Path:
    for path, content in files.items():
        (folder / "from" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "from" / path).write_bytes(content)
    (folder / "from").mkdir(exist_ok=True)
    marks = write_pack(folder / "from", sorted(files), folder / "pack")
    assert {path: mark[0] for path, mark in marks.items()} == {path: len(content) for path, content in files.items()}
    return folder / "pack"


@given(files=FILES)
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]) -> None:
    """All files, or those that are wanted."""
    folder = tmp_path_factory.mktemp("pack")
    pack = _packed(folder, files)
    assert [entry.path for entry in extract(pack, folder / "to", name="x")] == sorted(files)
    assert {path: (folder / "to" / path).read_bytes() for path in files} == files
    wanted = sorted(files)[::2]
    extract(pack, folder / "some", name="x", wanted=wanted)
    assert sorted(path for path in files if (folder / "some" / path).exists()) == wanted
    assert check_pack(pack, name="x") == extract(pack, folder / "again", name="x")


@given(files=FILES, data=st.data())
def test_every_changed_byte_is_seen(tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], data: st.DataObject) -> None:
    """Also a pack that is cut short."""
    folder = tmp_path_factory.mktemp("pack")
    pack = _packed(folder, files)
    content = bytearray(pack.read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= data.draw(st.integers(1, 255))
    pack.write_bytes(content)
    with pytest.raises(CorruptDataError, match=r"^some/pack: "):
        check_pack(pack, name="some/pack")
    pack.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(CorruptDataError):
        check_pack(pack, name="some/pack")


def test_a_later_version_is_refused_by_name(tmp_path: Path) -> None:
    """And nothing is guessed."""
    pack = _packed(tmp_path, {"state/0": b"x"})
    pack.write_bytes(b"SSSP\x02" + pack.read_bytes()[5:])
    with pytest.raises(IncompatibleFormatError, match="version 2"):
        extract(pack, tmp_path / "to", name="x")


@pytest.mark.parametrize("path", ["../out", "state/../../out", "/out", "state//x", "state/./x", "a\\b"])
def test_a_path_that_leads_outside_is_refused(tmp_path: Path, path: str) -> None:
    """Even with a good checksum."""
    name = "n" * len(path)
    pack = _packed(tmp_path, {name: b"x"})
    index = pack.read_bytes()[6:-8].replace(name.encode(), path.encode())
    length = struct.pack(">I", len(index))
    pack.write_bytes(pack.read_bytes()[:6] + index + length + struct.pack(">I", zlib.crc32(index + length)))
    with pytest.raises(CorruptDataError, match="outside the folder"):
        extract(pack, tmp_path / "to", name="x")
    assert not (tmp_path / "to").exists()
