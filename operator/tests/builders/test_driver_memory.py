"""The driver's pod has the memory that the runtime's own calculation gives it."""

from __future__ import annotations

from typing import Any

import pytest

from statefulspark.config.manifest import validate_job
from statefulspark_operator.builders.identities import JobIdentity
from statefulspark_operator.builders.pods import driver_pod

_IDENTITY = JobIdentity(name="counts", namespace="shop", uid="u-1", generation=1)


@pytest.mark.parametrize(
    ("driver", "mebibytes"),
    [
        ({}, 2048),
        ({"memory": "3Gi"}, 3072),
        ({"memoryParts": {"heap": "1Gi", "python": "400Mi", "reserve": "40Mi"}}, 1024 + 384 + 400 + 40),
    ],
)
def test_request_and_limit_are_the_whole_pod(driver: dict[str, Any], mebibytes: int) -> None:
    """Given as a whole or as parts: request = limit = what Spark's heap and overhead add up to."""
    job = validate_job(
        {
            "apiVersion": "statefulspark.io/v1alpha1",
            "kind": "StatefulSparkJob",
            "metadata": {"name": "counts"},
            "spec": {"job": {"module": "shop"}, "image": "x:1", "driver": driver, "checkpointing": {"dir": "s3://bucket/c"}},
        }
    )
    pod = driver_pod(_IDENTITY, job.spec, image="x:1", account="counts-driver", key_id="k-1")
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["requests"]["memory"] == container["resources"]["limits"]["memory"] == str(mebibytes << 20)
    conf = job.spec.memory_plan().spark_conf()
    assert sum(int(conf[f"spark.driver.{name}"].removesuffix("m")) for name in ("memory", "memoryOverhead")) == mebibytes
