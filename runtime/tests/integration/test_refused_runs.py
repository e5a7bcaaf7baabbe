"""``statefulspark run`` on input that is refused, and of a function that raises: the exit code, one error with its remedy, and a process that ends by itself.

The other tests call the job in their own process, where a thread that never ends, or an attempt that was claimed too early, goes unnoticed.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from .oracles import files, row
from .work import Work

LEAVES_S = 30.0
"""How long a process may take to end once it has said why; far more than it needs, so that only one that hangs takes longer."""


@dataclass(frozen=True)
class Refusal:
    """What is run, and what it says."""

    says: str
    code: int = 2
    entrypoint: str = "counts"
    spec: tuple[tuple[str, Any], ...] = ()
    checkpointing: tuple[tuple[str, Any], ...] = ()
    arguments: tuple[str, ...] = ()


WITHOUT_SPARK = {
    "mode": Refusal("spec.checkpointing.mode: ", checkpointing=(("mode", "at-most-once"),)),
    "field": Refusal("spec.paralelism", spec=(("paralelism", 3),)),
    "native metric": Refusal(
        "spec.stateBackend.rocksdb.metrics", spec=(("stateBackend", {"type": "rocksdb", "rocksdb": {"metrics": ["x"]}}),)
    ),
    "script": Refusal("spec.job.script: ", spec=(("job", {"script": "nosuch.py"}),)),
    "entry point": Refusal("spec.job.entrypoint: ", entrypoint="nosuch"),
    "checkpoint to start from": Refusal("nosuch", arguments=("--from", "file:///nosuch/chk-1")),
    "key groups": Refusal(
        "parallelism: 200 slots cannot share 128 key groups", spec=(("maxParallelism", 128),), arguments=("--parallelism", "200")
    ),
    "Spark version": Refusal("spec.sparkVersion: the job requires Spark 4.3.999", spec=(("sparkVersion", "4.3.999"),)),
    "claim": Refusal("--claim-mode: CLAIM requires --from", arguments=("--claim-mode", "CLAIM")),
    "drain": Refusal("--drain: requires --until-idle", arguments=("--drain",)),
    "store": Refusal("checkpointing.dir: ", checkpointing=(("dir", "ftp://host/x"),)),
}
WITH_SPARK = {
    "sink": Refusal("writeStream.format: Spark has no sink 'parqet'. Did you mean 'parquet'?", entrypoint="misspelt_sink"),
    "missing source": Refusal(
        "there is no data source 'kafka'. Run `statefulspark connectors add kafka` once, or use the job image", entrypoint="from_kafka"
    ),
    "missing sink": Refusal(
        "writeStream.format: Spark has no sink 'kafka'. Run `statefulspark connectors add kafka` once", entrypoint="to_kafka"
    ),
    "output mode": Refusal("spec.job: Invalid streaming output mode: complete", entrypoint="wrong_output_mode"),
    "path": Refusal("writeStream: the sink has no path", entrypoint="sink_without_path"),
    "key": Refusal("key_by: column 'k' of type double cannot be a key", entrypoint="by_double"),
    "pipeline": Refusal("the pipeline raised ZeroDivisionError", entrypoint="raises"),
    "column": Refusal("spec.job: Spark refuses the pipeline (pipelines.py, line ", entrypoint="misspelt_column"),
    "setting": Refusal("spec.sparkConf[spark.speculation]: is fixed to 'false'", spec=(("sparkConf", {"spark.speculation": "true"}),)),
}
IN_MAKE_TEST = {"field", "checkpoint to start from", "key groups", "Spark version", "sink", "pipeline"}
"""The tests of config, cli and job/spark have the others without a process for each."""


@contextmanager
def running(work: Work, refusal: Refusal) -> Iterator[subprocess.Popen[str]]:
    work.entrypoint = refusal.entrypoint
    work.spec, work.checkpointing = dict(refusal.spec), dict(refusal.checkpointing)
    (work.folder / "in").mkdir(exist_ok=True)
    environment = os.environ | {"STATEFULSPARK_HOME": str(work.folder / "home"), "TMPDIR": str(work.folder / "tmp")}
    command = [sys.executable, "-m", "statefulspark.cli.main", "run", str(work.write_manifest()), "--no-progress", *refusal.arguments]
    with subprocess.Popen(command, env=environment, cwd=work.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def check(work: Work, refusal: Refusal) -> None:
    before = sorted(path for path in work.folder.rglob("*") if "storage" in path.parts and path.is_file())
    with running(work, refusal) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if line.startswith("error: "):
                break
        _, rest = process.communicate(timeout=LEAVES_S)
        told = "".join(lines) + rest
    assert process.returncode == refusal.code, told
    assert refusal.says in told[told.index("error: ") :]
    assert "Py4J" not in told
    assert told.count("error: ") == 1
    after = sorted(path for path in work.folder.rglob("*") if "storage" in path.parts and path.is_file())
    assert after == before
    assert not (work.folder / "storage" / "job").exists()


def cases(names: Iterable[str]) -> list[ParameterSet]:
    return [pytest.param(each, marks=() if each in IN_MAKE_TEST else (pytest.mark.exhaustive,)) for each in names]


@pytest.mark.parametrize("name", cases(WITHOUT_SPARK))
def test_what_the_manifest_shows(work: Work, name: str) -> None:
    """Refused before Spark is started."""
    check(work, WITHOUT_SPARK[name])


@pytest.mark.parametrize("name", cases(WITH_SPARK))
def test_what_only_the_pipeline_shows(work: Work, name: str) -> None:
    """Refused before an attempt is claimed."""
    check(work, WITH_SPARK[name])


def test_a_port_in_use(work: Work) -> None:
    """Found before Spark is started; the manifest's own port is taken when no option says otherwise."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        check(work, Refusal(f"127.0.0.1:{port} cannot be bound", spec=(("api", {"port": port}),)))


@pytest.mark.exhaustive
def test_an_error_after_the_claim_ends_the_process_too(work: Work) -> None:
    """Spark cannot start the query although all checks passed: coordinator and slots, which were started, do not keep the process."""
    work.write(files(seed=1, number=1)[0])
    with running(work, Refusal("", entrypoint="sink_that_cannot_start")) as process:
        _, told = process.communicate(timeout=180)
    assert process.returncode == 2, told
    assert "error: spec.job: Spark cannot start the query: " in told
    assert "Traceback" not in told


def test_a_function_that_raises_is_told_last_and_alone_and_the_rest_is_in_the_log_file(work: Work) -> None:
    """On stderr: log records of driver and function, then the error with the user's traceback and what to do. In the file: Spark's stacks."""
    work.write([row("unlucky", 500, 13)])
    work.parameters = {"unlucky": 13}
    path = work.folder / "logs" / "spark.log"
    with running(work, Refusal("", entrypoint="printing", arguments=("--until-idle", "--log-file", str(path)))) as process:
        out, told = process.communicate(timeout=300)
    assert process.returncode == 1, told
    assert out == "printed by the pipeline\n"
    records = [json.loads(line) for line in told[: told.index("error: ")].splitlines()]
    assert (records[1]["event"], records[1]["path"]) == ("log of Spark", str(path))
    lines = told[told.index("error: ") :].splitlines()
    start = lines.index("Traceback (most recent call last):")
    end = lines.index("ValueError: thirteen is not for me")
    assert lines[0] == f"error: job job failed (UserFunction); Spark's log is {path}"
    assert re.fullmatch(r"the function raised ValueError in uid 'count', key group \d+", lines[1])
    assert sum("pipelines.py" in line for line in lines[start:end]) == 2
    assert lines[-1].startswith("Fix the function (its traceback is above), then run the manifest again")
    assert len(lines) - (end - start + 1) <= 10, lines
    of_function = [record for record in records if record["logger"] in {"shop", "stdout"}]
    assert [record["event"] for record in of_function[:2]] == ["the unlucky amount, attempt 0", "printed by the function"]
    for record in of_function:
        assert (record["level"], record["uid"]) == ("info", "count")
        assert {record["slot"], record["key_group"]} <= set(range(128))
    assert "\tat org.apache.spark" in path.read_text()
