"""A good manifest is read completely; what is no manifest is refused by line or file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from statefulspark.config.checkpointing import OnCancellation
from statefulspark.config.manifest import load_manifest, parse_manifest, validate_job
from statefulspark.config.resources import ExecutorSpec
from statefulspark.errors import InvalidInputError

from .manifests import MINIMAL, manifest, refusal


def test_defaults_are_flinks() -> None:
    """A minimal manifest gets Flink's defaults where Flink has one."""
    spec = validate_job(MINIMAL).spec
    assert (spec.parallelism, spec.max_parallelism, spec.max_parallelism_given) == (1, 128, False)
    checkpointing = spec.checkpointing
    assert (checkpointing.min_pause, checkpointing.timeout, checkpointing.max_concurrent) == (0, 600_000, 1)
    assert (checkpointing.tolerable_failures, checkpointing.retention.count) == (0, 1)
    assert checkpointing.retention.on_cancellation is OnCancellation.RETAIN
    memory = spec.state_backend.rocksdb.memory
    assert (memory.managed, memory.fixed_per_slot, memory.write_buffer_ratio, memory.high_prio_pool_ratio) == (True, None, 0.5, 0.1)
    delay = spec.restart_strategy.exponential_delay
    assert (delay.initial_backoff, delay.backoff_multiplier, delay.max_backoff, delay.jitter_factor) == (1000, 1.5, 60_000, 0.1)


def test_max_parallelism_follows_parallelism_unless_given() -> None:
    """Flink's formula fills the gap; a number in the manifest stays."""
    assert validate_job(manifest(parallelism=200)).spec.max_parallelism == 512
    given = validate_job(manifest(parallelism=4, maxParallelism=10)).spec
    assert (given.max_parallelism, given.max_parallelism_given) == (10, True)


def test_what_is_written_can_be_read_again() -> None:
    """to_manifest is the inverse of reading, so operator and command line exchange manifests without loss."""
    job = validate_job(
        manifest(
            parallelism=3,
            executor={"slots": 2, "memory": "8 g", "managedMemory": {"size": "512m"}, "cores": "1500m"},
            stateBackend={"rocksdb": {"metrics": ["block-cache-usage"], "options": {"thread.num": 4}}},
            checkpointing={"interval": "1 min 30 s", "savepointDir": "s3://bucket/sp/"},
            savepoints={"schedule": {"cron": "0 3 * * *"}},
            restartStrategy={"type": "fixed-delay", "fixedDelay": {"attempts": 3}},
            sparkConf={"spark.sql.shuffle.partitions": 4, "spark.ui.enabled": False},
            job={"script": "flights.py", "parameters": {"limit": 4, "strict": True, "region": "eu"}},
        )
    )
    assert validate_job(job.to_manifest()) == job
    assert validate_job(yaml.safe_load(yaml.safe_dump(job.to_manifest()))) == job
    assert job.spec.spark_conf == {"spark.sql.shuffle.partitions": "4", "spark.ui.enabled": "false"}
    assert job.spec.job.parameters == {"limit": "4", "strict": "true", "region": "eu"}


def test_relative_paths_start_at_the_manifest(tmp_path: Path) -> None:
    """Script and Python files are found beside the manifest, wherever the command is started."""
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(manifest(job={"script": "jobs/flights.py", "pyFiles": ["lib", "/abs/x.py", "s3://b/y.zip"]})))
    program = load_manifest(path).spec.job
    assert program.script == str(tmp_path / "jobs/flights.py")
    assert program.py_files == (str(tmp_path / "lib"), "/abs/x.py", "s3://b/y.zip")
    assert parse_manifest(path.read_text()).spec.job.script == "jobs/flights.py"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "manifest: is empty. Write a StatefulSparkJob"),
        ("- 1", "manifest: is not a mapping"),
        ("a: [", "manifest: not valid YAML in line 1"),
        ("a: 1\na: 2", "manifest: not valid YAML in line 2, column 1: a occurs twice in one mapping"),
        ("spec: {}", "apiVersion: is missing. Write apiVersion: statefulspark.io/v1alpha1"),
        ("apiVersion: v1\nkind: StatefulSparkJb", "kind: 'StatefulSparkJb' is not known. Did you mean StatefulSparkJob?"),
        ("kind: Secret\n---\nkind: ConfigMap", "manifest: holds 0 documents of kind StatefulSparkJob"),
        ("!!python/object:os.system {}", "manifest: not valid YAML in line 1"),
        ("x: 2026-99-99", "manifest: not valid YAML"),
    ],
)
def test_texts_that_are_no_manifest(text: str, sentence: str) -> None:
    """Broken YAML names the line, doubled names are not silently merged, other documents are told apart."""
    with pytest.raises(InvalidInputError) as caught:
        parse_manifest(text)
    assert sentence in str(caught.value)


def test_other_documents_may_stand_beside_the_job() -> None:
    """A file may also hold the Secret that the job needs."""
    text = yaml.safe_dump_all([{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s3"}}, MINIMAL])
    assert parse_manifest(text).metadata.name == "flights"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """Missing, huge and binary files are refused by name."""
    (tmp_path / "huge.yaml").write_bytes(b"#" * (1 << 21))
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe")
    for name, words in (("none.yaml", "cannot be read"), ("huge.yaml", "larger than 1Mi"), ("binary.yaml", "not UTF-8")):
        with pytest.raises(InvalidInputError, match=words) as caught:
            load_manifest(tmp_path / name)
        assert caught.value.field == str(tmp_path / name)


def test_objects_of_kubernetes_are_read() -> None:
    """Status and bookkeeping metadata of the API server are not errors; other unknown metadata is."""
    document = manifest()
    document["metadata"] |= {"uid": "u-1", "resourceVersion": "7", "managedFields": [{}], "generation": 3}
    document["status"] = {"state": "RUNNING"}
    assert validate_job(document).metadata.uid == "u-1"
    document["metadata"]["labls"] = {}
    assert "metadata.labls: is not a field. Did you mean labels?" in refusal(document)


def test_managed_memory_per_slot() -> None:
    """A size counts per slot, a fraction is shared, and the default fraction is Flink's 0.4."""

    def managed(**executor: Any) -> int:
        return validate_job(manifest(executor=executor)).spec.memory_plan().managed_bytes

    assert managed() == int((4 << 30) * 0.4) >> 20 << 20
    assert managed(slots=4, memory="4Gi", managedMemory={"fraction": 0.4}) == int((4 << 30) * 0.4) // 4
    assert managed(slots=4, memory="4Gi", managedMemory={"size": "100Mi"}) == 100 << 20
    assert [ExecutorSpec(slots=4).instances_for(parallelism) for parallelism in (1, 4, 5)] == [1, 1, 2]


@pytest.mark.parametrize("lines", [1, 8])
def test_merged_mappings_are_bounded(lines: int) -> None:
    """Eight lines stood for a hundred million entries, which took all memory."""
    names = [f"a{line}: &a{line}\n  <<: [{', '.join([f'*a{line - 1}'] * (10 if lines > 1 else 20_000))}]\n" for line in range(1, lines + 1)]
    with pytest.raises(InvalidInputError, match="copies more than"):
        parse_manifest("a0: &a0 {k0: v}\n" + "".join(names))


def test_a_merged_mapping_is_read() -> None:
    text = yaml.safe_dump(manifest()).replace("spec:\n", "spec:\n  <<: [{parallelism: 3}, {parallelism: 4}]\n")
    assert parse_manifest(text).spec.parallelism == 3
