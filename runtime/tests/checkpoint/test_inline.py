"""Entries within ``_metadata``: their format for good, what refuses them, and the limits, whatever the sizes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from statefulspark.checkpoint.catalog import StoredCheckpoint
from statefulspark.checkpoint.formats import documents
from statefulspark.checkpoint.formats.metadata import FileRef, InlineEntries, SlotState, decode_metadata, encode_metadata
from statefulspark.checkpoint.restore.slot_files import fetch_slot
from statefulspark.checkpoint.write.inline import InlineLimits, check_inline
from statefulspark.checkpoint.write.upload import SlotUploader
from statefulspark.errors import CorruptDataError, IncompatibleFormatError, InternalError, InvalidInputError
from statefulspark.keygroups import KeyGroupRange
from statefulspark.state.encoding.entries import read_entries
from statefulspark.state.encoding.layout import StateInfo
from statefulspark.state.store.heap_store import HeapStore
from statefulspark.storage.open import open_store

GOLDEN = Path(__file__).parent / "golden/checkpoint-v7-memory.json"


def _golden() -> Any:
    return decode_metadata(GOLDEN.read_bytes(), path="golden")


def test_the_golden_checkpoint_opens_and_is_written_the_same(tmp_path: Path) -> None:
    """Never regenerate it. Each slot's part becomes the file ``entries`` that its store opens."""
    metadata = _golden()
    assert encode_metadata(metadata) == GOLDEN.read_bytes()
    checkpoint = StoredCheckpoint(open_store(tmp_path.as_uri()), "chk-7", metadata)
    for slot, expected in zip(metadata.slots, ([(b"\x00\x03\x00\x01key", b"\x01one")], []), strict=True):
        fetch_slot(checkpoint, slot, tmp_path / str(slot.slot), 1)
        assert list(read_entries(tmp_path / str(slot.slot) / "entries")) == expected


def test_a_release_without_inline_entries_refuses_the_document(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of another version, not as damaged, and before it reads the rest."""
    monkeypatch.setattr(documents, "FORMAT_VERSION", 6)
    with pytest.raises(IncompatibleFormatError, match="written in a format that this release cannot read"):
        _golden()


def test_damaged_entries_are_refused_before_a_store_opens_them(tmp_path: Path) -> None:
    """Wrong bytes of the right length, or none; the error names ``_metadata``."""
    metadata = _golden()
    part = metadata.slots[0].inline
    for data in (bytes([part.data[0] ^ 1]) + part.data[1:], b""):
        slot = metadata.slots[0].model_copy(update={"inline": part.model_copy(update={"data": data})})
        checkpoint = StoredCheckpoint(open_store(tmp_path.as_uri()), "chk-7", metadata)
        with pytest.raises(CorruptDataError, match=r"chk-7/_metadata: the file's .* changed"):
            fetch_slot(checkpoint, slot, tmp_path / str(len(data)), 1)
        assert not (tmp_path / str(len(data)) / "entries").exists()


def test_a_slot_has_files_or_entries_and_a_document_has_the_bytes() -> None:
    metadata = _golden()
    file = FileRef(name="entries", path="slot-0/entries", size_bytes=1, checksum="sha256:" + "ab" * 32)
    with pytest.raises(ValidationError, match="both files and inline entries"):
        SlotState(slot=0, first=0, last=1, backend="memory", private=(file,), inline=metadata.slots[0].inline)
    with pytest.raises(ValidationError, match="data does not have size_bytes"):
        InlineEntries(size_bytes=2, checksum=file.checksum, data=b"x")
    with pytest.raises(InternalError, match="the inline entries of slot 0 are not here"):
        encode_metadata(metadata.with_inline_of(None))
    assert metadata.with_inline_of(None).inline_bytes == metadata.inline_bytes


SIZES = st.dictionaries(st.integers(0, 3), st.dictionaries(st.integers(1, 4), st.integers(1, 50), max_size=4), max_size=4)


@given(sizes=SIZES, state_bytes=st.integers(1, 60), checkpoint_bytes=st.integers(1, 300))
def test_limits_of_any_sizes(sizes: dict[int, dict[int, int]], state_bytes: int, checkpoint_bytes: int) -> None:
    """Refused exactly if one size, or the sum, is more than its limit; the message names the largest, by the limit that is exceeded first."""
    states = [
        StateInfo(state_id=number, uid="u", name=f"s{number}", kind="value", key_type=[], type={}, ttl_ms=None) for number in (1, 2, 3)
    ]
    slots = [SlotState(slot=slot, first=slot, last=slot, backend="memory", inline=InlineEntries.of(b"x")) for slot in sizes]
    single = max((size for each in sizes.values() for size in each.values()), default=0)
    per_state = Counter[int]()
    for each in sizes.values():
        per_state.update(each)
    limits = InlineLimits(state_bytes=state_bytes, checkpoint_bytes=checkpoint_bytes)
    if single <= state_bytes and per_state.total() <= checkpoint_bytes:
        check_inline(7, slots, sizes, states, limits)
        return
    with pytest.raises(InvalidInputError) as caught:
        check_inline(7, slots, sizes, states, limits)
    label = "maxStateSize" if single > state_bytes else "maxCheckpointSize"
    assert f"stateBackend.memory.{label} = " in str(caught.value)
    assert caught.value.remedy == "Raise it, or use type: filesystem or rocksdb"
    largest = {state for each in sizes.values() for state, size in each.items() if size == single}
    if single <= state_bytes:
        largest = {state for state, size in per_state.items() if size == max(per_state.values())}
    assert any((f"'s{state}' of uid 'u'" if state < 4 else f"{state}") in str(caught.value) for state in largest)


def test_each_part_comes_with_its_own_sizes(tmp_path: Path) -> None:
    """Checkpoints and savepoints of one uploader: what another one uploaded meanwhile changes no part's sizes, and no limit applies to a savepoint."""
    job, savepoints = open_store((tmp_path / "job").as_uri()), open_store((tmp_path / "savepoints").as_uri())
    uploader = SlotUploader(job, slot=0, key_groups=KeyGroupRange(0, 7), backend="memory", inline_max_bytes=1 << 20)
    store = HeapStore()
    parts = []
    for number, length in enumerate((10, 1000)):
        store.write([(b"\0\1\0\1k", b"v" * length)])
        store.begin_snapshot(tmp_path / f"{number}").write()
        parts.append(uploader.upload(tmp_path / f"{number}", number, nonce="0" * 7, base_checkpoint_id=None, step_batches={}))
        parts.append(uploader.upload_savepoint(tmp_path / f"{number}", savepoints, f"sp{number}", base_checkpoint_id=None, step_batches={}))
    assert [sizes for _, sizes in parts] == [{1: 8 + 5 + 10}, None, {1: 8 + 5 + 1000}, None]
    assert [state.inline is not None for state, _ in parts] == [True, False, True, False]
    assert [[file.name for file in state.files] for state, _ in parts] == [[], ["entries"], [], ["entries"]]
    files = SlotUploader(job, slot=0, key_groups=KeyGroupRange(0, 7), backend="filesystem")
    assert files.upload(tmp_path / "0", 3, nonce="0" * 7, base_checkpoint_id=None, step_batches={})[1] is None
