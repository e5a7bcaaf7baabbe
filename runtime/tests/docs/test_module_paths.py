"""Modules, and functions in them, that the documentation names exist: as a path (``slot/process.py``) or dotted (``statefulspark.errors``)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .test_vocabulary import PAGES, ROOT

PACKAGES = [ROOT / "runtime" / "src" / "statefulspark", ROOT / "operator" / "src" / "statefulspark_operator"]
_TREES = ("runtime", "operator", "bench", "e2e", "examples", "images", "charts")
_FILES = [path.relative_to(ROOT) for tree in _TREES for path in (ROOT / tree).rglob("*.py") if "site-packages" not in path.parts]
_TOP = {path.stem for package in PACKAGES for path in package.iterdir() if path.suffix == ".py" or path.is_dir()}
_NO_MODULES = {"io", "internal", "driverRules"}
"""What follows ``statefulspark.`` in labels of Kubernetes, in the name of certificates and in a template of the chart."""
_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"(?<![\w./-])(?:operator:)?(?:[\w-]+/)*[\w-]+\.py\b|(?<![\w./-])[a-z_]+(?:/[\w.]+)+")
_DOTTED = re.compile(r"\bstatefulspark(?:_operator)?(?:\.\w+)+")


def module(named: str) -> Path | None:
    """The file of a module, or the folder of a package, that a path without ``.py`` names within a package."""
    for package in PACKAGES:
        for root in (package, package.parent):
            for path in (root / f"{named}.py", root / named):
                if path.exists():
                    return path
    return None


def declares(path: Path, name: str) -> bool:
    """True if a module or package has a member of this name."""
    if path.is_dir():
        imported = re.search(rf"\b{name}\b", (path / "__init__.py").read_text())
        return imported is not None or (path / f"{name}.py").exists() or (path / name).exists()
    return re.search(rf"^\s*(?:(?:async )?def|class) {name}\b|^{name}\b", path.read_text(), re.MULTILINE) is not None


def dotted(named: str) -> bool:
    """True if a dotted name is a module, or a member of one."""
    parts = named.split(".")
    for end in range(len(parts), 0, -1):
        found = module("/".join(parts[:end]))
        if found is not None:
            return end == len(parts) or (end == len(parts) - 1 and declares(found, parts[-1]))
    return False


def files(named: str) -> list[Path]:
    """The files whose path ends with a path that ends in ``.py``."""
    wanted = Path(named).parts
    return [path for path in _FILES if path.parts[-len(wanted) :] == wanted]


def problems(text: str) -> list[str]:
    """What a page names and is not there. In a cell of a table, functions after that of a file are of the same file."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        for cell in line.split("|"):
            last: list[Path] = []
            functions = False
            for span in _CODE.findall(cell):
                for name in _PATH.findall(span):
                    own = name.removeprefix("operator:")
                    if own.endswith(".py"):
                        last = files(own)
                    if not last if own.endswith(".py") else own.split("/")[0] in _TOP and not (module(own) or dotted_path(own)):
                        found.append(f"{number}: {name}")
                found += [f"{number}: {name}" for name in _DOTTED.findall(span) if not (name.split(".")[1] in _NO_MODULES or dotted(name))]
                function = re.search(r"\.py: (\w+)$" if ".py" in span else r"^(\w+)$", span)
                functions = functions or ".py: " in span
                if function is not None and functions and not any(declares(ROOT / path, function[1]) for path in last):
                    found.append(f"{number}: {span}")
    return found


def dotted_path(named: str) -> bool:
    """True if a path ends in a member of a module: ``reconcile/job/plan/initial_state.children_spec``."""
    path, _, member = named.rpartition(".")
    found = module(path) if path else None
    return found is not None and declares(found, member)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("`slot/process.py`, `process.py`, `operator:reconcile/specs.py: check`", []),
        ("`slot/keeper.py`", ["1: slot/keeper.py"]),
        ("| `slot/process.py: run_slot`, `listen`, `keep` |", ["1: keep"]),
        ("| `slot/process.py: run_keeper` | `x` |", ["1: slot/process.py: run_keeper"]),
        ("`reconcile/ownership`, `statefulspark.errors`, `statefulspark.io/job`, `commits/b`", []),
        ("a\n`reconcile/mirror` and `statefulspark.keeper.run`", ["2: reconcile/mirror", "2: statefulspark.keeper.run"]),
        ("`statefulspark.testing.TestingJob`, `statefulspark.testing.KeeperJob`", ["1: statefulspark.testing.KeeperJob"]),
    ],
)
def test_what_is_not_there_is_found(text: str, expected: list[str]) -> None:
    assert problems(text) == expected


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_that_a_page_names_exist(path: Path) -> None:
    assert problems(path.read_text()) == []
