"""The default state backend of local runs, for manifests that name none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from statefulspark.cli.main import app
from statefulspark.config.default_backend import DEFAULT_VARIABLE, default_state_backend, with_default_backend
from statefulspark.config.manifest import load_manifest
from statefulspark.config.state_backend import StateBackendType
from statefulspark.errors import InvalidInputError


def _manifest(folder: Path, **spec: Any) -> Path:
    document = {
        "apiVersion": "statefulspark.io/v1alpha1",
        "kind": "StatefulSparkJob",
        "metadata": {"name": "counts"},
        "spec": {"job": {"script": "counts.py"}, "checkpointing": {"dir": "file:///tmp/x"}, **spec},
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, "rocksdb"), ("", "rocksdb"), (" memory ", "memory"), ("filesystem", "filesystem"), ("shop.backend:Own", "shop.backend:Own")],
)
def test_the_variable_names_the_default(value: str | None, expected: str) -> None:
    assert default_state_backend({DEFAULT_VARIABLE: value} if value is not None else {}) == expected


def test_a_wrong_variable_is_refused_by_name() -> None:
    with pytest.raises(
        InvalidInputError,
        match=rf"^{DEFAULT_VARIABLE}: is not a state backend\. Did you mean rocksdb\? Or name a StateBackend as module:Class$",
    ):
        default_state_backend({DEFAULT_VARIABLE: "RocksDB"})


def test_the_manifest_wins_over_the_default(tmp_path: Path) -> None:
    """Also with a stateBackend that has other fields only; what does not go with the default is refused."""
    assert load_manifest(_manifest(tmp_path)).spec.state_backend.type == StateBackendType.ROCKSDB
    given = _manifest(tmp_path, stateBackend={"type": "filesystem"})
    assert load_manifest(given, default_backend=StateBackendType.MEMORY).spec.state_backend.type == StateBackendType.FILESYSTEM
    assert load_manifest(_manifest(tmp_path), default_backend=StateBackendType.MEMORY).spec.state_backend.type == StateBackendType.MEMORY
    tuned = _manifest(tmp_path, stateBackend={"rocksdb": {"localDir": "/x"}})
    with pytest.raises(InvalidInputError, match=r"spec.stateBackend.rocksdb: has no effect with type memory"):
        load_manifest(tuned, default_backend=StateBackendType.MEMORY)


def test_what_is_no_manifest_is_left_to_validation() -> None:
    """And the document itself is never changed."""
    wrong: tuple[Any, ...] = (None, [], {}, {"spec": None}, {"spec": {"stateBackend": "memory"}})
    for each in wrong:
        assert with_default_backend(each, StateBackendType.MEMORY) == each
    document: dict[str, Any] = {"spec": {"parallelism": 1}}
    assert with_default_backend(document, StateBackendType.MEMORY) != document
    assert document == {"spec": {"parallelism": 1}}


def test_commands_take_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`statefulspark memory` shows what `run` would do: with state on the heap there is no split of native memory."""
    path = _manifest(tmp_path)
    shown = {}
    for value in ("rocksdb", "memory"):
        monkeypatch.setenv(DEFAULT_VARIABLE, value)
        done = CliRunner().invoke(app, ["memory", str(path), "--output", "json"])
        assert done.exit_code == 0, done.output
        shown[value] = json.loads(done.stdout)
    assert shown["rocksdb"] != shown["memory"]
    monkeypatch.setenv(DEFAULT_VARIABLE, "rocks")
    for command in (["memory", str(path)], ["run", str(path)]):
        done = CliRunner().invoke(app, command)
        assert done.exit_code != 0
        assert DEFAULT_VARIABLE in done.output + str(done.exception)
