"""The command turns errors into one line and an exit code, starts fast, and prints either JSON or a table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from statefulspark.cli import main
from statefulspark.errors import InvalidInputError, StatefulSparkError, UnavailableError

runner = CliRunner()


def test_key_groups_prints_exactly_the_agreed_document() -> None:
    """Ranges are Flink's; without --to nothing moves and no target is listed."""
    result = runner.invoke(main.app, ["key-groups", "--max-parallelism", "128", "--parallelism", "3", "-o", "json"])
    assert result.exit_code == 0
    assert result.stdout == (
        '{"ranges": [{"slot": 0, "first": 0, "last": 42}, {"slot": 1, "first": 43, "last": 85}, {"slot": 2, "first": 86, "last": 127}],'
        ' "moves": 0}\n'
    )


def test_key_groups_counts_what_a_rescale_moves() -> None:
    """From 2 to 3 slots of 128 key groups, 43-63 go to slot 1 and 86-127 to slot 2."""
    result = runner.invoke(main.app, ["key-groups", "--max-parallelism", "128", "--parallelism", "2", "--to", "3", "-o", "json"])
    document = json.loads(result.stdout)
    assert document["moves"] == 21 + 42
    assert [each["last"] for each in document["ranges"]] == [63, 127]
    assert [each["last"] for each in document["to_ranges"]] == [42, 85, 127]


def test_key_groups_table_is_for_people() -> None:
    """The table carries the same numbers and the size of each range."""
    result = runner.invoke(main.app, ["key-groups", "--max-parallelism", "10", "--parallelism", "4", "--to", "5"])
    assert result.exit_code == 0
    assert "4 slots" in result.stdout
    assert "5 slots; 6 of 10 key groups change slot" in result.stdout
    assert "5 │    7 │          3" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["--parallelism", "200"], "parallelism"),
        (["--parallelism", "2", "--to", "0"], "parallelism"),
        (["--parallelism", "-1"], "parallelism"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(arguments: list[str], field: str) -> None:
    """Nothing on stdout, one line on stderr that names the field."""
    result = runner.invoke(main.app, ["key-groups", "--max-parallelism", "128", *arguments])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"error: {field}: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code"), [(InvalidInputError("no", field="spec.image"), 2), (UnavailableError("gone"), 1), (StatefulSparkError("odd"), 1)]
)
def test_exit_codes_follow_the_error_tree(error: StatefulSparkError, code: int) -> None:
    """Input errors end with 2, every other error of the package with 1."""
    app = main.build_app()

    @app.command()
    def failing() -> None:
        raise error

    result = runner.invoke(app, ["failing"])
    assert (result.exit_code, result.stderr) == (code, f"error: {error}\n")


def test_a_bug_keeps_its_traceback() -> None:
    """Only errors raised on purpose are shortened."""
    app = main.build_app()

    @app.command()
    def failing() -> None:
        raise ZeroDivisionError

    assert isinstance(runner.invoke(app, ["failing"]).exception, ZeroDivisionError)


def test_version() -> None:
    """--version needs no sub-command."""
    result = runner.invoke(main.app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout.startswith("statefulspark 0.")


def test_each_command_stands_in_one_section_of_the_help() -> None:
    """Every module of the package that registers a command is listed, once."""
    listed = [name.partition(".")[2] for names in main.COMMAND_SECTIONS.values() for name in names]
    folder = Path(main.__file__).parent
    registering = [path.stem for path in folder.rglob("*.py") if "\ndef register(" in path.read_text()]
    assert sorted(listed) == sorted(registering)
    assert isinstance(main.app, typer.Typer)


def test_help_does_not_load_the_engine() -> None:
    """--help stays fast: pyspark, pyarrow and boto3 are imported by the commands that need them."""
    program = (
        "import sys, statefulspark.cli.main; heavy = {'pyspark', 'pyarrow', 'pandas', 'boto3', 'rocksdict'} & set(sys.modules);"
        " sys.exit(str(heavy) if heavy else 0)"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert finished.returncode == 0, finished.stderr


def test_a_negative_number_of_slots_is_no_option() -> None:
    """The error is about the number."""
    result = CliRunner().invoke(main.app, ["rescale", "-2"])
    assert result.exit_code == 2
    assert "Invalid value for 'parallelism'" in result.output
