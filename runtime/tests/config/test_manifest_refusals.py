"""A bad manifest is refused with a sentence per problem that names field and remedy, never a secret."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from statefulspark.config.manifest import parse_manifest, validate_job
from statefulspark.errors import InvalidInputError

from .manifests import MINIMAL, manifest, refusal


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
        ({"stateBackend": {"type": "jobmanager"}}, "spec.stateBackend.type: is not a state backend. Flink's jobmanager is memory here"),
        ({"stateBackend": {"type": "hashmap"}}, "spec.stateBackend.type: is not a state backend. Flink's hashmap is filesystem here"),
        (
            {"checkpointing": {"dir": "./state"}},
            "spec.checkpointing.dir: is not a storage URL: a relative directory would be another one for each process. Write file:///",
        ),
        (
            {"checkpointing": {"dir": "file://state"}},
            "spec.checkpointing.dir: is not an absolute path: a relative directory would be another one for each process. Write file:///",
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
            {"checkpointing": {"retention": {"maxAge": "7d"}}},
            "spec.checkpointing.retention.maxAge: has no effect if count is 1, because the newest checkpoint is always retained. Set count to 2",
        ),
        (
            {"checkpointing": {"retention": {"maxAge": "0", "count": 2}}},
            "spec.checkpointing.retention.maxAge: 0s is shorter than 1s",
        ),
        (
            {"checkpointing": {"maxConcurrent": 2}},
            "spec.checkpointing.maxConcurrent: one checkpoint is taken at a time",
        ),
        (
            {"checkpointing": {"dir": "s3a://bucket/x"}},
            "spec.checkpointing.dir: uses a scheme of another program. Write s3:// instead",
        ),
        (
            {"checkpointing": {"dir": "wasbs://c@account.blob.core.windows.net/x"}},
            "spec.checkpointing.dir: must not contain credentials",
        ),
        (
            {"checkpointing": {"dir": "abfss://states@evil.example.com/x"}},
            "spec.checkpointing.dir: names no container of an account. Write abfss://container@account.dfs.core.windows.net/prefix",
        ),
        (
            {"checkpointing": {"dir": "abfss://states@account.dfs.core.windows.net.evil.com/x"}},
            "spec.checkpointing.dir: names no container of an account",
        ),
        (
            {"checkpointing": {"dir": "hdfs:///states"}},
            "spec.checkpointing.dir: names no NameNode or name service. Write hdfs://namenode:8020/folder, or hdfs://nameservice/folder",
        ),
        (
            {"checkpointing": {"dir": "hdfs://namenode:8020/a%3Ab"}},
            "spec.checkpointing.dir: contains a colon, which HDFS does not allow in names",
        ),
        (
            {"checkpointing": {"dir": "webhdfs://namenode:9870/x"}},
            "spec.checkpointing.dir: uses a scheme of another program. Write hdfs:// instead",
        ),
        (
            {"checkpointing": {"dir": "gs://key:secret@bucket/x"}},
            "spec.checkpointing.dir: must not contain credentials",
        ),
        (
            {"checkpointing": {"dir": "ftp://host/x"}},
            "spec.checkpointing.dir: is not a storage URL. Write s3://bucket/prefix, gs://bucket/prefix",
        ),
        (
            {"checkpointing": {"storage": {"accessKeyId": "AK"}}},
            "spec.checkpointing.storage.secretAccessKey: accessKeyId and secretAccessKey must be set together",
        ),
        ({"checkpointing": {"storage": {"sessionToken": "t"}}}, "spec.checkpointing.storage.sessionToken: needs accessKeyId"),
        ({"checkpointing": {"storage": {"endpoint": "minio:9000"}}}, "spec.checkpointing.storage.endpoint: is not an http(s) URL"),
        *(
            ({"checkpointing": {"storage": {"endpoint": f"http://{host}"}}}, "spec.checkpointing.storage.endpoint: has a host or port")
            for host in ("①⑥⑨.②⑤④.①⑥⑨.②⑤④", "%31%36%39.254.169.254", "169。254。169。254", "minio:-1", "minio:999999")
        ),
        *(({"checkpointing": {"dir": f"file:///data/{name}"}}, "spec.checkpointing.dir: contains a control") for name in ("%00", "a%0Ab")),
        ({"api": {"port": 70000}}, "spec.api.port: 70000 is out of bounds. Use 65535 or less"),
        (
            {"sparkVersion": "3.5"},
            "spec.sparkVersion: has characters that are not allowed here. Version of Spark in the image: 4.3, or one of its releases, such as 4.3.1",
        ),
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


@pytest.mark.parametrize("url", ["s3://bucket/spark", "hdfs://name/spark", "/mnt/shared"])
def test_sparks_location_is_a_mounted_folder(url: str) -> None:
    """What the driver cannot read as files would be in no checkpoint, so it is refused before anything starts."""
    document = copy.deepcopy(MINIMAL)
    document["spec"]["checkpointing"]["sparkLocation"] = url
    with pytest.raises(InvalidInputError, match=r"spec\.checkpointing\.sparkLocation"):
        validate_job(document)
    document["spec"]["checkpointing"]["sparkLocation"] = "file:///mnt/shared/"
    assert validate_job(document).spec.checkpointing.spark_location == "file:///mnt/shared"


def test_many_problems_are_cut_and_aliases_of_yaml_do_not_multiply() -> None:
    """A file of a few hundred bytes can stand for a billion values, and each wrong field is a sentence."""
    wide = "\n".join(f"  f{number}: 1" for number in range(3000))
    with pytest.raises(InvalidInputError) as caught:
        parse_manifest(f"apiVersion: statefulspark.io/v1alpha1\nkind: StatefulSparkJob\nspec:\n{wide}\n")
    assert len(str(caught.value).encode()) <= 4096
    levels = "\n".join(f"  l{level}: &l{level} [{', '.join([f'*l{level - 1}'] * 10)}]" for level in range(1, 10))
    with pytest.raises(InvalidInputError, match="more than 50000 values"):
        parse_manifest(f"apiVersion: statefulspark.io/v1alpha1\nkind: StatefulSparkJob\nspec:\n  l0: &l0 [1, 1]\n{levels}\n")
