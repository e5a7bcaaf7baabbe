"""Tables show names and values of jobs as they are: neither rich's markup nor the terminal's control characters take effect."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from statefulspark.cli.common import output
from statefulspark.cli.common.output import Output, TableView, say, show
from statefulspark.cli.main import app


@pytest.mark.parametrize("text", ["[/b]", "[red]u", "[link=http://x]c[/link]", "[1, 2]", ":smile:", "a[bold", "\\[x]"])
def test_markup_is_text(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In a title, a column and a cell: `[name]` would disappear, and `[/name]` would end the command."""
    show({}, Output.TABLE, TableView(f"job {text}", (f"{text} ", "n"), [(f"{text}  ", 1)]))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].strip() == f"job {text}"
    assert text in lines[2]
    assert text in lines[4]


def test_control_characters_are_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    show({}, Output.TABLE, TableView("t", ("a", "b"), [("\x1b[2Jcleared\r", None)]))
    out = capsys.readouterr().out
    assert "\\x1b[2Jcleared\\r" in out
    assert "\x1b" not in out


def test_lines_beside_tables_have_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    say("failed: \x1b]0;title\x07 \u202etxet\n\tnext")
    assert capsys.readouterr().out == "failed: \\x1b]0;title\\x07 \\u202etxet\n\tnext\n"


def test_every_line_goes_through_say() -> None:
    """typer.echo prints as it is; the rest of it prints JSON."""
    raw = [
        f"{path.name}: {line.strip()}"
        for path in Path(output.__file__).parent.glob("*.py")
        for line in path.read_text().splitlines()
        if "typer.echo(" in line and "json.dumps(" not in line and path.name != "output.py"
    ]
    assert raw == []


def test_a_folder_in_storage_does_not_control_the_terminal(tmp_path: Path) -> None:
    """Those who may write there choose its name; a warning told it as it was."""
    (tmp_path / "job\x1b]0;title\x07" / "chk-1").mkdir(parents=True)
    (tmp_path / "job\x1b]0;title\x07" / "_job").write_bytes(b"damaged")
    done = CliRunner().invoke(app, ["list", str(tmp_path)])
    assert "\\x1b]0;title\\x07" in done.output
    assert "\x1b" not in done.output
