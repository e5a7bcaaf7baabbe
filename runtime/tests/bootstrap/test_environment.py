"""The bootstrap script notices when the environment is out of date, and the lock files say the same."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "runtime" / "bootstrap" / "environment.py"


@pytest.fixture
def bootstrap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """Return the script as a module that works in a folder of its own and never installs anything."""
    spec = importlib.util.spec_from_file_location("environment", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    files = []
    for name in ("uv.lock", "requirements.lock"):
        (tmp_path / name).write_text(name)
        files.append(tmp_path / name)
    (tmp_path / ".venv").mkdir()
    monkeypatch.setattr(module, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(module, "STAMP", tmp_path / ".venv" / ".made-from")
    monkeypatch.setattr(module, "MADE_FROM", tuple(files))
    monkeypatch.setattr(module, "find_java", lambda: "/java")
    monkeypatch.setattr(module, "working_uv", lambda: None)
    return module


def test_made_once_and_again_when_a_lock_changes(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The stamp holds as long as locks, interpreter and place are the same."""
    made: list[str] = []
    monkeypatch.setattr(bootstrap, "install_with_pip", lambda: made.append("pip"))
    assert bootstrap.main([]) == 0
    assert bootstrap.main([]) == 0
    assert made == ["pip"]
    (tmp_path / "uv.lock").write_text("changed")
    assert bootstrap.main([]) == 0
    assert made == ["pip", "pip"]
    monkeypatch.setattr(sys, "version_info", (3, 99, 0))
    assert bootstrap.main([]) == 0
    assert made == ["pip", "pip", "pip"]


def test_a_failed_installation_is_not_taken_for_done(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No stamp is left, and the text says what to do."""

    def fail() -> None:
        raise bootstrap.SetUpError("venv failed; install the package python3-venv, or uv")

    monkeypatch.setattr(bootstrap, "install_with_pip", fail)
    assert bootstrap.main([]) == 1
    assert "install the package python3-venv" in capsys.readouterr().err
    assert bootstrap.up_to_date_java_home() is None


def test_java_is_installed_only_where_there_is_none(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a JRE does not download another; one without gets it, or hears what is missing."""
    installed: list[str] = []
    answers: list[str | None] = [None, "/venv/java"]
    monkeypatch.setattr(bootstrap, "install_with_pip", lambda: None)
    monkeypatch.setattr(bootstrap, "install_java", lambda _: installed.append("java"))
    assert bootstrap.make_environment() == "/java"
    assert installed == []
    monkeypatch.setattr(bootstrap, "find_java", lambda: answers.pop(0))
    assert bootstrap.make_environment() == "/venv/java"
    assert installed == ["java"]
    monkeypatch.setattr(bootstrap, "find_java", lambda: None)
    with pytest.raises(bootstrap.SetUpError, match="JAVA_HOME"):
        bootstrap.make_environment()


def test_uv_that_fails_is_followed_by_pip(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A uv too old for the lock file is no reason to give up."""
    tried: list[str] = []
    monkeypatch.setattr(bootstrap, "working_uv", lambda: "/uv")

    def old_uv(_: str) -> bool:
        tried.append("uv")
        return False

    monkeypatch.setattr(bootstrap, "install_with_uv", old_uv)
    monkeypatch.setattr(bootstrap, "install_with_pip", lambda: tried.append("pip"))
    bootstrap.make_environment()
    assert tried == ["uv", "pip"]


def test_commands_see_this_environment_and_no_other_spark(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A SPARK_HOME of the machine would run another Spark than the locked one."""
    monkeypatch.setenv("SPARK_HOME", "/opt/spark-3")
    monkeypatch.setenv("PYTHONPATH", "/opt/spark-3/python")
    environment = bootstrap.command_environment("/java")
    assert environment["JAVA_HOME"] == "/java"
    assert environment["PATH"].startswith(str(tmp_path / ".venv" / "bin"))
    assert not {"SPARK_HOME", "PYTHONPATH"} & environment.keys()


def test_an_unknown_command_is_said(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As a shell would, with exit code 127."""
    monkeypatch.setattr(bootstrap, "install_with_pip", lambda: None)
    assert bootstrap.main(["no-such-program"]) == 127
    assert "there is no no-such-program" in capsys.readouterr().err


def test_pip_and_uv_install_the_same_versions() -> None:
    """requirements.lock was written from uv.lock as it is now (`make lock`)."""
    packages = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]
    locked = {(each["name"], each.get("version")) for each in packages}
    for name in ("requirements.lock", "runtime/bootstrap/java.lock"):
        pinned = re.findall(r"^([a-z0-9-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
        assert pinned
        assert set(pinned) <= locked, name
    project = next(each for each in packages if each["name"] == "statefulspark")
    pinned_names = set(
        re.findall(r"^([a-z0-9-]+)(?:\[[^\]]*\])?==", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE)
    )
    wanted = {
        each["name"] for each in [*project["dependencies"], *project["optional-dependencies"]["demo"], *project["dev-dependencies"]["dev"]]
    }
    assert wanted <= pinned_names


def test_make_help_lists_every_target() -> None:
    """A newcomer's first command shows what there is."""
    listed = subprocess.run(["make", "-C", str(ROOT), "help"], capture_output=True, text=True, check=True, timeout=60).stdout
    targets = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert targets is not None
    for target in targets[1].split():
        assert f"make {target} " in listed
