"""Groups of commands, whose help is readable at 80 columns."""

from __future__ import annotations

import re
from typing import Any

from typer.core import TyperGroup


class CommandGroup(TyperGroup):
    """Lists its commands with the first sentence of their help, wrapped; typer would cut it to one line."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands into the help."""
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [(name, _first_sentence(command.help or "")) for name, command in commands if command is not None and not command.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.strip().split("\n\n")[0].split())
    return re.split(r"(?<=\.)\s", paragraph)[0]
