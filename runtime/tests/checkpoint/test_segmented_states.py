"""What says that lists of a state are stored in segments: versions of documents and changelogs, and descriptions that are put together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statefulspark.checkpoint.formats import changelog
from statefulspark.checkpoint.formats.changelog import ChangelogHeader, ChangelogWriter, read_changelog
from statefulspark.checkpoint.formats.metadata import CheckpointMetadata, decode_metadata, encode_metadata
from statefulspark.checkpoint.restore.merged_states import MergedStates
from statefulspark.errors import IncompatibleFormatError
from statefulspark.state.encoding.layout import StateInfo
from statefulspark.state.evolution.histories import merge_newer
from statefulspark.state.operator.entries import OperatorEntry
from statefulspark.state.registry import StateRegistry

GOLDEN = Path(__file__).parent / "golden"
PLAIN = StateInfo(3, "step", "list", "list", [{"type": "STRING"}], {"type": "LIST", "element": {"type": "LONG"}})
SEGMENTED = replace(PLAIN, segmented=True)
OTHER = replace(PLAIN, state_id=4, name="other")
DESCRIPTION: dict[str, Any] = {"key_type": PLAIN.key_type, "type": PLAIN.type, "ttl_ms": None}
CHANGES = [(b"\x00\x40key", b"value"), (b"\x00\x41gone", None)]
ENTRY = OperatorEntry(slot=1, state_id=9, items=((b"", b"\1x"),))


def _header(*states: StateInfo, operator_state: bool = False) -> ChangelogHeader:
    return ChangelogHeader(
        uid="step",
        slot=1,
        batch=7,
        epoch=3,
        first_key_group=64,
        last_key_group=127,
        states=tuple(state.to_json() for state in states),
        operator_state="changed" if operator_state else None,
        parallelism=2 if operator_state else None,
    )


def _written(path: Path, header: ChangelogHeader) -> Path:
    writer = ChangelogWriter(path, header, [ENTRY] if header.operator_state else [])
    writer.append(CHANGES)
    writer.close()
    return path


@pytest.mark.parametrize("operator_state", [False, True])
def test_a_changelog_of_a_segmented_state_is_of_version_3(tmp_path: Path, operator_state: bool) -> None:
    """With and without operator state; other changelogs keep their version, so that the releases before read them."""
    path = _written(tmp_path / "c", _header(OTHER, SEGMENTED, operator_state=operator_state))
    assert path.read_bytes()[4] == 3
    header, changes, entries = read_changelog(path)
    assert header == _header(OTHER, SEGMENTED, operator_state=operator_state)
    assert list(changes) == CHANGES
    assert entries == ((ENTRY,) if operator_state else ())
    assert _written(tmp_path / "d", _header(OTHER, PLAIN, operator_state=operator_state)).read_bytes()[4] == (2 if operator_state else 1)


@pytest.mark.parametrize("operator_state", [False, True])
def test_a_changelog_of_version_3_opens(operator_state: bool, tmp_path: Path) -> None:
    """A golden file, which is written the same. Never regenerate it."""
    golden = GOLDEN / f"changelog-v3{'-operator-state' if operator_state else ''}.bin"
    header, changes, entries = read_changelog(golden)
    assert header == _header(OTHER, SEGMENTED, operator_state=operator_state)
    assert list(changes) == CHANGES
    assert entries == ((ENTRY,) if operator_state else ())
    assert _written(tmp_path / "c", header).read_bytes() == golden.read_bytes()


def test_a_release_without_segments_refuses_the_changelog_as_of_an_unknown_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changelog, "VERSION", 2)
    with pytest.raises(IncompatibleFormatError, match="expected version 1 to 2, found version 3"):
        read_changelog(_written(tmp_path / "c", _header(SEGMENTED)))


def test_a_version_that_does_not_know_segments_has_none(tmp_path: Path) -> None:
    """A document or changelog whose version is too low for its states is refused; its checksum fits, so nobody has damaged it."""
    document = (GOLDEN / "checkpoint-v5.json").read_bytes()
    with pytest.raises(IncompatibleFormatError, match="contents do not match format_version 4"):
        decode_metadata(document.replace(b'"format_version":5', b'"format_version":4', 1), path="p")


def test_a_checkpoint_is_of_version_5_only_if_a_state_is_segmented() -> None:
    golden = decode_metadata((GOLDEN / "checkpoint-v5.json").read_bytes(), path="golden")
    assert any(state.get("segmented") for state in golden.states)
    states = [{name: value for name, value in state.items() if name != "segmented"} for state in golden.states]
    plain = CheckpointMetadata.model_validate(golden.model_dump() | {"states": states})
    assert not encode_metadata(plain).startswith(b'{"format_version":5')


def test_a_state_stays_segmented_whatever_is_read_later() -> None:
    """Slots without long lists describe it as before, in headers of any order."""
    for order in ([SEGMENTED, PLAIN], [PLAIN, SEGMENTED], [PLAIN, SEGMENTED, PLAIN, OTHER]):
        found: dict[int, StateInfo] = {}
        merge_newer(found, order, where="test")
        assert found[3] == SEGMENTED
        merged = MergedStates()
        for state in order:
            merged.add([state.to_json()], where="test")
        assert merged.states[0] == SEGMENTED.to_json()
        registry = StateRegistry(order[:1])
        assert registry.take_over(order)
        assert registry.states()[0] == SEGMENTED


def test_a_restored_description_that_changes_keeps_its_segments() -> None:
    """A new incarnation declares the state without knowing; its time to live may change."""
    fading = replace(SEGMENTED, ttl_ms=5)
    registry = StateRegistry([fading])
    assert registry.register("step", "list", "list", {**DESCRIPTION, "ttl_ms": 7}) == replace(fading, ttl_ms=7)
    registry = StateRegistry([PLAIN])
    assert not registry.register("step", "list", "list", DESCRIPTION).segmented
    assert registry.register("step", "list", "list", {**DESCRIPTION, "segmented": True}).segmented
    assert registry.register("step", "list", "list", DESCRIPTION).segmented
