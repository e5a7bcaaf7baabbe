"""Groups of commands, whose help is readable at 80 columns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from typer.core import TyperGroup


class CommandGroup(TyperGroup):
    """Lists its commands with the first sentence of their help, wrapped; typer would cut it to one line."""

    sections: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Names of commands by the title under which the help lists them; a group without sections lists all under one."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands into the help."""
        for title, names in (self.sections or {"Commands": tuple(self.list_commands(ctx))}).items():
            commands = ((name, self.get_command(ctx, name)) for name in names)
            rows = [(name, _first_sentence(command.help or "")) for name, command in commands if command is not None and not command.hidden]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.strip().split("\n\n")[0].split())
    return re.split(r"(?<=\.)\s", paragraph)[0]
