"""Objects with several changelogs: each comes back as it was, damage anywhere is found, and earlier releases see a version that they do not know."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from statefulspark.checkpoint.formats import changelog, documents
from statefulspark.checkpoint.formats.changelog import ChangelogHeader, ChangelogWriter, read_changelog
from statefulspark.checkpoint.formats.changelog_group import decode_group, encode_group
from statefulspark.checkpoint.formats.digests import digest_bytes
from statefulspark.checkpoint.formats.documents import decode_document, encode_document
from statefulspark.checkpoint.formats.records import BatchRecord, ChangelogRef
from statefulspark.checkpoint.restore.changelog_objects import by_object, download_changelogs, size_of_objects
from statefulspark.errors import CorruptDataError, IncompatibleFormatError
from statefulspark.storage.open import open_store

GOLDEN = Path(__file__).parent / "golden"
STATES: tuple[dict[str, JsonValue], ...] = (
    {"state_id": 1, "uid": "u", "name": "n", "kind": "value", "key_type": "STRING", "type": "LONG", "ttl_ms": None},
)


def changelog_of(folder: Path, slot: int, entries: int) -> bytes:
    """A changelog of slot ``slot``."""
    header = ChangelogHeader(uid="u", slot=slot, batch=7, epoch=1, first_key_group=slot, last_key_group=slot, states=STATES)
    path = folder / f"changelog-{slot}"
    writer = ChangelogWriter(path, header)
    writer.append(
        [(slot.to_bytes(2, "big") + number.to_bytes(8, "big"), None if number % 3 == 2 else bytes([number])) for number in range(entries)]
    )
    writer.close()
    data = path.read_bytes()
    path.unlink()
    return data


def group_of(folder: Path) -> tuple[bytes, list[bytes]]:
    """A group, and the changelogs in it."""
    members = [changelog_of(folder, slot, entries) for slot, entries in enumerate((0, 1, 5))]
    return encode_group(members), members


def reference(data: bytes, key: str, member: int | None, slot: int = 0) -> ChangelogRef:
    digest = digest_bytes(data)
    return ChangelogRef(
        uid="u",
        slot=slot,
        first=slot,
        last=slot,
        batch=7,
        epoch=1,
        key=key,
        size_bytes=digest.size_bytes,
        checksum=digest.checksum,
        member=member,
    )


def read_all(data: bytes, folder: Path) -> None:
    """Read all changelogs of a group to their end, as a driver does that adopts a batch."""
    path = folder / "member"
    for each in decode_group(data, path="group"):
        path.write_bytes(each)
        list(read_changelog(path, name="group").changes)


@given(members=st.lists(st.binary(max_size=60), max_size=6))
def test_what_was_grouped_comes_back_in_order(members: list[bytes]) -> None:
    assert decode_group(encode_group(members), path="p") == tuple(members)


def test_every_flipped_byte_and_every_cut_is_found(tmp_path: Path) -> None:
    """Without the checksum of the record too, which a driver that adopts a batch does not have."""
    data, _ = group_of(tmp_path)
    read_all(data, tmp_path)
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        with pytest.raises(CorruptDataError):
            read_all(bytes(damaged), tmp_path)
        with pytest.raises(CorruptDataError):
            read_all(data[:position], tmp_path)
    with pytest.raises(CorruptDataError, match="something follows"):
        read_all(data + b"\0", tmp_path)


def test_a_group_is_no_changelog_and_a_changelog_no_group(tmp_path: Path) -> None:
    data, members = group_of(tmp_path)
    path = tmp_path / "c"
    path.write_bytes(data)
    with pytest.raises(CorruptDataError, match="a group of changelogs, where one changelog was expected"):
        read_changelog(path)
    with pytest.raises(CorruptDataError, match="not a group of changelogs"):
        decode_group(members[0], path="p")
    # A group of groups, which no release writes.
    path.write_bytes(decode_group(encode_group([data]), path="p")[0])
    with pytest.raises(CorruptDataError, match="one changelog was expected"):
        read_changelog(path)


def test_an_object_is_downloaded_once_for_all_its_changelogs(tmp_path: Path) -> None:
    """In the order in which objects first come; what is not there is damage."""
    store = open_store((tmp_path / "store").as_uri())
    data, members = group_of(tmp_path)
    store.put("group", data)
    store.put("alone", members[2])
    refs = [reference(data, "group", 2, slot=2), reference(members[2], "alone", None), reference(data, "group", 0)]
    objects = by_object([*refs, refs[1]])
    assert objects == [(refs[0], refs[2]), (refs[1],)]
    assert size_of_objects(refs) == len(data) + len(members[2])
    read = partial(download_changelogs, store)
    assert [path.read_bytes() for path in read(objects[0], tmp_path / "a")] == [members[2], members[0]]
    assert [path.read_bytes() for path in read(objects[1], tmp_path / "b")] == [members[2]]
    with pytest.raises(CorruptDataError, match="does not have the changelog that was acknowledged"):
        read([reference(data, "group", 3)], tmp_path / "d")
    with pytest.raises(CorruptDataError, match="does not have the changelog that was acknowledged"):
        read([refs[0], reference(data, "group", None)], tmp_path / "e")
    with pytest.raises(CorruptDataError, match="not a group"):
        read([reference(members[2], "alone", 0)], tmp_path / "f")


def test_records_that_name_no_group_keep_their_version() -> None:
    """Those that do are of version 13, in which alone a reference may have a member."""
    data = (GOLDEN / "batch-v13.json").read_bytes()
    record = decode_document(data, "batch", BatchRecord, path="golden")
    assert [ack.member for ack in record.acks] == [0, 1, None]
    alone = record.model_copy(update={"acks": record.acks[2:]})
    assert encode_document("batch", alone).startswith(b'{"format_version":1,')
    assert b"member" not in encode_document("batch", alone)
    with pytest.raises(IncompatibleFormatError, match="contents do not match format_version 12"):
        decode_document(data.replace(b'"format_version":13', b'"format_version":12', 1), "batch", BatchRecord, path="p")


def test_earlier_releases_see_a_version_that_they_do_not_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They know 12 and 5 as the last."""
    path = tmp_path / "c"
    path.write_bytes((GOLDEN / "changelog-group-v6.bin").read_bytes())
    monkeypatch.setattr(documents, "FORMAT_VERSION", 12)
    with pytest.raises(IncompatibleFormatError, match="expected format_version 1 to 12, found format_version 13"):
        decode_document((GOLDEN / "batch-v13.json").read_bytes(), "batch", BatchRecord, path="golden")
    monkeypatch.setattr(changelog, "VERSION", 5)
    with pytest.raises(IncompatibleFormatError, match="expected version 1 to 5, found version 6"):
        read_changelog(path)


def test_a_later_version_is_refused_as_such(tmp_path: Path) -> None:
    data = bytearray(group_of(tmp_path)[0])
    data[4] = changelog.VERSION + 1
    with pytest.raises(IncompatibleFormatError, match=f"found version {changelog.VERSION + 1}"):
        decode_group(bytes(data), path="p")


def test_the_golden_group_opens_and_is_written_the_same(tmp_path: Path) -> None:
    """Written when the format was fixed: never regenerate it, add a version instead."""
    data = (GOLDEN / "changelog-group-v6.bin").read_bytes()
    members = decode_group(data, path="golden")
    assert encode_group(members) == data
    path = tmp_path / "c"
    found = []
    for each in members:
        path.write_bytes(each)
        header, changes, _ = read_changelog(path)
        found.append((header.slot, list(changes)))
    assert found == [(0, []), (1, [(b"\0\1" + bytes(8), b"\0")])]
