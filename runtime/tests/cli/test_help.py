"""Every help is readable on a terminal of 80 columns: no line is longer, and nothing is cut."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from statefulspark.cli.main import app


def commands(command: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, each in getattr(command, "commands", {}).items():
        yield from commands(each, *path, name)


COMMANDS = dict(commands(typer.main.get_command(app)))


def rendered(path: tuple[str, ...]) -> str:
    result = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "80", "TERM": "xterm"})
    assert result.exit_code == 0, result.output
    return result.stdout


def test_all_commands_are_rendered() -> None:
    assert {(), ("run",), ("snapshot", "describe"), ("init",), ("validate",), ("list",)} <= COMMANDS.keys()


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: " ".join(path) or "statefulspark")
def test_help_fits_80_columns_and_nothing_is_cut(path: tuple[str, ...]) -> None:
    text = rendered(path)
    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert "…" not in text
    assert "..." not in text.replace("[ARGS]...", "").replace("///...", "")
    words = text.replace(",", " ").replace(";", " ").replace("]", " ").split()
    for parameter in COMMANDS[path].params:
        names = [*getattr(parameter, "opts", ()), *getattr(parameter, "secondary_opts", ()), *filter(None, [parameter.envvar])]
        assert [name for name in names if parameter.param_type_name == "option" and name not in words] == []


@pytest.mark.parametrize("path", [path for path, command in COMMANDS.items() if hasattr(command, "commands")])
def test_each_command_is_listed_with_a_whole_sentence(path: tuple[str, ...]) -> None:
    text = " ".join(rendered(path).split())
    for name, command in ((name, each) for name, each in COMMANDS[path].commands.items() if not each.hidden):
        first = " ".join(command.help.split("\n\n")[0].split()).split(". ")[0].rstrip(".")
        assert f"{name} {first}" in text
