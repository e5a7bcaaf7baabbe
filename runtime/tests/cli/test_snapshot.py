"""``statefulspark snapshot``: describes what is there, removes savepoints and nothing else, and reports each outcome in a file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from statefulspark.checkpoint.formats.metadata import decode_metadata, encode_metadata
from statefulspark.checkpoint.inspect.reports import SnapshotReport
from statefulspark.cli.main import build_app
from statefulspark.errors import UnavailableError

GOLDEN = Path(__file__).resolve().parents[1] / "checkpoint" / "golden" / "savepoint-memory-v1"


@pytest.fixture
def savepoint(tmp_path: Path) -> Path:
    shutil.copytree(GOLDEN, tmp_path / "friday")
    (tmp_path / "beside").write_text("somebody else's")
    return tmp_path / "friday"


def run(*args: str, report: Path) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(build_app(), ["snapshot", *args, f"--report={report}"])
    return done.exit_code, json.loads(report.read_text())


def test_a_savepoint_is_described_and_removed_with_its_files_alone(savepoint: Path, tmp_path: Path) -> None:
    report = tmp_path / "report"
    code, said = run("describe", str(savepoint), "-o", "json", report=report)
    assert code == 0
    assert (said["version"], said["error"], said["disposed"]) == (1, None, False)
    assert (said["snapshot"]["kind"], said["snapshot"]["path"], said["snapshot"]["max_parallelism"]) == (
        "savepoint",
        savepoint.as_uri(),
        128,
    )
    assert said["snapshot"]["size_bytes"] > 0
    for _ in range(2):
        code, said = run("dispose", savepoint.as_uri(), report=report)
        assert (code, said["disposed"], said["error"]) == (0, True, None), "also when it is gone already"
    assert not savepoint.exists()
    assert (tmp_path / "beside").exists()


def test_a_checkpoint_is_left_alone(savepoint: Path, tmp_path: Path) -> None:
    """Its files belong to its job."""
    metadata = savepoint / "_metadata"
    stored = decode_metadata(metadata.read_bytes(), path="")
    metadata.write_bytes(encode_metadata(stored.model_copy(update={"kind": "checkpoint"})))
    code, said = run("dispose", str(savepoint), report=tmp_path / "report")
    assert (code, said["disposed"], said["error"]["reason"]) == (2, False, "InvalidInput")
    assert metadata.exists()


def test_what_is_damaged_is_left_alone(savepoint: Path, tmp_path: Path) -> None:
    metadata = savepoint / "_metadata"
    before = metadata.read_bytes()
    damaged = before[:-1] + bytes([before[-1] ^ 1])
    metadata.write_bytes(damaged)
    code, said = run("dispose", str(savepoint), report=tmp_path / "report")
    assert (code, said["disposed"], said["error"]["reason"]) == (1, False, "CorruptData")
    assert metadata.read_bytes() == damaged


def test_what_is_not_there_is_wrong_input(tmp_path: Path) -> None:
    code, said = run("describe", str(tmp_path / "nothing"), report=tmp_path / "report")
    assert (code, said["error"]["reason"], said["snapshot"]) == (2, "InvalidInput", None)


def test_a_report_fits_into_a_termination_message() -> None:
    """Kubernetes cuts it at 4096 bytes, and half of a report is none."""
    for text in ("\U0001f600" * 9999, "\x00" * 9999, '"' * 9999):
        report = SnapshotReport.of_error(UnavailableError(text)).encode()
        assert len(report) <= 4096
        assert json.loads(report)["error"]["message"]
