"""The wheel that is released: what is in it, and that it runs the README's sample where nothing else of this repository is."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EXAMPLE = "examples/02-sessions"


def run(*command: str | Path, cwd: Path, timeout_s: float = 60, **environment: str) -> str:
    """Run a command and return its output; with its errors if it fails."""
    variables = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}} | environment
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=variables, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as file:
        (name,) = (name for name in file.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(file.read(name).decode())


def test_the_wheel_has_both_packages_and_their_data(wheel: Path) -> None:
    """Tests, and the hooks by which tests do harm, stay out."""
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
    assert {
        "statefulspark/py.typed",
        "statefulspark/job/spark/pools.xml",
        "statefulspark/api_server/status_page.html",
        "statefulspark/api_server/status_page.css",
        "statefulspark/api_server/status_page_charts.js",
        "statefulspark_operator/__main__.py",
    } <= names
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"statefulspark", "statefulspark_operator"}
    assert [name for name in names if "/faults/" in name or "/tests/" in name] == []


def test_the_metadata_leads_to_the_project(metadata: Message) -> None:
    urls = dict(entry.split(", ", 1) for entry in metadata.get_all("Project-URL", []))
    assert urls.keys() == {"Documentation", "Source", "Changelog", "Issues"}
    assert metadata["License-Expression"] == "Apache-2.0"


def test_the_unpacked_wheel_starts(wheel: Path, metadata: Message, tmp_path: Path) -> None:
    """With the packages of this environment, but none of the repository's modules."""
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path / "site")
    code = "import statefulspark.cli.main as main; print(main.__file__); main.app()"
    output = run(sys.executable, "-c", code, "--version", cwd=tmp_path, PYTHONPATH=str(tmp_path / "site"))
    assert output.splitlines() == [str(tmp_path / "site/statefulspark/cli/main.py"), f"statefulspark {metadata['Version']}"]


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
def test_the_wheel_runs_the_sample_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    """With everything else from PyPI, as a user gets it."""
    try:
        socket.create_connection(("pypi.org", 443), timeout=10).close()
    except OSError:
        pytest.skip("PyPI cannot be reached")
    run(sys.executable, "-m", "venv", "env", cwd=tmp_path, timeout_s=300)
    python = tmp_path / "env/bin/python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel, cwd=tmp_path, timeout_s=1200)
    shutil.copytree(ROOT / EXAMPLE, tmp_path / EXAMPLE, ignore=shutil.ignore_patterns("__pycache__"))
    manifest = tmp_path / EXAMPLE / "job.yaml"
    manifest.write_text(manifest.read_text().replace("file:///tmp/", f"{tmp_path.as_uri()}/"))
    home = str(tmp_path / "home")
    command = (tmp_path / "env/bin/statefulspark", "run", manifest, "--until-idle", "--drain")
    run(*command, cwd=tmp_path, timeout_s=300, STATEFULSPARK_HOME=home, SPARK_LOCAL_DIRS=str(tmp_path / "spark"))
    code = "import pandas; print(pandas.read_parquet('out/sessions/output').clicks.sum())"
    clicks = sum(len(path.read_text().splitlines()) for path in (tmp_path / EXAMPLE / "clicks").iterdir())
    assert int(run(python, "-c", code, cwd=tmp_path)) == clicks > 0
