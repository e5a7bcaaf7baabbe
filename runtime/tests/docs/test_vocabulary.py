"""Retired words stay out of what users read; the table of docs/glossary.md names them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from statefulspark.cli.main import app

ROOT = Path(__file__).parents[3]
GLOSSARY = ROOT / "docs" / "glossary.md"
PAGES = sorted(
    path
    for pattern in (
        "*.md",
        "docs/*.md",
        "docs/[!r]*/*.md",
        "docs/reports/*.md",
        "examples/*.md",
        "examples/*/README.md",
        "charts/*/README.md",
        "e2e/README.md",
    )
    for path in ROOT.glob(pattern)
)
# benchmarks.md keeps what dated results said. crd-reference.md is made from the definitions, whose specs are tested below.
GENERATED = {"benchmarks.md", "crd-reference.md"}
DEFINITIONS = sorted(ROOT.glob("crds/*.yaml"))
SOURCES = [ROOT / "runtime" / "src" / "statefulspark", ROOT / "operator" / "src" / "statefulspark_operator"]


def retired(text: str) -> dict[str, re.Pattern[str]]:
    """Each word of the glossary's table of retired words with the pattern that finds it."""
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", text.partition("## Retired words")[2], flags=re.MULTILINE)
    words = [word.strip() for row in rows[1:] for word in row.split(",") if set(word.strip()) != {"-"}]
    return {word: re.compile(rf"\b{re.escape(word).replace(chr(92) + '*', '[a-z]*')}\b", re.IGNORECASE) for word in words}


RETIRED = retired(GLOSSARY.read_text())


def found(text: str) -> list[str]:
    """Retired words in a text, as ``line: word``. Line breaks do not hide a phrase."""
    lines = text.splitlines()
    return [
        f"{number}: {word}"
        for number, line in enumerate(lines, start=1)
        for word, pattern in RETIRED.items()
        for match in pattern.finditer(" ".join([line, *lines[number : number + 1]]))
        if match.start() <= len(line)
    ]


def prose(path: Path) -> str:
    """A page without what quotes retired words on purpose."""
    text = path.read_text()
    if path == GLOSSARY:
        text = text.partition("## Retired words")[0]
        return re.sub(r" \| [^|]* \|$", " |", text, flags=re.MULTILINE)
    if path.name == "style.md":
        return re.sub(r"^\| [^|]+ \|", "|", text, flags=re.MULTILINE)
    return text


def help_texts(command: Any, name: str) -> Iterator[tuple[str, str]]:
    """The help of a command, its options and its sub-commands."""
    yield name, "\n".join([command.help or "", *(str(getattr(each, "help", "")) for each in command.params)])
    for sub, each in getattr(command, "commands", {}).items():
        yield from help_texts(each, f"{name} {sub}")


def test_the_table_is_read() -> None:
    """Without this, a table that the test cannot parse would forbid nothing."""
    assert {"sign of life", "keeper*", "when not given"} <= RETIRED.keys()
    assert found("no sign\nof life from the keepers") == ["1: sign of life", "2: keeper*"]
    assert found("A heartbeat from the slot supervisor.") == []


@pytest.mark.parametrize("path", [path for path in PAGES if path.name not in GENERATED], ids=lambda path: path.name)
def test_documentation(path: Path) -> None:
    assert found(prose(path)) == [], "docs/glossary.md says what to write instead"


def described(node: Any) -> Iterator[str]:
    """Descriptions of fields and messages of rules, in a definition's schema."""
    if isinstance(node, dict):
        yield from (each for name, each in node.items() if name in {"description", "message"} and isinstance(each, str))
        for each in node.values():
            yield from described(each)
    elif isinstance(node, list):
        for each in node:
            yield from described(each)


@pytest.mark.parametrize("path", DEFINITIONS, ids=lambda path: path.name)
def test_specs_of_definitions(path: Path) -> None:
    (version,) = yaml.safe_load(path.read_text())["spec"]["versions"]
    texts = list(described(version["schema"]["openAPIV3Schema"]["properties"]["spec"]))
    assert texts
    assert found("\n\n".join(texts)) == [], "docs/glossary.md says what to write instead"


def test_values_of_the_chart() -> None:
    text = (ROOT / "charts" / "statefulspark" / "values.yaml").read_text()
    assert found("\n".join(line.partition("#")[2] for line in text.splitlines())) == [], "docs/glossary.md says what to write instead"


@pytest.mark.parametrize("folder", SOURCES, ids=lambda folder: folder.name)
def test_sources(folder: Path) -> None:
    """Messages, docstrings and comments."""
    paths = sorted(folder.rglob("*.py"))
    assert paths
    assert {path.name: hits for path in paths if (hits := found(path.read_text()))} == {}


def test_help_of_commands() -> None:
    texts = dict(help_texts(typer.main.get_command(app), "statefulspark"))
    assert len(texts) > 10
    assert {name: found(text) for name, text in texts.items() if found(text)} == {}
