"""The ``statefulspark`` command: collects the sub-commands and turns errors into exit codes.

Each sub-command lives in a module below this package that has ``register(app)``. To add one, write the module and add its name to
`COMMAND_SECTIONS`. These modules must import quickly: whatever needs pyspark is imported inside the command.

Exit codes: 0 success, 1 failure (the message says what to do next), 2 invalid input, nothing was changed.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import itertools
from typing import Annotated, Any, ClassVar, Final

import typer

from statefulspark.cli.common.groups import CommandGroup
from statefulspark.cli.common.output import say
from statefulspark.errors import InvalidInputError, StatefulSparkError
from statefulspark.logs.redaction import redact

COMMAND_SECTIONS: Final = {
    "Write and run": ("launch.init", "launch.validate", "launch.run", "launch.list", "launch.memory", "launch.connectors"),
    "A running job": (
        "driver.status", "driver.ui", "driver.logs", "driver.history", "driver.savepoint", "driver.rescale", "driver.tune", "driver.stop", "driver.cancel",
    ),
    "Checkpoints and savepoints": ("stored.checkpoints", "stored.state", "stored.verify", "stored.snapshot", "stored.key_groups", "stored.gc"),
    "New savepoints from old ones": ("stored.convert", "stored.rewrite", "stored.delete_keys", "stored.bootstrap"),
    "Pods": ("launch.executor",),
}  # fmt: skip
"""Modules of sub-commands, by the section of the help that lists them."""

_EXIT_FAILED = 1
_EXIT_INVALID_INPUT = 2


class _Commands(CommandGroup):
    """The command group; the one place where an error becomes text and an exit code."""

    sections: ClassVar = {
        title: tuple(name.partition(".")[2].replace("_", "-") for name in names) for title, names in COMMAND_SECTIONS.items()
    }

    def invoke(self, ctx: Any) -> Any:
        """Run the sub-command, ending with ``error: ...`` on stderr when it raises one of this package's errors."""
        try:
            return super().invoke(ctx)
        except StatefulSparkError as error:
            typer.secho(f"error: {redact(str(error))}", err=True, fg=typer.colors.RED)
            raise typer.Exit(_EXIT_INVALID_INPUT if isinstance(error, InvalidInputError) else _EXIT_FAILED) from error


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"statefulspark {importlib.metadata.version('statefulspark')}")
        raise typer.Exit


def _root(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")] = False,
) -> None:
    """Flink's state model for PySpark streams: run jobs, take savepoints, rescale, inspect checkpoints."""


def build_app() -> typer.Typer:
    """Return the command with all its sub-commands."""
    commands = typer.Typer(
        name="statefulspark",
        cls=_Commands,
        callback=_root,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode=None,  # rich cuts names of options and variables to fit its tables
        # A traceback of ours is for a bug report; rich's rendering of locals could show secrets.
        pretty_exceptions_enable=False,
    )
    for name in itertools.chain.from_iterable(COMMAND_SECTIONS.values()):
        importlib.import_module(f"{__package__}.{name}").register(commands)
    return commands


app = build_app()

if __name__ == "__main__":
    app()
