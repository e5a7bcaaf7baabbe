"""The documentation as a site, and the code of its tutorial."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from statefulspark.config.manifest import load_manifest
from statefulspark.testing import KeyedProcessHarness

from .test_vocabulary import ROOT

MKDOCS = ROOT / "out" / "site-tools" / "bin" / "mkdocs"


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.skipif(not (MKDOCS.parents[1] / ".made").exists(), reason="`make docs` has not installed the site's tools")
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """Offline: broken links, anchors, and files from other hosts are errors."""
    subprocess.run([sys.executable, "docs/site/references.py", "out/references"], cwd=ROOT, check=True, timeout=120)
    command = [str(MKDOCS), "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONWARNINGS": ""}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr[-4000:]


def test_the_tutorial_s_function_passes_the_tutorial_s_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As somebody who copies the blocks into files; the test fails if the function forgets to delete its timer, as the tutorial says."""
    page = (ROOT / "docs/tutorials/first-job.md").read_text()
    function, test = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (manifest,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "silence.py").write_text(function)
    (tmp_path / "job.yaml").write_text(manifest)
    assert load_manifest(tmp_path / "job.yaml").spec.job.script == str(tmp_path / "silence.py")
    monkeypatch.syspath_prepend(tmp_path)
    names: dict[str, object] = {}
    exec(compile(test, "test_silence.py", "exec"), names)
    run = names["test_a_silent_machine_is_reported"]
    assert callable(run)
    run()
    broken: dict[str, type] = {}
    exec(compile(re.sub(r"ctx.timer_service\(\).delete_event_time_timer\(.*\)", "pass", function), "silence.py", "exec"), broken)
    names["Silence"] = broken["Silence"]
    with pytest.raises(AssertionError):
        run()
    assert KeyedProcessHarness.__name__ in names
