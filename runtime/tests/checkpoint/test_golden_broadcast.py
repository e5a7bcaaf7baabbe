"""The savepoint of a job with broadcast state, of the release that introduced it. Never regenerate it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from statefulspark.checkpoint.catalog import open_checkpoint
from statefulspark.checkpoint.formats import documents
from statefulspark.checkpoint.formats.digests import digest_bytes
from statefulspark.checkpoint.formats.metadata import decode_metadata, encode_metadata
from statefulspark.checkpoint.formats.operator_state import decode_operator_file, encode_operator_file
from statefulspark.checkpoint.inspect.reader import read_state, state_sizes
from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.checkpoint.restore.broadcast_state import StoredBroadcastState
from statefulspark.checkpoint.restore.slot import RestorePlan, restore_slot
from statefulspark.cli.main import app
from statefulspark.errors import IncompatibleFormatError, InvalidInputError
from statefulspark.keygroups import key_group_range
from statefulspark.state.api.descriptors import MapStateDescriptor
from statefulspark.state.operator.backend import OperatorStateBackend, StepOperatorState
from statefulspark.state.operator.entries import OperatorEntry
from statefulspark.state.registry import StateRegistry
from statefulspark.state.store.heap_store import HeapStore
from statefulspark.state.types.types import Types
from statefulspark.storage.open import open_store

GOLDEN = Path(__file__).parent / "golden" / "savepoint-broadcast-state-v6"
HELD: dict[str, dict[Any, Any]] = {"rules": {"gone": 1, "limit": 5, "none": None}, "notes": {4: ["none"]}}
"""Of two slots, which wrote them in two batches."""
DESCRIPTORS = {
    "rules": MapStateDescriptor("rules", Types.STRING(), Types.LONG()),
    "notes": MapStateDescriptor("notes", Types.LONG(), Types.LIST(Types.STRING())),
}


@pytest.fixture
def savepoint(tmp_path: Path) -> Path:
    """A copy, which a test may damage."""
    return shutil.copytree(GOLDEN, tmp_path / "savepoint")


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_every_slot_restores_the_copy(savepoint: Path, tmp_path: Path, parallelism: int) -> None:
    """Also slots that did not exist when the savepoint was taken."""
    base = open_checkpoint(savepoint.as_uri(), open_store)
    for slot in range(parallelism):
        stored = StoredBroadcastState(slot)
        plan = RestorePlan(
            store=open_store((tmp_path / "job").as_uri()),
            base=base,
            changelogs=(),
            batch=base.metadata.batch,
            key_groups=key_group_range(slot, parallelism, 128),
            max_parallelism=128,
            backend="memory",
        )
        restore_slot(plan, tmp_path / f"slot-{slot}", HeapStore, operator_state=[stored]).store.close()
        states = stored.states("testing")
        start = StepOperatorState(states=tuple(states), restored=True, broadcast=stored.entries("testing"))
        backend = OperatorStateBackend(StateRegistry(states), uid="testing", slot=slot, parallelism=parallelism, start=start)
        backend.broadcast.declare(list(DESCRIPTORS.values()))
        assert {name: dict(backend.broadcast.read_only(each).items()) for name, each in DESCRIPTORS.items()} == HELD


def test_one_copy_is_shown(savepoint: Path) -> None:
    """Not one per slot: sizes and entries are those of the state, by map key."""
    url = savepoint.as_uri()
    assert verify(url).problems == ()
    for name, held in HELD.items():
        entries = list(read_state(url, "testing", name))
        assert {entry.user_key: entry.value for entry in entries} == held
        assert all(entry.slot is None and entry.key_group is None for entry in entries)
    sizes = {size.info.name: (size.entries, size.size_bytes) for size in state_sizes(url) if size.info.kind == "operator-broadcast"}
    assert {name: entries for name, (entries, _) in sizes.items()} == {"rules": 3, "notes": 1}
    assert sizes["rules"][1] == len("gone" + "limit" + "none") + 9 + 9 + 1
    with pytest.raises(InvalidInputError, match="the operator state 'rules' has no keys"):
        read_state(url, "testing", "rules", key="limit")
    shown = CliRunner().invoke(app, ["state", url, "--uid", "testing", "--state", "rules", "--output", "json"])
    assert json.loads(shown.stdout)["entries"] == [{"user_key": key, "value": value} for key, value in HELD["rules"].items()]


def test_a_release_without_broadcast_state_refuses_the_savepoint_as_of_an_unknown_version(
    savepoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not as damage, and before anything is read. Its documents go up to version 5."""
    monkeypatch.setattr(documents, "FORMAT_VERSION", 5)
    with pytest.raises(IncompatibleFormatError, match="expected format_version 1 to 5, found format_version 6"):
        open_checkpoint(savepoint.as_uri(), open_store)


def test_verify_finds_a_damaged_copy(savepoint: Path) -> None:
    """By the name of the file; the other slot's copy is not damaged."""
    first, second = sorted(savepoint.glob("slot-*/operator"))
    data = bytearray(second.read_bytes())
    data[-1] ^= 1
    second.write_bytes(data)
    (problem,) = verify(savepoint.as_uri()).problems
    assert second.parent.name in problem
    assert first.parent.name not in problem


@pytest.mark.parametrize("lost", [1, 3])
def test_verify_finds_copies_that_differ(savepoint: Path, lost: int) -> None:
    """Which no single file shows: each is what its slot wrote."""
    data = (savepoint / "_metadata").read_bytes()
    metadata = decode_metadata(data, path="_metadata")
    file = metadata.operator_state[1]
    path = savepoint / file.path
    ids = {state["name"]: state["state_id"] for state in metadata.states}
    entries = [
        OperatorEntry(each.slot, each.state_id, each.items[: -lost or None] if each.state_id == ids["rules"] else each.items, whole=False)
        for each in decode_operator_file(path.read_bytes(), path="operator")
    ]
    path.write_bytes(encode_operator_file([entry for entry in entries if entry.items]))
    digest = digest_bytes(path.read_bytes())
    changed = file.model_copy(update={"size_bytes": digest.size_bytes, "checksum": digest.checksum})
    files = (metadata.operator_state[0], changed)
    (savepoint / "_metadata").write_bytes(encode_metadata(metadata.model_copy(update={"operator_state": files})))
    assert verify(savepoint.as_uri()).problems == ("slots have different copies of the broadcast state 'rules' of uid 'testing'",)
