"""A program that cannot be loaded is refused in its author's terms, before Spark is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statefulspark.config.job import StatefulSparkJob
from statefulspark.config.manifest import validate_job
from statefulspark.errors import InvalidInputError
from statefulspark.pipeline.script import load_pipeline


def manifest(**job: Any) -> StatefulSparkJob:
    return validate_job(
        {
            "apiVersion": "statefulspark.io/v1alpha1",
            "kind": "StatefulSparkJob",
            "metadata": {"name": "flights"},
            "spec": {"job": job, "checkpointing": {"dir": "file:///tmp/checkpoints"}},
        }
    )


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("def pipeline(job)\n    return job\n", "SyntaxError"),
        ("import no_such_module_of_anybody\n", "ModuleNotFoundError"),
        ("LIMIT = 1 / 0\n", "ZeroDivisionError"),
        ("raise SystemExit(3)\n", "SystemExit"),
    ],
)
def test_a_script_that_cannot_be_imported_is_its_authors_error(tmp_path: Path, code: str, found: str) -> None:
    """The text names field, script and line and holds none of our frames; the same every time, so the end is settled, not tried again."""
    script = tmp_path / "broken.py"
    script.write_text(code)
    with pytest.raises(InvalidInputError, match=rf"^spec\.job\.script: importing the program raised {found}") as caught:
        load_pipeline(manifest(script=str(script)))
    assert f'"{script}", line 1' in str(caught.value)
    assert "pipeline/script.py" not in str(caught.value)
    assert "importlib" not in str(caught.value)


def test_a_missing_file_beside_the_script_is_refused(tmp_path: Path) -> None:
    """Slots would miss its modules much later, with an error that does not say why."""
    script, there = tmp_path / "job.py", tmp_path / "lib"
    script.write_text("def pipeline(job):\n    return job\n")
    there.mkdir()
    with pytest.raises(InvalidInputError, match=r"^spec\.job\.pyFiles\[1\]: .*gone\.zip does not exist"):
        load_pipeline(manifest(script=str(script), pyFiles=[str(there), str(tmp_path / "gone.zip")]))
    assert load_pipeline(manifest(script=str(script), pyFiles=[str(there)]))("flights") == "flights"
