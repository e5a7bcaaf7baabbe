"""The kubectl plugin, with a kubectl on PATH that writes down what it is asked for."""

from __future__ import annotations

import base64
import os
import subprocess
from pathlib import Path

import pytest

PLUGIN = Path(__file__).resolve().parents[1] / "plugin" / "kubectl-statefulspark"
FAKE = """#!/bin/sh
printf '%s\\n' "$*" >>"$ASKED"
case "$*" in
  *"get statefulsparkjob "*) printf '%s' "$FOUND" ;;
  *"get secret "*) printf '%s' "$TOKEN" ;;
esac
"""
LOOK = "get statefulsparkjob clicks -o jsonpath={.status.driverPod} {.status.lifecycleState}"


class Shell:
    """Runs the plugin and remembers what it asked kubectl for."""

    def __init__(self, folder: Path) -> None:
        fake = folder / "kubectl"
        fake.write_text(FAKE)
        fake.chmod(0o755)
        self.asked = folder / "asked"
        token = base64.b64encode(b"secret").decode()
        self.environment = {
            "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
            "ASKED": str(self.asked),
            "FOUND": "clicks-driver STABLE",
            "TOKEN": token,
        }

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run it with /bin/sh, whatever that is."""
        return subprocess.run(
            ["/bin/sh", str(PLUGIN), *arguments], env=self.environment, capture_output=True, text=True, timeout=60, check=False
        )

    def commands(self, *arguments: str) -> list[str]:
        """What it asks for; it must succeed."""
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return self.asked.read_text().splitlines()


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.mark.parametrize("command", ["status", "logs", "history", "tune", "savepoint"])
def test_a_command_runs_in_the_driver(shell: Shell, command: str) -> None:
    """With the arguments of the command line, also those that kubectl has itself."""
    assert shell.commands(command, "clicks", "-n", "5", "two words") == [
        LOOK,
        f"exec clicks-driver --container driver -- statefulspark {command} --job clicks -n 5 two words",
    ]


def test_namespace_and_context_go_to_kubectl(shell: Shell) -> None:
    """Before the command, in each spelling."""
    where = "--context=big cluster --namespace=shop"
    expected = [f"{where} {LOOK}", f"{where} exec clicks-driver --container driver -- statefulspark status --job clicks"]
    assert shell.commands("-n", "shop", "--context", "big cluster", "status", "clicks") == expected
    shell.asked.unlink()
    assert shell.commands("--namespace=shop", "--context=big cluster", "status", "clicks") == expected


def test_a_rescale_is_the_operators(shell: Shell) -> None:
    """A driver that is rescaled by itself would be rescaled back to the spec; what a rescale moves, only the driver knows."""
    assert shell.commands("rescale", "clicks", "4") == ["scale statefulsparkjob clicks --replicas 4"]
    shell.asked.unlink()
    assert shell.commands("rescale", "clicks", "4", "--dry-run") == [
        LOOK,
        "exec clicks-driver --container driver -- statefulspark rescale --job clicks 4 --dry-run",
    ]


def test_the_page_opens_through_a_tunnel(shell: Shell) -> None:
    """The URL signs in by its fragment, which no server sees."""
    done = shell.run("ui", "clicks", "9000")
    assert done.stdout == "https://localhost:9000/#token=secret\n"
    assert shell.asked.read_text().splitlines() == [
        LOOK,
        "get secret clicks-driver -o jsonpath={.data.token}",
        "port-forward pod/clicks-driver 9000:8480",
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["status"], "which job?"),
        (["rescale", "clicks"], "how many slots?"),
        (["rescale", "clicks", "4", "--force"], "not --force"),
        (["stop", "clicks"], "Set state: suspended"),
        (["nonsense", "clicks"], "nonsense is not a command"),
        (["--all", "status"], "--all is not an option"),
        (["-n"], "-n needs a value"),
    ],
)
def test_a_mistake_is_told_before_anything_is_asked(shell: Shell, arguments: list[str], sentence: str) -> None:
    """One sentence on stderr, with the remedy."""
    done = shell.run(*arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert sentence in done.stderr
    assert not shell.asked.exists()


def test_a_job_without_a_driver_says_its_state(shell: Shell) -> None:
    """There is nothing to run a command in."""
    shell.environment["FOUND"] = " SUSPENDED"
    done = shell.run("status", "clicks")
    assert done.returncode == 1
    assert "job clicks has no driver: it is SUSPENDED" in done.stderr


def test_help(shell: Shell) -> None:
    """Each command is in it."""
    assert all(f"\n  {name} " in shell.run("--help").stdout for name in ("status", "logs", "savepoint", "rescale", "ui"))
    assert shell.run().returncode == 2
