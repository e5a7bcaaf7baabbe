"""``statefulspark validate``: check a manifest without starting anything."""

from __future__ import annotations

import dataclasses
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from statefulspark.cli.common.output import Output, OutputOption, say, show

_EXIT_PROBLEMS = 1


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="validate")(validate)


def validate(
    manifest: Annotated[Path, typer.Argument(help="Manifest of a StatefulSparkJob.", show_default=False)],
    pipeline: Annotated[
        bool, typer.Option("--pipeline", help="Also import the program, and the classes that the manifest names. This runs your code.")
    ] = False,
    plan: Annotated[
        bool,
        typer.Option(
            "--plan",
            help="Also build the pipeline in Spark, which checks columns, types, uids and the sink. Starts no query. Implies --pipeline.",
        ),
    ] = False,
    kubernetes: Annotated[
        bool, typer.Option("--kubernetes", help="Check the manifest for the operator instead of for statefulspark run.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check a manifest without starting a job and without touching storage, and list everything that is wrong with it.

    Checks the fields and their rules, the memory plan, Spark settings, and that the program's files exist, are Python and define the entry
    point. Exits with 0 if the manifest is valid, 1 if it has problems, and 2 if it cannot be read.
    """
    from statefulspark.config.default_backend import default_state_backend
    from statefulspark.job.start.validation import validate_manifest

    backend = default_state_backend(os.environ)
    with redirect_stdout(sys.stderr):  # stdout is the answer's, whatever the program prints when it is imported
        found = validate_manifest(manifest, default_backend=backend, kubernetes=kubernetes, run_script=pipeline or plan, plan=plan)
    document = {
        "valid": not found.problems,
        "name": found.job.metadata.name if found.job is not None else None,
        "problems": [dataclasses.asdict(problem) for problem in found.problems],
        "warnings": list(found.warnings),
    }
    show(document, output)
    if output is Output.TABLE:
        for problem in found.problems:
            say(str(problem))
        for warning in found.warnings:
            say(f"warning: {warning}", err=True)
        if found.job is not None and not found.problems:
            say(f"job {found.job.metadata.name} is valid")
    if found.problems:
        count = len(found.problems)
        say(f"error: {manifest} has {'one problem' if count == 1 else f'{count} problems'}", err=True)
        raise typer.Exit(_EXIT_PROBLEMS)
