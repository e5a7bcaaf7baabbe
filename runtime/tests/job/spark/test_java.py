"""The right Java is found: new enough, in order of preference, and made fit for Spark's launcher options where a module is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from statefulspark.job.spark import java


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No Java is known, and homes are made below the test's folder."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    java.find_java_home.cache_clear()
    yield
    java.find_java_home.cache_clear()


def fake(home: Path, *, version: str, modules: str | None = "java.base jdk.incubator.vector", release: bool = True) -> Path:
    """Make a Java home whose ``java`` prints its arguments, or answers the two questions a home without release file is asked."""
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n' + (f'MODULES="{modules}"\n' if modules else ""))
    listed = "\n".join(f"{module}@{version}" for module in (modules or "").split())
    script = f"""#!/bin/sh
case "$1" in
  -XshowSettings:properties) echo "    java.home = {home}" >&2; echo "    java.specification.version = {version.split(".", maxsplit=1)[0]}" >&2;;
  --list-modules) echo "{listed}";;
  *) printf '%s\\n' "$$" "$@";;
esac
"""
    (home / "bin" / "java").write_text(script)
    (home / "bin" / "java").chmod(0o755)
    (home / "bin" / "keytool").write_text("")
    return home


def test_java_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """JAVA_HOME wins over the PATH."""
    given, other = fake(tmp_path / "given", version="17.0.1"), fake(tmp_path / "other", version="21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(given))
    monkeypatch.setenv("PATH", str(other / "bin"))
    assert java.find_java_home() == str(given)


def test_an_old_java_home_does_not_hide_a_newer_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Java 11 cannot run Spark 4, so the search goes on."""
    monkeypatch.setenv("JAVA_HOME", str(fake(tmp_path / "old", version="11.0.2")))
    newer = fake(tmp_path / "newer", version="17.0.15")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(newer / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert java.find_java_home() == str(newer)


def test_a_launcher_without_release_file_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Version managers put a script on the PATH; it knows the home."""
    home = fake(tmp_path / "home", version="17.0.15", release=False)
    monkeypatch.setenv("PATH", str(home / "bin"))
    assert java.find_java_home() == str(home)


def test_nothing_fitting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Old, broken and missing runtimes are no answer."""
    assert java.find_java_home() is None
    java.find_java_home.cache_clear()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "missing"))
    old = fake(tmp_path / "old", version="8.0.1", release=False)
    monkeypatch.setenv("PATH", str(old / "bin"))
    assert java.find_java_home() is None
    java.find_java_home.cache_clear()
    (old / "bin" / "java").write_text("#!/bin/sh\nexit 3\n")
    assert java.find_java_home() is None


def test_a_runtime_without_the_vector_module_is_made_fit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The made home drops just the one option, keeps odd arguments whole and the process id, and is made once."""
    lean = fake(tmp_path / "lean home", version="21.0.8", modules="java.base")
    monkeypatch.setenv("JAVA_HOME", str(lean))
    home = java.find_java_home()
    assert home is not None
    assert home != str(lean)
    assert (Path(home) / "lib").resolve() == lean / "lib"
    assert (Path(home) / "bin" / "keytool").exists()
    arguments = ["-cp", "a b:'c", "--add-modules=jdk.incubator.vector", "", "$HOME", "Main"]
    with subprocess.Popen([f"{home}/bin/java", *arguments], stdout=subprocess.PIPE, text=True) as process:
        output, _ = process.communicate(timeout=20)
    assert output.splitlines() == [str(process.pid), "-cp", "a b:'c", "", "$HOME", "Main"]
    made = Path(home).stat()
    java.find_java_home.cache_clear()
    assert java.find_java_home() == home
    assert Path(home).stat().st_mtime_ns == made.st_mtime_ns
    assert [entry.name for entry in Path(home).parent.iterdir()] == [Path(home).name]


def test_an_environment_that_cannot_be_written_uses_the_temporary_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Containers have read-only environments."""
    (tmp_path / "prefix").write_text("a file, so nothing can be made below it")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("JAVA_HOME", str(fake(tmp_path / "lean", version="21.0.8", modules="java.base")))
    home = java.find_java_home()
    assert home is not None
    assert Path(home).is_relative_to(tmp_path / "tmp" / f"statefulspark-{os.getuid()}")


@pytest.mark.parametrize("version", [None, "1.8.0_392", "11.0.2"])
def test_a_java_home_that_is_passed_over_is_told(version: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing there, or too old. Nobody who has set it should wonder which Java runs."""
    home = tmp_path / "given"
    if version is not None:
        fake(home, version=version)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.passed_over() == str(home)
    monkeypatch.setenv("JAVA_HOME", str(fake(tmp_path / "newer", version="17.0.15")))
    assert java.passed_over() is None
    monkeypatch.delenv("JAVA_HOME")
    assert java.passed_over() is None
