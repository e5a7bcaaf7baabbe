"""A changelog gives back exactly what was appended, and no damage to its bytes goes unseen."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.checkpoint.formats import changelog
from statefulspark.checkpoint.formats.changelog import VERSION, ChangelogHeader, ChangelogWriter, read_changelog
from statefulspark.checkpoint.formats.digests import digest_file
from statefulspark.errors import ClosedError, CorruptDataError, IncompatibleFormatError
from statefulspark.state.store.base import Change

HEADER = ChangelogHeader(
    uid="turnaround", slot=1, batch=7, epoch=3, first_key_group=64, last_key_group=127, states=({"state_id": 1, "uid": "turnaround"},)
)
CHANGES = st.lists(st.tuples(st.binary(min_size=1, max_size=40), st.none() | st.binary(max_size=60)), max_size=60)


def _write(path: Path, *pieces: list[Change]) -> Path:
    writer = ChangelogWriter(path, HEADER)
    for piece in pieces:
        writer.append(piece)
    digest = writer.close()
    assert digest == digest_file(path)
    return path


@given(pieces=st.lists(CHANGES, max_size=4), data=st.data())
def test_what_was_appended_comes_back_in_order(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[list[Change]], data: st.DataObject
) -> None:
    """Puts, empty values and deletions survive, in whatever pieces they were appended; the header too."""
    path = _write(tmp_path_factory.mktemp("log") / "c", *pieces)
    header, changes, _ = read_changelog(path)
    assert header == HEADER
    assert list(changes) == [change for piece in pieces for change in piece]


def test_many_frames_come_back_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes spread over many frames keep their order, whether frames end by entries or by bytes."""
    monkeypatch.setattr(changelog, "FRAME_ENTRIES", 100)
    monkeypatch.setattr(changelog, "FRAME_BYTES", 4_000)
    chance = random.Random(1)
    changes: list[Change] = [
        (chance.randbytes(8), chance.randbytes(chance.randrange(200)) if index % 3 else None) for index in range(5_000)
    ]
    path = _write(tmp_path / "c", changes)
    assert list(read_changelog(path)[1]) == changes


def test_memory_is_bounded_by_the_frame_and_not_by_the_iterator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large entries from a generator are taken a few at a time: the writer never runs far ahead of what it has written."""
    monkeypatch.setattr(changelog, "FRAME_BYTES", 100_000)
    taken = 0
    lead = 0
    writer = ChangelogWriter(tmp_path / "c", HEADER)

    def entries() -> object:
        nonlocal taken, lead
        for number in range(400):
            taken += 1
            lead = max(lead, taken - writer._entries)
            yield number.to_bytes(4, "big"), random.Random(number).randbytes(20_000)

    writer.append(entries())  # type: ignore[arg-type]  # a generator typed loosely, to keep the nonlocal short
    writer.close()
    assert lead <= 80
    assert sum(1 for _ in read_changelog(tmp_path / "c")[1]) == 400


@given(changes=CHANGES.filter(bool), data=st.data())
def test_every_truncation_is_seen(tmp_path_factory: pytest.TempPathFactory, changes: list[Change], data: st.DataObject) -> None:
    """A file cut anywhere, even exactly between two frames, is refused."""
    path = _write(tmp_path_factory.mktemp("log") / "c", changes)
    whole = path.read_bytes()
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(CorruptDataError):
        list(read_changelog(path)[1])


@given(changes=CHANGES, data=st.data())
def test_every_flipped_bit_is_seen(tmp_path_factory: pytest.TempPathFactory, changes: list[Change], data: st.DataObject) -> None:
    """One flipped bit anywhere in the file is refused before its changes are used."""
    path = _write(tmp_path_factory.mktemp("log") / "c", changes)
    damaged = bytearray(path.read_bytes())
    bit = data.draw(st.integers(0, len(damaged) * 8 - 1))
    damaged[bit // 8] ^= 1 << bit % 8
    path.write_bytes(damaged)
    with pytest.raises(CorruptDataError):
        list(read_changelog(path)[1])


def test_bytes_after_the_end_are_refused(tmp_path: Path) -> None:
    """Two files run together are not one changelog."""
    path = _write(tmp_path / "c", [(b"k", b"v")])
    path.write_bytes(path.read_bytes() * 2)
    with pytest.raises(CorruptDataError, match="end frame does not match"):
        list(read_changelog(path)[1])


def test_a_later_version_is_refused_as_such(tmp_path: Path) -> None:
    """The reader says that the version is unknown instead of calling the file damaged."""
    path = _write(tmp_path / "c", [(b"k", b"v")])
    later = bytearray(path.read_bytes())
    later[4] = VERSION + 1
    path.write_bytes(later)
    with pytest.raises(IncompatibleFormatError, match=f"version {VERSION + 1}"):
        read_changelog(path)


def test_an_abandoned_changelog_can_never_be_read(tmp_path: Path) -> None:
    """What a dying slot leaves behind has no end frame."""
    writer = ChangelogWriter(tmp_path / "c", HEADER)
    writer.append([(b"k", b"v")])
    writer.abandon()
    with pytest.raises(ClosedError):
        writer.append([(b"k", b"v")])
    with pytest.raises(CorruptDataError):
        list(read_changelog(tmp_path / "c")[1])
