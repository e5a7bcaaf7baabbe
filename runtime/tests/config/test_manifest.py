"""A good manifest is read completely; a bad one is refused with a sentence per problem that names field and remedy, never a secret."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from statefulspark.config import StatefulSparkJob, load_manifest, parse_manifest, validate_job
from statefulspark.config.checkpointing import CheckpointingSpec, OnCancellation
from statefulspark.config.resources import ExecutorSpec
from statefulspark.errors import InvalidInputError

MINIMAL: dict[str, Any] = {
    "apiVersion": "statefulspark.io/v1alpha1",
    "kind": "StatefulSparkJob",
    "metadata": {"name": "flights"},
    "spec": {"job": {"script": "flights.py"}, "checkpointing": {"dir": "file:///data"}},
}


def manifest(**spec: Any) -> dict[str, Any]:
    """Return the minimal manifest with these parts of the spec merged into it, one level deep."""
    document = copy.deepcopy(MINIMAL)
    for name, value in spec.items():
        known = document["spec"].get(name)
        document["spec"][name] = {**known, **value} if isinstance(known, dict) and isinstance(value, dict) else value
    return document


def refusal(document: object) -> str:
    """Return the text of the error that validating ``document`` raises."""
    with pytest.raises(InvalidInputError) as caught:
        validate_job(document)
    return str(caught.value)


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


def test_every_problem_gets_its_own_sentence() -> None:
    """All problems of all fields come in one error, each with the path as in YAML and what to change."""
    text = refusal(
        {
            **manifest(
                job={"args": ["a", ["b"]]},
                paralelism=2,
                parallelism="3",
                max_parallelism=4,
                upgradeMode="savepiont",
                executor={"memory": 4096, "slots": True},
                stateBackend={"rocksdb": {"metrics": ["block-cache-usge"], "options": {"compactionstyle": 1}}},
                restartStrategy=["x"],
                checkpointing={"interval": 10, "retention": {"count": 0}},
            ),
            "metadata": {"name": "Flights"},
        }
    )
    assert text.startswith("13 fields are wrong:\n")
    for sentence in (
        "metadata.name: has characters that are not allowed here. Name of the job: lower-case letters",
        "spec.job.args[1]: is neither text nor a number nor true or false. Put the value in quotes",
        "spec.paralelism: is not a field. Did you mean parallelism?",
        "spec.parallelism: is not a whole number. Write it without quotes",
        "spec.max_parallelism: is not a field. Did you mean maxParallelism?",
        "spec.upgradeMode: 'savepiont' is not known. Did you mean savepoint?",
        "spec.executor.memory: a byte size needs a unit. Write a number and a unit, for example 512Mi",
        "spec.executor.slots: is not a whole number.",
        "spec.stateBackend.rocksdb.metrics[0]: is not a RocksDB metric. Did you mean block-cache-usage?",
        "spec.stateBackend.rocksdb.options.compactionstyle: is not a RocksDB option. Did you mean compaction.style?",
        "spec.restartStrategy: is not a mapping.",
        "spec.checkpointing.interval: a duration needs a unit.",
        "spec.checkpointing.retention.count: 0 is out of bounds. Use 1 or more",
    ):
        assert sentence in text


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            {"parallelism": 11, "maxParallelism": 10},
            "spec.parallelism: 11 slots cannot share 10 key groups. Set it to at most maxParallelism",
        ),
        ({"parallelism": 0}, "spec.parallelism: 0 is out of bounds. Use 1 or more"),
        ({"maxParallelism": 32769}, "spec.maxParallelism: 32769 is out of bounds. Use 32768 or less"),
        (
            {"parallelism": 5, "executor": {"instances": 2, "slots": 2}},
            "spec.executor.instances: 2 executors x 2 slots are fewer than parallelism = 5",
        ),
        ({"job": {"module": "a.b"}}, "spec.job.script: set exactly one of script and module"),
        ({"savepoints": {"schedule": {}}}, "spec.savepoints.schedule.interval: set exactly one of interval and cron"),
        ({"savepoints": {"schedule": {"interval": "1h", "cron": "* * * * *"}}}, "set exactly one of interval and cron"),
        ({"savepoints": {"schedule": {"cron": "* * *"}}}, "spec.savepoints.schedule.cron: has 3 fields instead of 5"),
        (
            {"savepoints": {"schedule": {"interval": "1h"}}},
            "spec.savepoints.schedule: requires a savepoint directory. Set checkpointing.savepointDir",
        ),
        ({"upgradeMode": "savepoint"}, "spec.upgradeMode: requires a savepoint directory"),
        ({"savepointOnDeletion": True}, "spec.savepointOnDeletion: requires a savepoint directory"),
        ({"savepointNonce": 1}, "spec.savepointNonce: requires a savepoint directory"),
        (
            {"sparkConf": {"spark.executor.memory": "2g"}},
            "spec.sparkConf[spark.executor.memory]: has its own field in the spec. Set spec.executor.memory",
        ),
        ({"sparkConf": {"shuffle": 4}}, "spec.sparkConf.shuffle: has characters that are not allowed here"),
        (
            {"executor": {"memory": "1Gi", "slots": 2, "managedMemory": {"size": "512Mi"}}},
            "+ 2 x 512Mi managedMemory + 80Mi reserve = 2416Mi, which is more than memory = 1Gi. Set memory to at least 2416Mi, or lower",
        ),
        (
            {"executor": {"managedMemory": {"size": "64Mi", "fraction": 0.5}}},
            "spec.executor.managedMemory.fraction: size and fraction are mutually exclusive",
        ),
        ({"executor": {"memory": "100Mi"}}, "spec.executor.memory: 100Mi is outside of 512Mi .. 1Ti"),
        ({"stateBackend": {"type": "memory", "rocksdb": {"localDir": "/x"}}}, "spec.stateBackend.rocksdb: has no effect with type memory"),
        (
            {"stateBackend": {"type": "filesystem", "rocksdb": {"timerService": "heap"}}},
            "spec.stateBackend.rocksdb: has no effect with type filesystem. Remove it or set type: rocksdb",
        ),
        (
            {"stateBackend": {"filesystem": {"asyncSnapshots": False}}},
            "spec.stateBackend.filesystem: has no effect with type rocksdb. Remove it or set type: filesystem",
        ),
        ({"stateBackend": {"rocksdb": {"timerService": "disk"}}}, "spec.stateBackend.rocksdb.timerService: "),
        (
            {"stateBackend": {"rocksdb": {"options": {"timer-service.factory": "HEAP"}}}},
            "timer-service.factory: has its own field in the spec. Set spec.stateBackend.rocksdb.timerService",
        ),
        (
            {"stateBackend": {"rocksdb": {"memory": {"writeBufferRatio": 0.8, "highPrioPoolRatio": 0.3}}}},
            "spec.stateBackend.rocksdb.memory.highPrioPoolRatio: write buffers take 0.73 of the cache",
        ),
        ({"stateBackend": {"rocksdb": {"memory": {"writeBufferRatio": 1.0}}}}, "writeBufferRatio: 1.0 is out of bounds. Use less than 1"),
        ({"stateBackend": {"rocksdb": {"optionsFactory": "x"}}}, "spec.stateBackend.rocksdb.optionsFactory: has characters"),
        (
            {"stateBackend": {"type": "rocks"}},
            "spec.stateBackend.type: is not a state backend. Did you mean rocksdb? Or name a StateBackend",
        ),
        (
            {"stateBackend": {"type": "a:b:c"}},
            "spec.stateBackend.type: is not a state backend. Use one of: filesystem, memory, rocksdb. Or",
        ),
        (
            {"stateBackend": {"type": "shop.backend:Own", "rocksdb": {"localDir": "/x"}}},
            "spec.stateBackend.rocksdb: has no effect with type shop",
        ),
        (
            {"stateBackend": {"memory": {"maxStateSize": "1Mi"}}},
            "spec.stateBackend.memory: has no effect with type rocksdb. Remove it or set type: memory",
        ),
        (
            {"stateBackend": {"type": "memory", "memory": {"maxCheckpointSize": "4Mi"}}},
            "spec.stateBackend.memory.maxStateSize: is more than maxCheckpointSize. Lower it",
        ),
        (
            {"stateBackend": {"type": "memory", "memory": {"maxCheckpointSize": "33Mi"}}},
            "spec.stateBackend.memory.maxCheckpointSize: 33Mi is outside of 1Ki .. 32Mi",
        ),
        ({"stateBackend": {"options": {"blockSize": 1}}}, "spec.stateBackend.options.blockSize: has no dot. Choose a name such as"),
        (
            {"stateBackend": {"options": {"state.backend": "x"}}},
            "spec.stateBackend.options.state.backend: begins with state., like Flink's",
        ),
        ({"stateBackend": {"options": {"my.size": 1}}}, "spec.stateBackend.options: has no effect without a class that reads it. Set"),
        ({"stateBackend": {"type": "memory", "options": {"my.size": 1}}}, "spec.stateBackend.options: has no effect without a class"),
        (
            {"restartStrategy": {"type": "none", "fixedDelay": {"attempts": 2}}},
            "spec.restartStrategy.fixedDelay: has no effect with type none",
        ),
        (
            {"restartStrategy": {"exponentialDelay": {"initialBackoff": "2min"}}},
            "spec.restartStrategy.exponentialDelay.initialBackoff: is longer than maxBackoff",
        ),
        (
            {"checkpointing": {"maxConcurrent": 2}},
            "spec.checkpointing.maxConcurrent: one checkpoint is taken at a time",
        ),
        (
            {"checkpointing": {"dir": "s3a://bucket/x"}},
            "spec.checkpointing.dir: uses a scheme of Hadoop, which is not needed here. Write s3://",
        ),
        (
            {"checkpointing": {"storage": {"accessKeyId": "AK"}}},
            "spec.checkpointing.storage.secretAccessKey: accessKeyId and secretAccessKey must be set together",
        ),
        ({"checkpointing": {"storage": {"sessionToken": "t"}}}, "spec.checkpointing.storage.sessionToken: needs accessKeyId"),
        ({"checkpointing": {"storage": {"endpoint": "minio:9000"}}}, "spec.checkpointing.storage.endpoint: is not an http(s) URL"),
        ({"api": {"port": 70000}}, "spec.api.port: 70000 is out of bounds. Use 65535 or less"),
        ({"sparkVersion": "3.5"}, "spec.sparkVersion: has characters that are not allowed here. Version of Spark in the image"),
    ],
)
def test_single_problems(spec: dict[str, Any], sentence: str) -> None:
    """Each rule has a sentence with the field's path and a remedy."""
    assert sentence in refusal(manifest(**spec))


def test_what_is_missing_is_described() -> None:
    """The remedy for a missing field is its description."""
    text = refusal(
        {"apiVersion": "statefulspark.io/v1alpha1", "kind": "StatefulSparkJob", "metadata": {}, "spec": {"job": {"script": "x"}}}
    )
    assert "metadata.name: is missing. Add it: Name of the job" in text
    assert "spec.checkpointing: is missing. Add it: Checkpoints of the job" in text


def test_secrets_stay_out_of_texts() -> None:
    """Neither repr nor dump nor errors show a secret, whatever else is wrong beside it."""
    secret = "hunter2hunter2"
    storage = {"accessKeyId": "AKIAEXAMPLE", "secretAccessKey": secret, "sessionToken": secret}
    job = validate_job(
        manifest(checkpointing={"storage": storage}, sparkConf={"spark.hadoop.fs.s3a.secret.key": secret}, job={"args": [secret]})
    )
    assert job.spec.checkpointing.storage.secret_access_key is not None
    assert job.spec.checkpointing.storage.secret_access_key.get_secret_value() == secret
    assert secret not in repr(job)
    assert secret not in str(job.to_manifest()["spec"]["checkpointing"])
    for broken in (
        {**storage, "accessKeyId": None},
        {**storage, "secretAccesKey": secret},
        {**storage, "secretAccessKey": [secret]},
        {**storage, "endpoint": f"http://u:{secret}@minio"},
        {**storage, "credentialsSecret": f"Not valid {secret}"},
        {**storage, "pathStyle": secret},
    ):
        with pytest.raises(InvalidInputError) as caught:
            validate_job(manifest(checkpointing={"storage": broken}))
        assert secret not in str(caught.value)
        assert caught.value.__cause__ is None


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


def test_models_are_frozen_and_take_python_names() -> None:
    """Code builds models by their Python names; only manifests insist on YAML's."""
    spec = CheckpointingSpec(dir="file:///x", min_pause=0)
    with pytest.raises(ValueError, match="frozen"):
        spec.min_pause = 5  # type: ignore[misc]  # the point of the test


def models() -> list[type[BaseModel]]:
    """Return every model reachable from the manifest."""
    found: list[type[BaseModel]] = []
    waiting: list[type[BaseModel]] = [StatefulSparkJob]
    while waiting:
        model = waiting.pop()
        found.append(model)
        for field in model.model_fields.values():
            kinds = [field.annotation, *getattr(field.annotation, "__args__", ())]
            waiting += [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel) and kind not in found]
    return found


@pytest.mark.parametrize("model", models(), ids=lambda model: model.__name__)
def test_every_field_is_described_and_says_what_a_change_costs(model: type[BaseModel]) -> None:
    """The custom resource definition, its documentation and the operator's plan are generated from this."""
    for name, field in model.model_fields.items():
        assert field.description, name
        assert field.description.endswith("."), name
        if model.__name__ not in {"StatefulSparkJob", "Metadata"}:
            assert isinstance(field.json_schema_extra, dict), name
            assert field.json_schema_extra["change"] in {"ignore", "scale", "upgrade", "reject"}, name


def test_what_a_change_costs() -> None:
    """The fields whose cost is a promise."""
    fields = type(validate_job(MINIMAL).spec).model_fields
    costs = {name: field.json_schema_extra["change"] for name, field in fields.items() if isinstance(field.json_schema_extra, dict)}
    assert costs["parallelism"] == "scale"
    assert costs["max_parallelism"] == "reject"
    assert costs["image"] == costs["job"] == costs["spark_conf"] == costs["restart_nonce"] == "upgrade"
    assert costs["state"] == costs["savepoints"] == costs["upgrade_mode"] == "ignore"


def test_the_schema_has_yaml_names_and_patterns() -> None:
    """What generates the custom resource definition sees camelCase, text for sizes (or the number 0) and bounds for numbers."""
    definitions = StatefulSparkJob.model_json_schema(by_alias=True, mode="serialization")["$defs"]
    executor = definitions["ExecutorSpec"]["properties"]
    size = next(each for each in executor["memory"]["anyOf"] if each.get("type") != "null")
    assert size["x-kubernetes-int-or-string"] is True
    assert size["maximum"] == 0
    assert executor["slots"]["minimum"] == 1
    assert "exchangeTasks" in executor
    assert definitions["CheckpointingSpec"]["properties"]["interval"]["default"] == "1m"


@pytest.mark.parametrize("url", ["s3://bucket/spark", "hdfs://name/spark", "/mnt/shared"])
def test_sparks_location_is_a_mounted_folder(url: str) -> None:
    """What the driver cannot read as files would be in no checkpoint, so it is refused before anything starts."""
    document = copy.deepcopy(MINIMAL)
    document["spec"]["checkpointing"]["sparkLocation"] = url
    with pytest.raises(InvalidInputError, match=r"spec\.checkpointing\.sparkLocation"):
        validate_job(document)
    document["spec"]["checkpointing"]["sparkLocation"] = "file:///mnt/shared/"
    assert validate_job(document).spec.checkpointing.spark_location == "file:///mnt/shared"
