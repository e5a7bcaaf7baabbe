"""Tables show names and values of jobs as they are: neither rich's markup nor the terminal's control characters take effect."""

from __future__ import annotations

import pytest

from statefulspark.cli.output import Output, TableView, show


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
