"""What a newcomer gets wrong in the project that ``statefulspark init`` makes: each is told in at most ten lines, with the remedy last."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

LINES_MAX = 10
LIMIT_S = 240


@dataclass(frozen=True)
class Mistake:
    """A text of one file that is replaced by another, and what the last line says."""

    remedy: str
    before: str
    after: str
    file: str = "pipeline.py"
    arguments: tuple[str, ...] = ()


def manifest(before: str, after: str, remedy: str, *arguments: str) -> Mistake:
    return Mistake(remedy, before, after, "job.yaml", arguments)


MISTAKES = {
    "a misspelt field": manifest("parallelism: 2", "paralelism: 2", "paralelism"),
    "YAML that does not parse": manifest("spec:\n", "spec:\n\t", "Fix the YAML"),
    "another file name": manifest("script: pipeline.py", "script: main.py", "main.py"),
    "a duration in words": manifest("interval: 10s", "interval: ten seconds", "10s"),
    "a folder without a scheme": manifest(
        "  checkpointing:\n    interval: 10s\n    dir: file://", "  checkpointing:\n    interval: 10s\n    dir: ", "file://"
    ),
    "more slots than key groups": manifest("parallelism: 2", "parallelism: 9\n  maxParallelism: 4", "maxParallelism"),
    "a backend that does not exist": manifest("parallelism: 2", "parallelism: 2\n  stateBackend: {type: rocks}", "rocksdb"),
    "another release of Spark": manifest("parallelism: 2", 'parallelism: 2\n  sparkVersion: "4.9.9"', "4.3.1"),
    "a store that does not answer": manifest(
        "    savepointDir",
        "    storage: {endpoint: 'http://127.0.0.1:9', region: r, accessKeyId: a, secretAccessKey: b}\n    savepointDir",
        "checkpointing.storage.endpoint",
    ),
    "no pipeline function": Mistake("pipeline", "def pipeline(job):", "def main(job):"),
    "a module that is not installed": Mistake("nosuchmodule", "from pathlib import Path", "from pathlib import Path\nimport nosuchmodule"),
    "a syntax error": Mistake("expected ':'", "def open(self, runtime_context):", "def open(self, runtime_context)"),
    "no return": Mistake("return", "    return counts.writeStream", "    counts.writeStream"),
    "a query that is started": Mistake(
        "start()", 'str(HERE / "output"))', 'str(HERE / "output")).option("checkpointLocation", "x").start()'
    ),
    "a misspelt column": Mistake("user", 'key_by(clicks, "user")', 'key_by(clicks, "usr")'),
    "a misspelt column of Spark": Mistake("user", "    counts = ", '    clicks.select("usr")\n    counts = '),
    "a misspelt type": Mistake("STRNG", '"user STRING, clicks BIGINT"', '"user STRNG, clicks BIGINT"'),
    "no uid": Mistake("uid", ', uid="count-clicks"', ""),
    "no type of a state": Mistake("type_info", 'ValueStateDescriptor("clicks", Types.LONG())', 'ValueStateDescriptor("clicks")'),
    "a misspelt sink": Mistake("parquet", 'format("parquet")', 'format("parqet")'),
    "no path": Mistake("path", '.option("path", str(HERE / "output"))', ""),
    "an output mode that no step has": Mistake("output mode", 'format("parquet")', 'format("parquet").outputMode("complete")'),
    "an event time that no column has": Mistake("event_time", 'uid="count-clicks"', 'uid="count-clicks", event_time="ts"'),
    "a function that raises": Mistake("ZeroDivisionError", "yield value.user, clicks", "yield value.user, clicks // 0"),
    "an attribute that open did not set": Mistake("count", "self.clicks.update(clicks)", "self.count.update(clicks)"),
    "too few fields": Mistake("one value per column", "yield value.user, clicks", "yield (value.user,)"),
    "a field of another type": Mistake("clicks", "yield value.user, clicks", 'yield value.user, "many"'),
    "return instead of yield": Mistake("yield", "yield value.user, clicks", "return value.user, clicks"),
    "a value of another type": Mistake("clicks", "self.clicks.update(clicks)", 'self.clicks.update("many")'),
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """As ``init`` makes it."""
    run(tmp_path, "init", "shop")
    return tmp_path / "shop"


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"STATEFULSPARK_HOME": str(folder / "home")}
    command = [sys.executable, "-m", "statefulspark.cli.main", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)


@pytest.mark.exhaustive
def test_the_project_itself_runs(project: Path) -> None:
    """Else the mistakes below would say nothing."""
    done = run(project, "run", "job.yaml", "--until-idle", "--no-progress")
    assert done.returncode == 0, done.stderr


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_shortly(project: Path, name: str) -> None:
    """From ``error:`` on, after the log records of a job that was running already."""
    mistake = MISTAKES[name]
    path = project / mistake.file
    text = path.read_text()
    assert mistake.before in text
    path.write_text(text.replace(mistake.before, mistake.after, 1))
    if name == "a store that does not answer":
        path.write_text(path.read_text().replace("dir: file://", "dir: s3://bucket", 1))
    done = run(project, "run", "job.yaml", "--until-idle", "--no-progress", *mistake.arguments)
    assert done.returncode in (1, 2), done.stderr
    assert done.stderr.count("error: ") == 1, done.stderr
    told = done.stderr[done.stderr.index("error: ") :].strip().splitlines()
    assert len(told) <= LINES_MAX, done.stderr
    assert "Py4J" not in done.stderr
    assert mistake.remedy in "\n".join(told[-2:]), done.stderr
