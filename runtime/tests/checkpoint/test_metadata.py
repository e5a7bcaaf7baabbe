"""``_metadata`` opens in every later release, or is refused with the reason; damage is always seen."""

from __future__ import annotations

import json
import zlib
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from statefulspark.checkpoint.formats import documents
from statefulspark.checkpoint.formats.changelog import ChangelogHeader, ChangelogWriter, read_changelog
from statefulspark.checkpoint.formats.documents import FORMAT_VERSION, decode_document, encode_document
from statefulspark.checkpoint.formats.metadata import CheckpointMetadata, FileRef, OperatorFile, SlotState, decode_metadata, encode_metadata
from statefulspark.checkpoint.formats.records import AttemptStart, BatchRecord, JobIdentity, SavepointClaim
from statefulspark.errors import CorruptDataError, IncompatibleFormatError

GOLDEN = Path(__file__).parent / "golden"
SUM = "sha256:" + "ab" * 32


def _metadata(**changes: Any) -> CheckpointMetadata:
    fields: dict[str, Any] = {
        "job_id": "flights",
        "job_name": "flights",
        "checkpoint_id": 7,
        "kind": "checkpoint",
        "attempt": 2,
        "batch": 41,
        "max_parallelism": 128,
        "parallelism": 2,
        "created_ms": 1_767_225_600_000,
        "duration_ms": 250,
        "states": ({"state_id": 1, "uid": "turnaround", "name": "last", "kind": "value"},),
        "slots": tuple(
            SlotState(
                slot=slot,
                first=64 * slot,
                last=64 * slot + 63,
                backend="rocksdb",
                shared=(FileRef(name="000012.sst", path=f"../shared/0000000007-{slot}", size_bytes=1_000, checksum=SUM),),
                private=(FileRef(name="MANIFEST-000005", path=f"slot-{slot}/MANIFEST-000005", size_bytes=10, checksum=SUM),),
                operator_batches={"turnaround": 41 - slot},
            )
            for slot in range(2)
        ),
        "spark_location": FileRef(name="spark-location", path="spark-location", size_bytes=5, checksum=SUM),
        "watermarks": {"turnaround": 1_357_000_000_000, "other": None},
    }
    return CheckpointMetadata(**(fields | changes))


@pytest.mark.parametrize(
    ("name", "kind", "model"),
    [
        ("checkpoint-v1.json", "checkpoint", CheckpointMetadata),
        ("checkpoint-v2.json", "checkpoint", CheckpointMetadata),
        ("checkpoint-v3.json", "checkpoint", CheckpointMetadata),
        ("checkpoint-v4.json", "checkpoint", CheckpointMetadata),
        ("checkpoint-v5.json", "checkpoint", CheckpointMetadata),
        ("checkpoint-v6.json", "checkpoint", CheckpointMetadata),
        ("checkpoint-v10.json", "checkpoint", CheckpointMetadata),
        ("checkpoint-v4-two-inputs.json", "checkpoint", CheckpointMetadata),
        ("checkpoint-v14.json", "checkpoint", CheckpointMetadata),
        ("checkpoint-v15.json", "checkpoint", CheckpointMetadata),
        ("checkpoint-v16.json", "checkpoint", CheckpointMetadata),
        ("batch-v16.json", "batch", BatchRecord),
        ("batch-v14.json", "batch", BatchRecord),
        ("batch-v13.json", "batch", BatchRecord),
        ("batch-v12.json", "batch", BatchRecord),
        ("batch-v4.json", "batch", BatchRecord),
        ("batch-v3.json", "batch", BatchRecord),
        ("batch-v1.json", "batch", BatchRecord),
        ("batch-v3-without-epochs.json", "batch", BatchRecord),
        ("attempt-start-v1.json", "attempt-start", AttemptStart),
        ("attempt-start-v11.json", "attempt-start", AttemptStart),
        ("savepoint-claim-v11.json", "savepoint-claim", SavepointClaim),
        ("job-v1.json", "job", JobIdentity),
    ],
)
def test_documents_of_every_version_open_and_are_written_the_same(name: str, kind: Any, model: Any) -> None:
    """Golden files written when the format was fixed: never regenerate them, add a version instead."""
    data = (GOLDEN / name).read_bytes()
    document = decode_document(data, kind, model, path=name)
    assert encode_document(kind, document) == data


def test_a_batch_without_changelogs_is_of_an_unknown_version_for_earlier_releases() -> None:
    """They would take the state before it for the state after it. A batch with changelogs is written as before."""
    data = (GOLDEN / "batch-v12.json").read_bytes()
    record = decode_document(data, "batch", BatchRecord, path="golden")
    assert record.without_changelogs is True
    with pytest.raises(IncompatibleFormatError, match="fields do not match format_version 11: without_changelogs"):
        decode_document(data.replace(b'"format_version":12', b'"format_version":11', 1), "batch", BatchRecord, path="golden")
    assert encode_document("batch", record.model_copy(update={"without_changelogs": None})).startswith(b'{"format_version":3,')


@pytest.mark.parametrize(
    ("name", "kind", "model"), [("checkpoint-v14.json", "checkpoint", CheckpointMetadata), ("batch-v14.json", "batch", BatchRecord)]
)
def test_documents_with_xxh128_are_of_an_unknown_version_for_earlier_releases(
    name: str, kind: Any, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They cannot verify such files, and know 13 as the last version; a document without one is written as before."""
    data = (GOLDEN / name).read_bytes()
    assert (data.count(b"xxh128:") > 0, data.count(b"sha256:") > 1) == (True, True), "both kinds stand side by side after an upgrade"
    with pytest.raises(IncompatibleFormatError, match="contents do not match format_version 13"):
        decode_document(data.replace(b'"format_version":14', b'"format_version":13', 1), kind, model, path=name)
    monkeypatch.setattr(documents, "FORMAT_VERSION", 13)
    with pytest.raises(IncompatibleFormatError, match="expected format_version 1 to 13, found format_version 14"):
        decode_document(data, kind, model, path=name)


def test_watermarks_of_chained_steps_are_of_an_unknown_version_for_earlier_releases() -> None:
    """They would let a step pass those before it once. A checkpoint without any, as of a job without such steps, is written as before."""
    data = (GOLDEN / "checkpoint-v15.json").read_bytes()
    metadata = decode_metadata(data, path="golden")
    assert metadata.batch_watermarks == {"turnaround": 1_356_999_940_000, "other": (1 << 63) - 1}
    with pytest.raises(IncompatibleFormatError, match="fields do not match format_version 14: batch_watermarks"):
        decode_metadata(data.replace(b'"format_version":15', b'"format_version":14', 1), path="golden")
    assert encode_metadata(metadata.model_copy(update={"batch_watermarks": {}})) == (GOLDEN / "checkpoint-v14.json").read_bytes()


def test_event_times_by_value_are_of_an_unknown_version_for_earlier_releases() -> None:
    """They would let rows of slow partitions be late. What a job without ``watermark_by`` writes is as before."""
    turnaround = {'{"topic":"legs","partition":0}': 1_357_000_000_000, '{"topic":"legs","partition":1}': 1_356_999_940_000}
    expected = {"turnaround": (turnaround, {}), "other": ({}, {'{"site":null}': -5})}
    data = (GOLDEN / "checkpoint-v16.json").read_bytes()
    metadata = decode_metadata(data, path="golden")
    record = decode_document((GOLDEN / "batch-v16.json").read_bytes(), "batch", BatchRecord, path="golden")
    assert metadata.event_times_by_value == record.event_times_by_value == expected
    with pytest.raises(IncompatibleFormatError, match="fields do not match format_version 15: event_times_by_value"):
        decode_metadata(data.replace(b'"format_version":16', b'"format_version":15', 1), path="golden")
    without: dict[str, Any] = {"event_times_by_value": {}}
    assert encode_metadata(metadata.model_copy(update=without)) == (GOLDEN / "checkpoint-v15.json").read_bytes()
    assert encode_document("batch", record.model_copy(update=without)) == (GOLDEN / "batch-v14.json").read_bytes()


def test_a_changelog_with_event_times_by_value_opens_and_is_written_the_same(tmp_path: Path) -> None:
    header, changes, _ = read_changelog(GOLDEN / "changelog-v7.bin")
    turnaround = {'{"topic":"legs","partition":0}': 1_357_000_000_000, '{"topic":"legs","partition":1}': 1_356_999_940_000}
    assert (header.version, header.event_times_by_value) == (7, (turnaround, {}))
    writer = ChangelogWriter(tmp_path / "changelog", header)
    writer.append(changes)
    writer.close()
    assert (tmp_path / "changelog").read_bytes() == (GOLDEN / "changelog-v7.bin").read_bytes()
    with_sessions = header.model_copy(update={"states": (SESSIONS,)})
    assert (with_sessions.version, with_sessions.oldest_version) == (7, 7)


@pytest.mark.parametrize(("time_ms", "version", "known_ms"), [(None, 1, 1_767_225_600_000), (0, 3, 0), (5, 3, 5)])
def test_a_processing_time_of_zero_is_known(time_ms: int | None, version: int, known_ms: int) -> None:
    """Zero is a time of its own, which a job whose clock starts there has; only if there is none does the time of the trigger stand in."""
    data = encode_metadata(_metadata(processing_time_ms=time_ms))
    assert json.loads(data)["format_version"] == version
    assert decode_metadata(data, path="x").processed_ms == known_ms


def test_a_changelog_of_version_1_opens() -> None:
    """Its entries come back as they were."""
    header, changes, _ = read_changelog(GOLDEN / "changelog-v1.bin")
    assert (header.uid, header.slot, header.batch, header.epoch) == ("turnaround", 1, 7, 3)
    assert list(changes) == [(b"\x00\x40key", b"value"), (b"\x00\x41gone", None), (b"\x00\x42empty", b"")]


def test_what_steps_with_two_inputs_store_says_what_it_said() -> None:
    """Event times of the second inputs need version 4 and changelog version 2, without an operator frame; without them nothing changes."""
    data = (GOLDEN / "checkpoint-v4-two-inputs.json").read_bytes()
    assert decode_metadata(data, path="golden") == _metadata(second_watermarks={"turnaround": 1_356_999_999_000})
    assert data.startswith(b'{"format_version":4,')
    assert b"second" not in encode_metadata(_metadata())
    header, changes, operator_state = read_changelog(GOLDEN / "changelog-v2-two-inputs.bin")
    assert (header.max_event_time_ms, header.second_max_event_time_ms, header.version) == (None, -5, 2)
    assert (header.operator_state, operator_state) == (None, ())
    assert list(changes) == [(b"\x00\x40key", b"value")]
    record = decode_document((GOLDEN / "batch-v4.json").read_bytes(), "batch", BatchRecord, path="golden")
    assert (record.max_event_times, record.second_max_event_times) == ({"turnaround": 7, "other": None}, {"turnaround": 5})


def test_a_job_with_broadcast_state_says_what_it_said() -> None:
    """A release that does not know broadcast state refuses its documents and changelogs as of an unknown version."""
    data = (GOLDEN / "checkpoint-v6.json").read_bytes()
    metadata = decode_metadata(data, path="golden")
    assert data.startswith(b'{"format_version":6,')
    with pytest.raises(IncompatibleFormatError, match="contents do not match format_version 5"):
        decode_metadata(data.replace(b'"format_version":6', b'"format_version":5', 1), path="golden")
    header, changes, operator_state = read_changelog(GOLDEN / "changelog-v4.bin")
    assert (header.version, header.operator_state, header.parallelism) == (4, "changed", 2)
    assert header.states == metadata.states
    assert (header.broadcast_digest, header.broadcast_query) == ("ab" * 32, 3)
    elements, rules = operator_state
    assert (elements.state_id, elements.whole, elements.items) == (4, True, ((b"", b"\x01a"),))
    assert (rules.slot, rules.state_id, rules.whole) == (1, 5, False)
    assert dict(rules.items) == {b"gone": None, b"none": b"\x03", b"rule": b"\x01" + (7).to_bytes(8, "big")}
    assert list(changes) == [(b"\x00\x40key", b"value")]


def test_a_changelog_has_the_fields_of_version_2_that_are_not_empty(tmp_path: Path) -> None:
    """In every version: an empty one is not written, and one that is written although it is empty, or too early, is refused."""
    segmented: dict[str, Any] = {"state_id": 1, "uid": "u", "name": "l", "kind": "list", "segmented": True}
    plain: dict[str, Any] = {"uid": "u", "slot": 0, "batch": 1, "epoch": 1, "first_key_group": 0, "last_key_group": 1}
    second: dict[str, Any] = {"second_max_event_time_ms": 0}
    operator: dict[str, Any] = {"operator_state": "changed", "parallelism": 1}
    broadcast = segmented | {"kind": "operator-broadcast", "segmented": False}
    rows: dict[str, Any] = {"broadcast_digest": "0" * 64, "broadcast_query": 0}
    by_value: dict[str, Any] = {"event_times_by_value": ({}, {'{"partition":0}': 7})}
    cases: list[tuple[tuple[dict[str, Any], ...], dict[str, Any], int]] = [
        ((), {}, 1),
        ((), second, 2),
        ((), second | operator, 2),
        ((segmented,), second, 3),
        ((segmented,), operator, 3),
        ((segmented, broadcast), {}, 4),
        ((broadcast,), second | operator, 4),
        ((broadcast,), operator | rows, 4),
        ((), rows, 4),
        ((), by_value, 7),
        ((broadcast,), operator | rows | by_value, 7),
    ]
    for number, (states, later, version) in enumerate(cases):
        header = ChangelogHeader(**plain, states=states, **later)
        path = tmp_path / str(number)
        ChangelogWriter(path, header).close()
        data = path.read_bytes()
        assert data[4] == version
        assert [name for name in (*second, *operator, *rows, *by_value) if f'"{name}"'.encode() in data] == list(later)
        assert read_changelog(path).header == header
        if version > 1:
            path.write_bytes(_changelog(min(version - 1, 5), header.model_dump_json().encode()))
            with pytest.raises(IncompatibleFormatError, match="fields do not match"):
                read_changelog(path)
    path = tmp_path / "early"
    path.write_bytes(_changelog(1, ChangelogHeader(**plain).model_dump_json().encode()))
    with pytest.raises(IncompatibleFormatError, match="fields do not match version 1"):
        read_changelog(path)


def _changelog(version: int, header: bytes) -> bytes:
    start = b"SSCL" + bytes([version]) + len(header).to_bytes(4, "big") + header
    return start + zlib.crc32(start).to_bytes(4, "big")


def test_the_golden_checkpoint_says_what_it_said() -> None:
    """Fields keep their meaning, not only their syntax."""
    metadata = decode_metadata((GOLDEN / "checkpoint-v1.json").read_bytes(), path="golden")
    assert metadata == _metadata()
    assert metadata.replay_after == 40


def test_the_version_stands_first() -> None:
    """A person or program sees it before anything else."""
    assert encode_metadata(_metadata()).startswith(b'{"format_version":1,"kind":"checkpoint",')


def test_an_unknown_version_is_refused_as_such() -> None:
    """Not as damage: the remedy is another release."""
    later = encode_metadata(_metadata()).replace(b'"format_version":1', b'"format_version":%d' % (FORMAT_VERSION + 1), 1)
    with pytest.raises(IncompatibleFormatError, match=f"format_version {FORMAT_VERSION + 1}"):
        decode_metadata(later, path="p")


PACK = FileRef(name="pack-1", path="../spark-state/00000001/000000000041/0123", size_bytes=9, checksum=SUM)


def test_a_checkpoint_with_state_of_sparks_own_is_of_version_2() -> None:
    """A release that reads version 1 only must not restore it without that state; without such state it stays readable to it."""
    data = encode_metadata(_metadata(spark_state=(PACK,)))
    assert data.startswith(b'{"format_version":2,')
    assert decode_metadata(data, path="p").spark_state == (PACK,)
    assert b"spark_state" not in encode_metadata(_metadata())


def test_a_document_of_version_1_with_a_field_of_version_2_is_refused() -> None:
    """No release writes such a thing."""
    data = encode_metadata(_metadata(spark_state=(PACK,))).replace(b'"format_version":2', b'"format_version":1', 1)
    with pytest.raises(IncompatibleFormatError, match="spark_state"):
        decode_metadata(data, path="p")


OPERATOR_FILES = tuple(
    OperatorFile(slot=slot, name="operator", path=f"slot-{slot}-0123abcd/operator", size_bytes=9, checksum=SUM) for slot in range(2)
)


def test_a_checkpoint_with_operator_state_is_of_version_4() -> None:
    """A release that cannot restore operator state must not start without it; without such state the checkpoint stays readable to it."""
    data = encode_metadata(_metadata(operator_state=OPERATOR_FILES))
    assert data.startswith(b'{"format_version":4,')
    found = decode_metadata(data, path="p")
    assert found.operator_state == OPERATOR_FILES
    assert set(OPERATOR_FILES) < set(found.files())
    assert b"operator_state" not in encode_metadata(_metadata())
    with pytest.raises(IncompatibleFormatError, match="operator_state"):
        decode_metadata(data.replace(b'"format_version":4', b'"format_version":3', 1), path="p")


@pytest.mark.parametrize("slots", [(1, 0), (0, 0), (2,)])
def test_operator_files_are_one_per_slot(slots: tuple[int, ...]) -> None:
    """Two files of one slot, or a file of a slot that does not exist, are never written."""
    with pytest.raises(ValidationError, match="one per slot"):
        _metadata(operator_state=tuple(OPERATOR_FILES[0].model_copy(update={"slot": slot}) for slot in slots))


@pytest.mark.parametrize("version", [b"0", b"-1", b"true", b"1.5", b'"1"', b"null"])
def test_what_is_no_version_is_refused(version: bytes) -> None:
    data = encode_metadata(_metadata()).replace(b'"format_version":1', b'"format_version":' + version, 1)
    with pytest.raises(IncompatibleFormatError, match="format_version"):
        decode_metadata(data, path="p")


def test_a_field_this_release_does_not_know_is_refused() -> None:
    """Its meaning would be lost."""

    class Later(CheckpointMetadata):
        flavour: str = "new"

    data = encode_document("checkpoint", Later(**_metadata().model_dump()))
    with pytest.raises(IncompatibleFormatError, match="flavour"):
        decode_metadata(data, path="p")


def test_another_kind_of_object_is_refused() -> None:
    """A batch record is not a checkpoint."""
    with pytest.raises(CorruptDataError, match="expected kind"):
        decode_metadata(encode_document("job", JobIdentity(name="n", max_parallelism=1)), path="p")


@given(data=st.data())
def test_every_changed_byte_is_seen(data: st.DataObject) -> None:
    """Any byte replaced by another: refused, or it changes nothing that is said (white space between tokens)."""
    original = encode_metadata(_metadata())
    damaged = bytearray(original)
    damaged[data.draw(st.integers(0, len(original) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = decode_metadata(bytes(damaged), path="p")
    except CorruptDataError:
        return
    assert found == _metadata()


@given(length=st.integers(0, 400))
def test_truncation_is_seen(length: int) -> None:
    """A torn write is never taken for a checkpoint."""
    data = encode_metadata(_metadata())
    with pytest.raises(CorruptDataError):
        decode_metadata(data[: min(length, len(data) - 2)], path="p")


def test_slots_must_hold_every_key_group_once() -> None:
    """A metadata with a gap is never written."""
    slots = _metadata().slots
    with pytest.raises(ValidationError, match="do not follow"):
        _metadata(slots=(slots[1], slots[0]))
    with pytest.raises(ValidationError, match="every key group"):
        _metadata(slots=slots[:1])


@pytest.mark.parametrize("path", ["/etc/passwd", "../../x", "a/../b", "a//b", "../shared/../../x", "."])
def test_references_cannot_leave_the_folder(path: str) -> None:
    """A metadata made by somebody else must not make the restore read or write elsewhere."""
    with pytest.raises(ValidationError):
        FileRef(name="n", path=path, size_bytes=1, checksum=SUM)
    with pytest.raises(ValidationError):
        FileRef(name="a/b", path="x", size_bytes=1, checksum=SUM)


def test_the_document_is_plain_json() -> None:
    """Tools without this package can read it."""
    assert json.loads(encode_metadata(_metadata()))["body"]["batch"] == 41


@pytest.mark.parametrize("name", ["a:B", f"my_package.{'deep.' * 90}backend:MyBackend"])
def test_a_backend_of_ones_own_needs_version_4(name: str) -> None:
    """Older releases cannot open its stores, so they must refuse the document as unknown, however short the name is."""
    metadata = _metadata()
    own = metadata.model_copy(update={"slots": tuple(slot.model_copy(update={"backend": name}) for slot in metadata.slots)})
    data = encode_metadata(own)
    assert data.startswith(b'{"format_version":4,')
    assert decode_metadata(data, path="c") == own
    older = data.replace(b'{"format_version":4,', b'{"format_version":3,')
    with pytest.raises(IncompatibleFormatError, match="contents do not match format_version 3"):
        decode_metadata(older, path="c")


def test_heap_timers_are_said_from_version_8_on() -> None:
    """Releases before it would open RocksDB's files and lose the timers. Absent, the document keeps its bytes; present, it agrees with the files."""
    plain = _metadata()
    assert b"heap_timers" not in encode_metadata(plain)
    timers = FileRef(name="heap-timers", path="slot-1/heap-timers", size_bytes=10, checksum=SUM)
    slot = plain.slots[1]
    with_timers = SlotState(**{**slot.__dict__, "private": (*slot.private, timers), "heap_timers": True})
    data = encode_metadata(_metadata(slots=(plain.slots[0], with_timers)))
    assert data.startswith(b'{"format_version":8,')
    assert data.count(b"heap_timers") == 1
    assert decode_metadata(data, path="x").slots[1].heap_timers
    with pytest.raises(IncompatibleFormatError, match="contents do not match format_version 6"):
        decode_metadata(data.replace(b'"format_version":8', b'"format_version":6', 1), path="x")
    for wrong in ({"private": (*slot.private, timers)}, {"heap_timers": True}):
        with pytest.raises(ValidationError, match="heap_timers does not agree with the files"):
            SlotState(**{**slot.__dict__, **wrong})


SESSIONS: dict[str, Any] = {"state_id": 2, "uid": "turnaround", "name": "_sessions(MergingTimeWindow, string)", "kind": "value"}


def test_joint_sessions_are_of_version_10() -> None:
    """Releases before it would leave them behind. Documents of a lower version, as the first code with joint sessions wrote them, stay readable."""
    metadata = _metadata(states=(*_metadata().states, SESSIONS))
    data = encode_metadata(metadata)
    assert data == (GOLDEN / "checkpoint-v10.json").read_bytes()
    for version in (1, 9):
        assert decode_metadata(data.replace(b'"format_version":10', b'"format_version":%d' % version, 1), path="x") == metadata


def test_a_changelog_of_a_step_with_joint_sessions_is_of_version_5(tmp_path: Path) -> None:
    """Of a lower version it stays readable; the version that lacks another field of the header does not."""
    header = ChangelogHeader(uid="u", slot=0, batch=1, epoch=1, first_key_group=0, last_key_group=3, states=(SESSIONS,))
    writer = ChangelogWriter(tmp_path / "changelog", header)
    writer.append([(b"\x00\x02key", b"value")])
    writer.close()
    data = (tmp_path / "changelog").read_bytes()
    assert data == (GOLDEN / "changelog-v5.bin").read_bytes()
    found, changes, _ = read_changelog(GOLDEN / "changelog-v5.bin")
    assert (found, list(changes)) == (header, [(b"\x00\x02key", b"value")])
    start = data[: 9 + int.from_bytes(data[5:9], "big")]
    for version, readable in ((1, True), (2, False), (4, False)):
        older = start[:4] + bytes([version]) + start[5:]
        (tmp_path / "older").write_bytes(older + zlib.crc32(older).to_bytes(4, "big") + data[len(start) + 4 :])
        with nullcontext() if readable else pytest.raises(IncompatibleFormatError, match=f"do not match version {version}"):
            assert read_changelog(tmp_path / "older").header == header
