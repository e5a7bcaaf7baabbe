"""Promises the small examples make about themselves."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from statefulspark.config.manifest import load_manifest

from .conftest import EXAMPLES


def constants_and_classes(path: Path) -> str:
    """What is left without docstring, imports and the pipeline."""
    nodes = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Assign | ast.ClassDef)]
    assert len(nodes) == 3
    return "\n".join(ast.unparse(node) for node in nodes)


def test_the_ported_function_differs_from_pyflinks_in_its_imports_only(examples: Path) -> None:
    ported, original = (examples / "03-pyflink-port" / name for name in ("card_guard.py", "card_guard_pyflink.py"))
    assert constants_and_classes(ported) == constants_and_classes(original)
    assert "pyflink" not in "".join(line for line in ported.read_text().splitlines() if line.startswith(("from ", "import ")))


@pytest.mark.parametrize("example", sorted(path.parent.name for path in EXAMPLES.glob("*/job.yaml") if path.parent.name != "04-kubernetes"))
def test_manifests_are_valid_and_name_files_that_exist(examples: Path, example: str) -> None:
    job = load_manifest(examples / example / "job.yaml").spec.job
    assert [path for path in (job.script, *job.py_files) if path is None or not Path(path).is_file()] == []
