"""The way of a spec through the operator: parsed once for each generation, passed on as a model, rendered at the edge."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import yaml

from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark.config.kubernetes.manifest import validate_on_kubernetes
from statefulspark_operator.reconcile import specs
from tests.manifests import manifest
from tests.reconcile.cluster import JobWorld


def test_a_spec_is_parsed_once_and_reaches_the_driver_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first reconciliation to a running driver, and for a change."""
    parsed: list[Any] = []

    def counting(document: Any) -> Any:
        parsed.append(document["metadata"]["generation"])
        return validate_on_kubernetes(document)

    def refuse(*_: Any, **__: Any) -> StatefulSparkJobSpec:
        raise AssertionError("a spec is parsed that was parsed before")

    monkeypatch.setattr(specs, "validate_on_kubernetes", counting)
    monkeypatch.setattr(StatefulSparkJobSpec, "model_validate", refuse)
    world = JobWorld(manifest(stateBackend={"rocksdb": {"memory": {"writeBufferRatio": 0.3}}}))

    async def run() -> None:
        for _ in range(10):
            await world.reconcile()
            world.tick()
        assert world.pod_age > 2
        world.change(manifest(stateBackend={"rocksdb": {"memory": {"writeBufferRatio": 0.4}}}, parallelism=3))
        for _ in range(20):
            await world.reconcile()
            world.tick()

    asyncio.run(run())
    assert parsed == [1, 2]
    rendered = yaml.safe_load(world.cluster.objects["ConfigMap", "counts-config"]["data"]["job.yaml"])["spec"]
    assert rendered["stateBackend"] == {"type": "rocksdb", "rocksdb": {"memory": {"writeBufferRatio": 0.4}}}
    assert (rendered["parallelism"], rendered["job"]["script"]) == (3, "/opt/job/counts.py")
