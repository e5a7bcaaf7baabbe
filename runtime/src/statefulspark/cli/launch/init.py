"""``statefulspark init``: write a small job that runs, with its manifest, test and image."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Final

import typer
import yaml

from statefulspark.cli.common.output import Output, OutputOption, say, show
from statefulspark.errors import InvalidInputError

_TEMPLATES: Final = {
    "job.yaml": "job.yaml.txt",
    "pipeline.py": "pipeline.py.txt",
    "test_pipeline.py": "test_pipeline.py.txt",
    "input/clicks.json": "input/clicks.json.txt",
    "Dockerfile": "Dockerfile.txt",
    ".dockerignore": "gitignore.txt",
    ".gitignore": "gitignore.txt",
    "README.md": "README.md.txt",
}
"""Template of each file that ``init`` writes."""
_NAME_MAX: Final = 45


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="init")(init)


def init(
    directory: Annotated[Path, typer.Argument(help="Directory of the new job. Created if it does not exist.")] = Path(),
    name: Annotated[str | None, typer.Option(help="Name of the job. Defaults to the directory's name.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Write a new job: a pipeline with a keyed function, its manifest, input, test and Dockerfile.

    Never overwrites a file. Exits with 2 if one of them exists, and writes nothing.
    """
    folder = directory.expanduser().resolve()
    job = name if name is not None else _job_name(folder)
    texts = _texts(job, folder)
    _write(folder, texts)
    show({"name": job, "directory": str(folder), "files": list(texts)}, output)
    if output is Output.TABLE:
        say("\n".join(f"wrote {_shown(directory, file)}" for file in texts))
        say(f"next: statefulspark run {_shown(directory, 'job.yaml')} --until-idle")


def _shown(directory: Path, file: str) -> str:
    """Path of a file as the user would type it here."""
    return shlex.quote(str(directory / file))


def _job_name(folder: Path) -> str:
    """Name of the job in ``folder``: what is left of the folder's name within the rules for names."""
    words = re.sub(r"[^a-z0-9]+", "-", folder.name.lower()).lstrip("0123456789-")
    return words[:_NAME_MAX].rstrip("-") or "job"


def _texts(name: str, folder: Path) -> dict[str, str]:
    """Content of each file by its path below ``folder``.

    Raises:
        InvalidInputError: The name is not allowed, or the folder's path is too long for a manifest.
    """
    # Imported here so that the command's help does not wait for the models.
    from statefulspark.config.manifest import parse_manifest

    values = {
        "{{name}}": _scalar(name),
        "{{checkpoints}}": (folder / "checkpoints").as_uri(),
        "{{savepoints}}": (folder / "savepoints").as_uri(),
    }
    source = files("statefulspark.cli").joinpath("templates")
    texts = {file: _filled(source.joinpath(template), values) for file, template in _TEMPLATES.items()}
    try:
        parse_manifest(texts["job.yaml"], folder=folder)
    except InvalidInputError as error:
        field = "--name" if error.field == "metadata.name" else error.field
        raise InvalidInputError(error.message, field=field, remedy=error.remedy) from None
    return texts


def _filled(template: Traversable, values: Mapping[str, str]) -> str:
    text = template.read_text(encoding="utf-8")
    for marker, value in values.items():
        text = text.replace(marker, value)
    return text


def _scalar(name: str) -> str:
    """The name as YAML text; ``on`` and ``null`` need quotes, most names do not."""
    try:
        plain = yaml.safe_load(name) == name
    except (yaml.YAMLError, ValueError):
        plain = False
    return name if plain else json.dumps(name)


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    """Write all files or, if one exists or the disk refuses one, none.

    Raises:
        InvalidInputError: Names what is in the way.
    """
    present = [file for file in texts if os.path.lexists(folder / file)]
    if present:
        raise InvalidInputError(
            f"{folder} has {', '.join(present)} already", field="DIRECTORY", remedy="Choose another directory; nothing was written"
        )
    written: list[Path] = []
    try:
        for file, text in texts.items():
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as stream:
                written.append(path)
                stream.write(text)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        raise InvalidInputError(
            f"{error.filename or folder} cannot be written ({error.strerror})",
            field="DIRECTORY",
            remedy="Choose a directory in which you may create files",
        ) from error
