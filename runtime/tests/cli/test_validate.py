"""``statefulspark validate`` finds every problem of a manifest at once, runs no code unless asked, and starts nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from statefulspark.cli.main import build_app

PIPELINE = "def pipeline(job):\n    return job\n"


def manifest(folder: Path, *, script: str = PIPELINE, checkpointing: dict[str, Any] | None = None, **spec: Any) -> Path:
    (folder / "job.py").write_text(script)
    path = folder / "job.yaml"
    document = {
        "apiVersion": "statefulspark.io/v1alpha1",
        "kind": "StatefulSparkJob",
        "metadata": {"name": "clicks"},
        "spec": {"job": {"script": "job.py"}, "checkpointing": {"dir": (folder / "state").as_uri(), **(checkpointing or {})}, **spec},
    }
    path.write_text(yaml.safe_dump(document))
    return path


def validate(path: Path, *arguments: str) -> Result:
    return CliRunner().invoke(build_app(), ["validate", str(path), *arguments])


def problems(path: Path, *arguments: str) -> dict[str, str]:
    """Messages by field; checks exit code and form of the answer."""
    result = validate(path, *arguments, "-o", "json")
    document = json.loads(result.stdout)
    assert result.exit_code == (0 if document["valid"] else 1), result.output
    assert document["valid"] == (not document["problems"])
    assert all(each["remedy"] for each in document["problems"])
    return {each["field"]: each["message"] for each in document["problems"]}


def test_a_valid_manifest(tmp_path: Path) -> None:
    path = manifest(tmp_path)
    assert problems(path) == {}
    said = validate(path)
    assert (said.exit_code, said.stdout) == (0, "job clicks is valid\n")
    assert {each.name for each in tmp_path.iterdir()} == {"job.py", "job.yaml"}, "storage is not touched"


def test_all_problems_at_once_with_field_and_remedy(tmp_path: Path) -> None:
    """Of the fields; and once these are right, of Spark's settings and the files."""
    path = manifest(tmp_path, paralelism=3, upgradeMode="fast", checkpointing={"dir": "ftp://x/y", "interval": "soon"})
    found = problems(path)
    assert set(found) == {"spec.paralelism", "spec.upgradeMode", "spec.checkpointing.dir", "spec.checkpointing.interval"}
    said = validate(path)
    assert "spec.paralelism: is not a field. Did you mean parallelism?" in said.stdout.splitlines()
    assert said.stderr == f"error: {path} has 4 problems\n"
    path = manifest(
        tmp_path,
        sparkVersion="4.3.999",
        sparkConf={"spark.speculation": "true", "spark.scheduler.mode": "FIFO"},
        job={"script": "gone.py", "pyFiles": ["lib.zip"]},
        checkpointing={"storage": {"endpoint": "http://minio:9000", "caBundle": "ca.pem"}},
        initialSnapshot={"name": "friday"},
    )
    assert set(problems(path)) == {
        "spec.sparkVersion", "spec.sparkConf[spark.speculation]", "spec.sparkConf[spark.scheduler.mode]", "spec.job.script",
        "spec.job.pyFiles[0]", "spec.checkpointing.storage.caBundle", "spec.initialSnapshot",
    }  # fmt: skip


def test_rules_across_fields_and_the_memory_plan(tmp_path: Path) -> None:
    found = problems(manifest(tmp_path, parallelism=200, maxParallelism=128, upgradeMode="savepoint"))
    assert set(found) == {"spec.parallelism", "spec.upgradeMode"}
    assert set(problems(manifest(tmp_path, executor={"memory": "100Mi"}))) == {"spec.executor.memory"}
    unbounded = manifest(tmp_path, stateBackend={"type": "memory"})
    said = validate(unbounded, "-o", "json")
    assert said.exit_code == 0, said.output
    (warning,) = json.loads(said.stdout)["warnings"]
    assert "Python heap" in warning
    assert validate(unbounded).stderr == f"warning: {warning}\n"


@pytest.mark.parametrize(
    ("script", "field", "says"),
    [
        ("def pipeline(job)\n    return job\n", "spec.job.script", "job.py, line 1: expected ':'"),
        ("def build(job):\n    return job\n", "spec.job.entrypoint", "has no function 'pipeline'"),
        ("def build():\n    def pipeline(job):\n        return job\n", "spec.job.entrypoint", "has no function 'pipeline'"),
        ("print(pipeline)\n", "spec.job.entrypoint", "has no function 'pipeline'"),
        ("", "spec.job.entrypoint", "has no function 'pipeline'"),
        ("\0", "spec.job.script", "job.py"),
        ("# coding: nosuch\n", "spec.job.script", "unknown encoding"),
        ("(" * 10_000, "spec.job.script", "job.py"),
    ],
)
def test_a_script_is_read_but_not_run(tmp_path: Path, script: str, field: str, says: str) -> None:
    found = problems(manifest(tmp_path, script=script))
    assert set(found) == {field}
    assert says in found[field]


@pytest.mark.parametrize(
    "script",
    [
        "from shop import pipeline\n",
        "from shop import *\n",
        "import shop as pipeline\n",
        "pipeline = lambda job: job\n",
        "if True:\n    def pipeline(job):\n        return job\nelse:\n    pipeline = None\n",
        "try:\n    from fast import pipeline\nexcept ImportError:\n    pipeline = None\n",
        "globals()['pipe' + 'line'] = print\n",
        "def make():\n    global pipeline\n    pipeline = print\nmake()\n",
        "class pipeline:\n    pass\n",
        "raise RuntimeError('run')\ndef pipeline(job): ...\n",
        "'\\d'\ndef pipeline(job): ...\n",
    ],
)
def test_scripts_that_may_define_their_entry_point_pass(tmp_path: Path, script: str) -> None:
    """Without being run, whatever they would do."""
    assert problems(manifest(tmp_path, script=script)) == {}


def test_a_script_in_another_encoding(tmp_path: Path) -> None:
    path = manifest(tmp_path)
    (tmp_path / "job.py").write_bytes("# coding: latin-1\nGRUSS = 'ü'\ndef pipeline(job): ...\n".encode("latin-1"))
    assert problems(path) == {}
    (tmp_path / "job.py").write_bytes(b"GRUSS = '\xfc'\n")
    assert set(problems(path)) == {"spec.job.script"}


def test_pipeline_imports_the_program(tmp_path: Path) -> None:
    """Its output does not get into the answer, and its exception is one problem."""
    path = manifest(tmp_path, script="print('imported')\nraise RuntimeError('no database')\ndef pipeline(job): ...\n")
    assert problems(path) == {}
    found = problems(path, "--pipeline")
    assert "no database" in found["spec.job.script"]
    path = manifest(tmp_path, script="print('imported')\n" + PIPELINE)
    said = validate(path, "--pipeline", "-o", "json")
    assert (said.exit_code, json.loads(said.stdout)["valid"], said.stderr) == (0, True, "imported\n")
    path = manifest(tmp_path, script="from job import *\npipeline = 3\n")
    assert problems(path, "--pipeline")["spec.job.entrypoint"] == "job.py has no function 'pipeline'"


def test_classes_that_the_manifest_names_are_code_too(tmp_path: Path) -> None:
    """An options factory that does not exist is found with --pipeline only."""
    path = manifest(tmp_path, stateBackend={"type": "rocksdb", "rocksdb": {"optionsFactory": "nosuch_module_of_mine:Factory"}})
    assert problems(path) == {}
    assert len(problems(path, "--pipeline")) == 1


def test_a_wrong_rocksdb_option(tmp_path: Path) -> None:
    path = manifest(tmp_path, stateBackend={"type": "rocksdb", "rocksdb": {"options": {"state.backend.rocksdb.thread.num": "no number"}}})
    assert len(problems(path)) == 1


def test_on_kubernetes_other_rules_hold(tmp_path: Path) -> None:
    """Fields of local runs are refused, absolute paths are the image's, and its Spark is not this machine's."""
    local = {"storage": {"accessKeyId": "a", "secretAccessKey": "not-to-be-shown"}}
    path = manifest(tmp_path, checkpointing=local, sparkVersion="4.3.999", sparkConf={"spark.driver.host": "x"})
    result = validate(path, "--kubernetes")
    assert result.exit_code == 1
    assert "not-to-be-shown" not in result.output
    assert set(problems(path, "--kubernetes")) == {
        "spec.checkpointing.storage.accessKeyId", "spec.checkpointing.storage.secretAccessKey", "spec.sparkConf[spark.driver.host]",
    }  # fmt: skip
    assert set(problems(path)) == {"spec.sparkVersion"}
    path = manifest(tmp_path, job={"script": "/opt/job/absent.py"})
    assert problems(path, "--kubernetes") == {}
    assert set(problems(path)) == {"spec.job.script"}
    path = manifest(tmp_path, job={"script": "absent.py"})
    assert set(problems(path, "--kubernetes")) == {"spec.job.script"}


@pytest.mark.parametrize("text", ["", "a: [", "- 1\n", "kind: Pod\n", "a: 1\na: 2\n"])
def test_what_is_no_manifest_is_a_problem(tmp_path: Path, text: str) -> None:
    (tmp_path / "job.yaml").write_text(text)
    assert len(problems(tmp_path / "job.yaml")) == 1


def test_a_file_that_cannot_be_read_is_wrong_input(tmp_path: Path) -> None:
    result = validate(tmp_path / "absent.yaml", "-o", "json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "absent.yaml: cannot be read" in result.stderr


def test_no_java_is_started(tmp_path: Path) -> None:
    """A Java that leaves a mark when it is called; neither the script nor the pipeline function needs one."""
    bin_folder = tmp_path / "java" / "bin"
    bin_folder.mkdir(parents=True)
    java = bin_folder / "java"
    java.write_text(f"#!/bin/sh\ntouch {tmp_path}/called\nexit 1\n")
    java.chmod(0o755)
    environment = os.environ | {"JAVA_HOME": str(tmp_path / "java"), "PATH": f"{bin_folder}:{os.environ['PATH']}"}
    command = [sys.executable, "-m", "statefulspark.cli.main", "validate", str(manifest(tmp_path)), "--pipeline"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "called").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "arguments", "said"),
    [
        pytest.param("user", 'uid="one"', "", marks=pytest.mark.exhaustive),
        ("usr", 'uid="one"', "'usr' does not exist"),
        pytest.param("user", 'uid="one", watermark1="1 s"', "Its arguments are func", marks=pytest.mark.exhaustive),
    ],
)
def test_a_plan_is_built_and_not_started(tmp_path: Path, key: str, arguments: str, said: str) -> None:
    """Columns and arguments are checked where Spark is; nothing is written."""
    script = (
        "from statefulspark import KeyedProcessFunction\n\n\n"
        "class One(KeyedProcessFunction):\n    def process_element(self, value, ctx):\n        yield value.user\n\n\n"
        "def pipeline(job):\n"
        f"    rows = job.spark.readStream.schema('user string').json({str(tmp_path)!r})\n"
        f"    return job.key_by(rows, {key!r}).process(One(), 'user string', {arguments}).writeStream.format('noop')\n"
    )
    path = manifest(tmp_path, script=script)
    assert problems(path, "--pipeline") == {}
    found = subprocess.run(
        [sys.executable, "-m", "statefulspark.cli.main", "validate", str(path), "--plan"],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert found.returncode == (1 if said else 0), found.stderr
    assert said in found.stdout
    assert not (tmp_path / "state").exists()
