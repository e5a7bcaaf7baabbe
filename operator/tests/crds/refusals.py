"""What is refused, by which sentence: one table for the small server of these tests and for a real one.

A spec is merged into an object that is accepted, see `with_spec`; a sentence is a part of the rule's message.
"""

from __future__ import annotations

import copy
from typing import Any

GOOD: dict[str, Any] = {
    "apiVersion": "statefulspark.io/v1alpha1",
    "kind": "StatefulSparkJob",
    "metadata": {"name": "flights"},
    "spec": {"job": {"script": "flights.py"}, "checkpointing": {"dir": "s3://bucket/x"}},
}
SNAPSHOT: dict[str, Any] = {
    "apiVersion": "statefulspark.io/v1alpha1",
    "kind": "StateSnapshot",
    "metadata": {"name": "before-upgrade"},
    "spec": {"jobReference": {"name": "flights"}, "savepoint": {}},
}


def with_spec(document: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """Merge parts of a spec into ``document``, one level deep; None removes."""
    merged = copy.deepcopy(document)
    for name, value in spec.items():
        known = merged["spec"].get(name)
        merged["spec"][name] = {**known, **value} if isinstance(known, dict) and isinstance(value, dict) else value
    merged["spec"] = {name: value for name, value in merged["spec"].items() if value is not None}
    return merged


BAD_JOBS: list[tuple[dict[str, Any], str]] = [
    ({"parallelism": 11, "maxParallelism": 10}, "parallelism: must not exceed maxParallelism"),
    ({"parallelism": 5, "executor": {"instances": 2, "slots": 2}}, "executor.instances: instances * slots is less than parallelism"),
    ({"job": {"script": "a.py", "module": "a.b"}}, "script: set exactly one"),
    ({"sparkConf": {"spark.executor.memory": "2g"}}, "sparkConf: contains a setting that has its own field"),
    ({"sparkConf": {"spark.hadoop.fs.s3a.Access.Key": "AKIA"}}, "sparkConf: contains a name that Spark treats as a secret"),
    ({"sparkConf": {"shuffle": "2"}}, "a name does not match"),
    ({"upgradeMode": "savepoint"}, "upgradeMode: requires a savepoint directory"),
    ({"savepoints": {"schedule": {"interval": "1h"}}}, "savepoints.schedule: requires a savepoint directory"),
    ({"savepointOnDeletion": True}, "savepointOnDeletion: requires a savepoint directory"),
    ({"savepointNonce": 1}, "savepointNonce: requires a savepoint directory"),
    ({"checkpointing": {"savepointDir": "s3://bucket/s"}, "savepoints": {"schedule": {}}}, "interval: set exactly one"),
    ({"checkpointing": {"maxConcurrent": 2}}, "maxConcurrent: one checkpoint"),
    ({"checkpointing": {"retention": {"maxAge": "1h"}}}, "maxAge: has no effect if count is 1"),
    ({"checkpointing": {"storage": {"caBundleFrom": {}}}}, "secretKeyRef: set exactly one of"),
    ({"checkpointing": {"storage": {"s3": {"encryption": {"type": "SSE-S3", "kmsKeyId": "k"}}}}}, "kmsKeyId: requires SSE-KMS"),
    ({"checkpointing": {"storage": {"s3": {"encryption": {"type": "SSE-S3", "bucketKey": True}}}}}, "bucketKey: requires SSE-KMS"),
    ({"checkpointing": {"storage": {"s3": {"storageClass": "GLACIER"}}}}, "storageClass: objects of an archive class cannot"),
    (
        {"checkpointing": {"storage": {"s3": {"savepointStorageClass": "DEEP_ARCHIVE"}}}},
        "savepointStorageClass: objects of an archive class cannot",
    ),
    ({"checkpointing": {"storage": {"s3": {"tags": {"team": "a"}, "kindTag": "team"}}}}, "kindTag: tags contains the same key"),
    ({"checkpointing": {"storage": {"s3": {"tags": {"AWS:x": "a"}}}}}, "tags: a key is not one that S3 takes"),
    ({"executor": {"managedMemory": {"size": "64Mi", "fraction": 0.5}}}, "fraction: size and fraction are mutually exclusive"),
    ({"stateBackend": {"rocksdb": {"options": {"compactionstyle": "x"}}}}, "options: contains a name that is not"),
    ({"stateBackend": {"options": {"size": 1}, "rocksdb": {"optionsFactory": "a:B"}}}, "options: contains a name without a dot"),
    ({"stateBackend": {"options": {"my.size": 1}}}, "options: has no effect without a class that reads it"),
    ({"stateBackend": {"rocksdb": {"memory": {"writeBufferRatio": 0.8, "highPrioPoolRatio": 0.3}}}}, "highPrioPoolRatio"),
    ({"initialSavepointPath": "s3://bucket/s", "initialSnapshot": {"name": "x"}}, "initialSnapshot: initialSavepointPath and"),
    ({"claimMode": "CLAIM"}, "claimMode: CLAIM requires initialSavepointPath"),
    ({"claimMode": "CLAIM", "initialSnapshot": {"name": "x"}}, "claimMode: CLAIM requires initialSavepointPath"),
]
"""Specs of jobs that exactly one CEL rule refuses."""

OWN_WORDS = {
    "storageClass: objects of an archive class cannot": "storageClass: objects of the class GLACIER cannot be read at once",
    "savepointStorageClass: objects of an archive class cannot": "savepointStorageClass: objects of the class DEEP_ARCHIVE cannot be read at once",
    "tags: a key is not one that S3 takes": "tags: a key starts with aws:, which AWS reserves",
    "parallelism: must not exceed maxParallelism": "spec.parallelism: 11 slots cannot share 10 key groups",
    "executor.instances: instances * slots is less than parallelism": "spec.executor.instances: 2 executors x 2 slots are fewer than parallelism = 5",
    "sparkConf: contains a setting that has its own field": "spec.sparkConf[spark.executor.memory]: has its own field in the spec",
    "sparkConf: contains a name that Spark treats as a secret": "spec.sparkConf[spark.hadoop.fs.s3a.Access.Key]: is a secret by Spark's rules",
    "a name does not match": "spec.sparkConf.shuffle: has characters that are not allowed",
    "options: contains a name that is not": "spec.stateBackend.rocksdb.options.compactionstyle: is not a RocksDB option",
    "options: contains a name without a dot": "spec.stateBackend.options.size: has no dot. Choose a name such as my.block-size",
    "highPrioPoolRatio": "highPrioPoolRatio: write buffers take 0.73 of the cache",
}
"""What operator and webhook say instead of the rule's sentence, where they can name the numbers; otherwise they say the same."""

BAD_SNAPSHOTS: list[tuple[dict[str, Any], str]] = [
    ({"savepoint": None}, "savepoint: set exactly one"),
    ({"checkpoint": {}}, "savepoint: set exactly one"),
    ({"savepoint": {"alreadyExists": True}}, "path: is required for an existing savepoint"),
    ({"savepoint": {"alreadyExists": True, "path": "s3://bucket/x", "format": "canonical"}}, "format: is for new savepoints"),
]
"""The same for snapshots."""

CHANGES: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any], str]] = [
    (SNAPSHOT, {}, {"jobReference": {"name": "other"}}, "jobReference: is immutable"),
    (SNAPSHOT, {}, {"savepoint": {"path": "s3://bucket/x"}}, "savepoint: only disposeOnDelete can change"),
    (SNAPSHOT, {}, {"savepoint": {"format": "canonical"}}, "savepoint: only disposeOnDelete can change"),
    (SNAPSHOT, {}, {"savepoint": {"format": "native"}}, ""),
    (
        SNAPSHOT,
        {"savepoint": {"path": "s3://bucket/x"}},
        {"savepoint": {"path": "s3://bucket/y"}},
        "savepoint: only disposeOnDelete can change",
    ),
    (SNAPSHOT, {}, {"savepoint": None, "checkpoint": {}}, "savepoint: only disposeOnDelete can change"),
    (SNAPSHOT, {}, {"savepoint": {"disposeOnDelete": True}, "backoffLimit": 1}, ""),
    (SNAPSHOT, {"savepoint": None, "checkpoint": {}}, {"checkpoint": {"path": "s3://bucket/x"}}, "checkpoint: is immutable"),
    (GOOD, {"maxParallelism": 64}, {"maxParallelism": 128}, "spec.maxParallelism: cannot change during the lifetime of the job's state"),
    (GOOD, {"maxParallelism": 64}, {"maxParallelism": None}, "spec.maxParallelism: cannot change during the lifetime of the job's state"),
    (GOOD, {}, {"maxParallelism": 64}, "spec.maxParallelism: cannot change during the lifetime of the job's state"),
    (GOOD, {}, {"maxParallelism": 128}, ""),
    (GOOD, {"maxParallelism": 64}, {"parallelism": 7, "maxParallelism": 64}, ""),
    (GOOD, {}, {"parallelism": 7}, ""),
]
"""Updates: the object, what is merged into it first and then, and the sentence of the rule; empty where the update is accepted."""

BAD_VALUES: list[tuple[dict[str, Any], str]] = [
    ({"checkpointing": {"dir": "s3://b/x", "mode": "at-most-once"}}, "spec.checkpointing.mode"),
    ({"checkpointing": {"dir": "s3://b/x", "storage": {"s3": {"checksum": "MD5"}}}}, "spec.checkpointing.storage.s3.checksum"),
    ({"checkpointing": {"dir": "s3://b/x", "storage": {"s3": {"storageClass": "standard"}}}}, "spec.checkpointing.storage.s3.storageClass"),
    ({"checkpointing": {"dir": "s3://b/x", "storage": {"s3": {"encryption": {}}}}}, "spec.checkpointing.storage.s3.encryption.type"),
    ({"checkpointing": {"dir": "s3://b/x", "storage": {"s3": {"kindTag": ""}}}}, "spec.checkpointing.storage.s3.kindTag"),
    (
        {"checkpointing": {"dir": "s3://b/x", "storage": {"s3": {"tags": {str(i): "" for i in range(10)}}}}},
        "spec.checkpointing.storage.s3.tags",
    ),
    ({"parallelism": 0}, "spec.parallelism"),
    ({"parallelism": "2"}, "spec.parallelism"),
    ({"maxParallelism": 32769}, "spec.maxParallelism"),
    ({"executor": {"memory": "lots"}}, "spec.executor.memory"),
    ({"executor": {"memory": 4096}}, "spec.executor.memory"),
    ({"executor": {"cores": "1 core"}}, "spec.executor.cores"),
    ({"upgradeMode": "savepiont"}, "spec.upgradeMode"),
    ({"stateBackend": {"rocksdb": {"memory": {"writeBufferRatio": 1}}}}, "spec.stateBackend.rocksdb.memory.writeBufferRatio"),
    ({"stateBackend": {"type": "rocks"}}, "spec.stateBackend.type"),
    ({"stateBackend": {"type": "shop.backend:"}}, "spec.stateBackend.type"),
    ({"stateBackend": {"rocksdb": {"metrics": ["nonsense"]}}}, "spec.stateBackend.rocksdb.metrics"),
    ({"checkpointing": {"dir": "/data"}}, "spec.checkpointing.dir"),
    ({"checkpointing": {"dir": "s3://bucket/x", "interval": 10}}, "spec.checkpointing.interval"),
    ({"checkpointing": {}}, "spec.checkpointing.dir"),
    ({"serviceAccount": "Not a name"}, "spec.serviceAccount"),
    ({"restartStrategy": {"exponentialDelay": {"jitterFactor": 2}}}, "spec.restartStrategy.exponentialDelay.jitterFactor"),
]
"""Specs of jobs that the schema refuses without any rule, and the field that is named."""

BAD_FORMATS: list[tuple[dict[str, Any], str, str]] = [
    ({"executor": {"memory": "lots"}}, "spec.executor.memory", "expected a size with its unit, such as 512Mi or 4Gi"),
    ({"executor": {"memory": 4096}}, "spec.executor.memory", "expected a size with its unit, such as 512Mi or 4Gi"),
    ({"driver": {"cores": "1 core"}}, "spec.driver.cores", "expected a number of cores, such as 2, 0.5 or 500m"),
    ({"checkpointing": {"dir": "s3://b/x", "interval": 10}}, "spec.checkpointing.interval", "expected a duration such as 30s or 1h30m"),
    ({"upgradeTimeout": "5 parsecs"}, "spec.upgradeTimeout", "expected a duration such as 30s or 1h30m"),
    ({"checkpointing": {"dir": "/data"}}, "spec.checkpointing.dir", "expected a URL such as s3://bucket/folder"),
    ({"serviceAccount": "Not a name"}, "spec.serviceAccount", "expected a name of lower-case letters, digits, dots and dashes"),
    ({"imagePullSecrets": ["a", "B"]}, "spec.imagePullSecrets[1]", "expected a name of lower-case letters, digits, dots and dashes"),
    ({"sparkVersion": "4.2"}, "spec.sparkVersion", "expected 4.3 or one of its releases, such as 4.3.1"),
    ({"job": {"module": "shop/orders"}}, "spec.job.module", "expected a module such as shop.orders"),
    ({"job": {"script": "a.py", "entrypoint": "a b"}}, "spec.job.entrypoint", "expected the name of a Python function"),
    ({"stateBackend": {"type": "rocks"}}, "spec.stateBackend.type", "expected memory, filesystem, rocksdb or module:Class"),
    ({"stateBackend": {"rocksdb": {"optionsFactory": "Fast"}}}, "spec.stateBackend.rocksdb.optionsFactory", "expected module:Class"),
    (
        {"checkpointing": {"dir": "s3://b/x", "storage": {"s3": {"storageClass": "standard"}}}},
        "spec.checkpointing.storage.s3.storageClass",
        "expected a storage class such as STANDARD_IA",
    ),
    (
        {"checkpointing": {"dir": "s3://b/x", "storage": {"s3": {"encryption": {"type": "SSE-KMS", "kmsKeyId": "a key"}}}}},
        "spec.checkpointing.storage.s3.encryption.kmsKeyId",
        "expected the ID, ARN or alias of a KMS key",
    ),
    (
        {"checkpointing": {"dir": "s3://b/x", "storage": {"caBundleFrom": {"secretKeyRef": {"name": "ca", "key": "a/b"}}}}},
        "spec.checkpointing.storage.caBundleFrom.secretKeyRef.key",
        "expected a key such as ca.crt",
    ),
]
"""Specs of jobs with text that a field cannot take: the field, and the sentence that says what it takes."""
