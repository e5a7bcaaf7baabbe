"""Operator frames and operator files give back what was written, and no damage to their bytes goes unseen."""

from __future__ import annotations

from pathlib import Path
from struct import pack
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.checkpoint.formats.changelog import ChangelogHeader, ChangelogWriter, read_changelog
from statefulspark.checkpoint.formats.digests import digest_file
from statefulspark.checkpoint.formats.operator_state import decode_operator_file, encode_operator_file
from statefulspark.errors import CorruptDataError, IncompatibleFormatError
from statefulspark.state.operator.entries import OperatorEntry, list_entries, lists_of
from statefulspark.state.store.base import Change

GOLDEN = Path(__file__).parent / "golden"
HEADER = ChangelogHeader(
    uid="turnaround",
    slot=1,
    batch=7,
    epoch=3,
    first_key_group=64,
    last_key_group=127,
    states=({"state_id": 1, "uid": "turnaround"},),
    operator_state="changed",
    parallelism=2,
)
ITEMS = st.lists(st.tuples(st.binary(max_size=8), st.none() | st.binary(max_size=30)), max_size=6).map(tuple)
NUMBERS = st.integers(0, 0xFFFF)
ENTRIES = st.lists(st.builds(OperatorEntry, slot=NUMBERS, state_id=NUMBERS, items=ITEMS, whole=st.booleans()), max_size=4)
SAMPLE = [*list_entries(1, {4: (b"\x01a", b"\x01bc"), 9: ()}), OperatorEntry(2, 5, ((b"key", None), (b"", b"\x01")), whole=False)]
CHANGES: list[Change] = [(b"\x00\x40key", b"value"), (b"\x00\x41gone", None)]


def _write(path: Path, entries: list[OperatorEntry], header: ChangelogHeader = HEADER) -> Path:
    writer = ChangelogWriter(path, header, entries)
    writer.append(CHANGES)
    assert writer.close() == digest_file(path)
    return path


@given(entries=ENTRIES)
def test_an_operator_file_gives_back_its_entries(entries: list[OperatorEntry]) -> None:
    """Lists, deletions, empty keys and values, and entries without items."""
    assert decode_operator_file(encode_operator_file(entries), path="p") == tuple(entries)


@given(entries=ENTRIES)
def test_a_changelog_gives_back_its_operator_frame(tmp_path_factory: pytest.TempPathFactory, entries: list[OperatorEntry]) -> None:
    """Beside the header and the changes of keyed state."""
    opened = read_changelog(_write(tmp_path_factory.mktemp("log") / "c", entries))
    assert (opened.header, list(opened.changes), opened.operator_state) == (HEADER, CHANGES, tuple(entries))


@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
def test_every_flipped_byte_of_an_operator_file_is_seen(flip: int) -> None:
    """At every position."""
    data = encode_operator_file(SAMPLE)
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= flip
        with pytest.raises(CorruptDataError):
            decode_operator_file(bytes(damaged), path="p")


@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
def test_every_flipped_byte_of_a_changelog_is_seen(tmp_path: Path, flip: int) -> None:
    """At every position, in the header, the operator frame, the other frames and the end."""
    path = _write(tmp_path / "c", SAMPLE)
    data = path.read_bytes()
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= flip
        path.write_bytes(damaged)
        with pytest.raises(CorruptDataError):
            list(read_changelog(path).changes)


def test_every_truncation_is_seen(tmp_path: Path) -> None:
    """Of operator files and of changelogs; so are bytes that follow."""
    data = encode_operator_file(SAMPLE)
    for length in range(len(data)):
        with pytest.raises(CorruptDataError):
            decode_operator_file(data[:length], path="p")
    with pytest.raises(CorruptDataError, match="bytes follow"):
        decode_operator_file(data + b"\x00", path="p")
    path = _write(tmp_path / "c", SAMPLE)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(CorruptDataError):
            list(read_changelog(path).changes)


def test_a_later_version_of_an_operator_file_is_refused_as_such() -> None:
    """The reader says that the version is unknown instead of calling the file damaged."""
    data = bytearray(encode_operator_file(SAMPLE))
    data[4] = 2
    with pytest.raises(IncompatibleFormatError, match="version 2"):
        decode_operator_file(bytes(data), path="p")


def test_a_changelog_without_operator_state_is_of_version_1(tmp_path: Path) -> None:
    """Byte for byte what the release before operator state wrote, so that it can still read it."""
    golden = read_changelog(GOLDEN / "changelog-v1-event-times.bin")
    path = tmp_path / "c"
    writer = ChangelogWriter(path, golden.header)
    writer.append(golden.changes)
    writer.close()
    assert path.read_bytes() == (GOLDEN / "changelog-v1-event-times.bin").read_bytes()
    assert golden.operator_state == ()


def test_a_changelog_of_version_2_opens() -> None:
    """Its operator state and its changes come back as they were."""
    header, changes, operator_state = read_changelog(GOLDEN / "changelog-v2.bin")
    assert header == HEADER
    assert list(changes) == CHANGES
    assert operator_state == tuple(SAMPLE)


def test_an_operator_file_of_version_1_opens() -> None:
    """Its entries come back as they were."""
    assert decode_operator_file((GOLDEN / "operator-v1.bin").read_bytes(), path="p") == tuple(SAMPLE)


def test_version_and_fields_of_a_changelog_belong_together(tmp_path: Path) -> None:
    """A header of version 1 with fields of version 2, or the other way round, is of no release."""
    body = HEADER.model_dump_json().encode()
    plain = HEADER.model_copy(update={"operator_state": None, "parallelism": None}).model_dump_json().encode()
    for version, header in ((1, body), (1, plain), (2, plain)):
        start = pack(">4sBI", b"SSCL", version, len(header)) + header
        path = tmp_path / "c"
        path.write_bytes(start + pack(">I", crc32(start)))
        with pytest.raises(IncompatibleFormatError, match=f"version {version}"):
            read_changelog(path)


def test_an_entry_that_is_no_list_is_refused() -> None:
    """A later release may keep other kinds of operator state; this one does not guess what they mean. Broadcast state is no list of the slot."""
    assert lists_of(SAMPLE, 2, where="p") == {}
    with pytest.raises(IncompatibleFormatError, match="id 5"):
        lists_of([OperatorEntry(2, 5, SAMPLE[-1].items)], 2, where="p")
    assert lists_of(SAMPLE, 1, where="p") == {4: (b"\x01a", b"\x01bc"), 9: ()}
