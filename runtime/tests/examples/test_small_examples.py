"""Promises the small examples make about themselves."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from statefulspark.config.manifest import load_manifest


def without_imports(path: Path) -> str:
    tree = ast.parse(path.read_text())
    body = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)]
    assert isinstance(body[0], ast.Expr)  # the module's docstring
    return "\n".join(ast.unparse(node) for node in body[1:])


def test_the_ported_function_differs_from_pyflinks_in_its_imports_only(examples: Path) -> None:
    ported, original = (examples / "03-pyflink-port" / name for name in ("card_guard.py", "card_guard_pyflink.py"))
    assert without_imports(ported) == without_imports(original)
    assert "pyflink" not in "".join(line for line in ported.read_text().splitlines() if line.startswith(("from ", "import ")))


@pytest.mark.parametrize("example", ["01-flights", "02-sessions", "03-pyflink-port"])
def test_manifests_are_valid_and_name_files_that_exist(examples: Path, example: str) -> None:
    job = load_manifest(examples / example / "job.yaml").spec.job
    assert [path for path in (job.script, *job.py_files) if path is None or not Path(path).is_file()] == []
