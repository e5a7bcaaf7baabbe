"""Writes the reference pages that are made from code: the command line, the REST API, the Python API, and the coordinator's events and actions.

    python docs/site/references.py out/references

It runs in the project's environment. mkdocs reads what it writes, in an environment of its own (`hooks.py`).
"""

from __future__ import annotations

import dataclasses
import html
import inspect
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import click
from typer.cli import get_docs_for_click
from typer.main import get_command

import statefulspark
import statefulspark.state_tables
import statefulspark.testing
from statefulspark.api_server.api import create_app
from statefulspark.api_server.pages import reference_page
from statefulspark.cli.main import app
from statefulspark.coordinator.core import actions, events
from statefulspark.public_names import HOMES

PYTHON_PAGES: Final = {
    "streams": ("Jobs and streams", ("pipeline.job", "pipeline.keyed_streams", "pipeline.", "process.api.output_tag", "job.local.")),
    "functions": (
        "Functions",
        ("process.api.functions", "process.batches.", "process.api.co_functions", "process.api.broadcast_functions", "process.api.metrics"),
    ),
    "windows": ("Windows", ("process.windows.",)),
    "state": ("State", ("state.api.", "state.store.")),
    "types": ("Types, rows and times", ("state.types.", "state.row", "state.times")),
    "configuration": ("Configuration and RocksDB", ("configuration", "rocksdb.")),
}
"""Page to its title and the modules whose public names it describes: a module, or a prefix that ends with a dot."""
_OPTIONS: Final = "    options:\n      heading_level: 2\n"
_OWN: Final = "add_.*|check_outputs|endpoint|hashing|keys|pickled_steps|sinks|steps|tick_stream|upstream"
"""Members of a job that its streams and sinks call, and users do not."""
_USERS: Final = f"{_OPTIONS}      filters: ['!^_', '!^({_OWN})$']\n"


def cli() -> str:
    """Return the page of the command line, by typer's own generator."""
    command = get_command(app)
    command.callback = None  # the root has options only
    text = get_docs_for_click(
        obj=command, ctx=click.Context(command, info_name="statefulspark"), name="statefulspark", title="Command line"
    )
    return html.unescape(text)


def rest() -> str:
    """Return the page of the REST API: the driver's own reference, with headings that the site can list."""
    document = create_app(_no_job(), token="x" * 16, clock_ms=int).openapi()
    body = reference_page(document).partition("<body>")[2].partition("</body>")[0]
    body = re.sub(r'<h2 id="(\w+)">(.*?)</h2>', r"\n\n### \2 { #\1 }\n\n", body)
    body = re.sub(r"<h2><code>(.*?)</code></h2>", r"\n\n### `\1`\n\n", body)
    heading, _, rest = body.partition("</h1>")
    rest = re.sub(r"<h1>(.*?)</h1>", r"\n\n## \1\n\n", rest)
    introduction, _, operations = rest.partition("\n\n###")
    return f"# REST API\n\n{introduction}\n\n## Requests\n\n###{operations}\n" if heading else ""


def python() -> dict[str, str]:
    """Return the pages of the Python API by their names; mkdocstrings fills them in from docstrings.

    Raises:
        ValueError: A public name is on no page.
    """
    pages: dict[str, str] = {}
    described: set[str] = set()
    for name, (title, prefixes) in PYTHON_PAGES.items():
        homes = dict.fromkeys(home for each in prefixes for home in HOMES if home == each or (each.endswith(".") and home.startswith(each)))
        names = [(home, each) for home in homes for each in HOMES[home] if each not in described]
        described |= {each for _, each in names}
        entries = [f"::: statefulspark.{home}.{each}\n{_USERS if each in {'Job', 'LocalJob'} else _OPTIONS}" for home, each in names]
        pages[name] = "\n".join([f"# {title}\n", "Import these names from `statefulspark`.\n", *entries])
    if left := sorted(set(statefulspark.__all__) - described):
        raise ValueError(f"public names that no page of the Python API describes: {', '.join(left)}. Add their module to PYTHON_PAGES")
    tables = "\n".join(f"        - {name}" for name in statefulspark.state_tables.__all__)
    pages["state-tables"] = (
        f"# State as tables\n\n::: statefulspark.state_tables\n    options:\n      show_root_heading: false\n      show_root_toc_entry: false\n      heading_level: 1\n      members:\n{tables}\n"
    )
    members = "\n".join(f"        - {name}" for name in statefulspark.testing.__all__)
    pages["testing"] = (
        "# Testing\n\n::: statefulspark.testing\n    options:\n      show_root_heading: false\n      show_root_toc_entry: false\n"
        f"      heading_level: 1\n      inherited_members: true\n      members:\n{members}\n"
    )
    return pages


def core() -> str:
    """Return the page of the coordinator's core: every event and every action with what it means, in the order of their modules."""
    introduction = (
        "# Events and actions of the coordinator\n\n"
        "The core of the coordinator decides about the life of batches ([the batch protocol](../concepts/batch-protocol.md)): a pure function from a state and an event to a state\n"
        "and actions ([RFC 0016](../rfcs/0016-coordinator-core.md)). A **step** is an action whose result comes back as an event with the step's number; a result of a step that no\n"
        "longer runs is ignored.\n"
    )
    sections = [introduction]
    for title, module, base in (("Events", events, events.Event), ("Actions", actions, actions.Action)):
        rows = [f"## {title}\n", f"| {title.lower()[:-1]} | meaning | fields |", "|---|---|---|"]
        for kind in vars(module).values():
            if not (isinstance(kind, type) and issubclass(kind, base)) or kind in {base, events.Result}:
                continue
            names = [each.name for each in dataclasses.fields(kind)]
            step = "" if "number" not in names else " *A step.*" if base is actions.Action else " *Result of a step.*"
            meaning = " ".join((inspect.getdoc(kind) or "").replace("``", "`").split())
            rows.append(f"| `{kind.__name__}` | {meaning}{step} | {', '.join(f'`{name}`' for name in names if name != 'number')} |")
        sections.append("\n".join(rows) + "\n")
    return "\n".join(sections)


def _no_job() -> Any:
    return SimpleNamespace()


def main(folder: Path) -> None:
    """Write all pages."""
    pages = {"cli.md": cli(), "rest.md": rest(), "core.md": core(), **{f"python/{name}.md": text for name, text in python().items()}}
    for name, text in pages.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
