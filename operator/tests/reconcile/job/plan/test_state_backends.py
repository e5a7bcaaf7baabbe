"""A job without a type gets the operator's default once, and keeps it: a new default never moves a job that has state."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime.tests.depth import examples

from statefulspark.config.state_backend import StateBackendType
from statefulspark_operator.handlers.admission import review
from statefulspark_operator.reconcile.state_backends import with_state_backend
from tests.manifests import defaults, manifest
from tests.reconcile.cluster import JobWorld
from tests.reconcile.job.plan.world import OperatorDiedError, World

__all__ = ["defaults"]

pytestmark = pytest.mark.usefixtures("defaults")

MEMORY, FILESYSTEM, ROCKSDB = StateBackendType.MEMORY, StateBackendType.FILESYSTEM, StateBackendType.ROCKSDB


def backends(world: World) -> list[str]:
    """The types of the specs that children were made from, each once, in order."""
    types = [spec.state_backend.type for spec in world.applied if "type" in spec.state_backend.model_fields_set]
    assert len(types) == len(world.applied), "the driver's manifest always names its state backend"
    return list(dict.fromkeys(types))


def running(default: StateBackendType, **spec: Any) -> World:
    world = World(manifest(**spec), default_state_backend=default)
    world.settle()
    assert world.status.lifecycle_state == "STABLE"
    return world


@pytest.mark.parametrize("default", list(StateBackendType))
@pytest.mark.parametrize(
    ("given_type", "expected"), [(None, None), ("rocksdb", "rocksdb"), ("memory", "memory"), ("shop.backend:Own", "shop.backend:Own")]
)
def test_the_default_is_for_jobs_that_name_none(default: StateBackendType, given_type: str | None, expected: str | None) -> None:
    """A job's own type wins."""
    world = running(default, **({"stateBackend": {"type": given_type}} if given_type else {}))
    assert backends(world) == [expected or default.value]


@pytest.mark.parametrize("spec", [{}, {"stateBackend": {}}])
def test_a_new_default_is_no_change_of_a_job(spec: dict[str, Any]) -> None:
    """Nothing is stopped or written; an upgrade for another reason keeps the backend, and so does a rescale and a lost driver."""
    world = running(MEMORY, **spec)
    writes, generation = world.status_writes, world.status.reconciliation
    world.default_state_backend = ROCKSDB
    for _ in range(3):
        world.reconcile()
    assert (world.status_writes, world.status.reconciliation, world.pods_made) == (writes, generation, 1)
    world.change(image="shop/counts:2")
    world.settle()
    world.change(parallelism=4)
    world.settle()
    world.pod = None
    world.settle()
    assert world.images[:2] == ["shop/counts:1", "shop/counts:2"]
    assert world.pods_made > 2
    assert backends(world) == ["memory"]


def test_writing_the_type_down_is_no_change_and_another_one_is_an_upgrade() -> None:
    """Either way round; removing it from the spec keeps what runs."""
    world = running(MEMORY)
    world.change(stateBackend={"type": "memory"})
    world.settle()
    world.change(stateBackend={})
    world.settle()
    assert world.pods_made == 1
    world.change(stateBackend={"type": "filesystem"})
    world.settle()
    assert (world.pods_made, backends(world)) == (2, ["memory", "filesystem"])
    world.change(stateBackend={})
    world.settle()
    assert (world.pods_made, backends(world)) == (2, ["memory", "filesystem"])


def test_a_job_of_an_older_operator_keeps_rocksdb() -> None:
    """Its status may hold a spec without a type, which meant rocksdb, whatever the default is now."""
    world = running(ROCKSDB)
    reconciliation = world.status.reconciliation
    assert reconciliation is not None
    texts = {}
    for name in ("last_reconciled_spec", "last_stable_spec"):
        stored = json.loads(getattr(reconciliation, name))
        assert stored.pop("stateBackend") == {"type": "rocksdb"}
        texts[name] = json.dumps(stored, sort_keys=True, separators=(",", ":"))
    world.status = world.status.model_copy(update={"reconciliation": reconciliation.model_copy(update=texts)})
    world.default_state_backend = MEMORY
    world.settle()
    assert world.pods_made == 1, "writing the type down is no change"
    world.change(image="bad")
    world.broken_images = frozenset({"bad"})
    world.settle()
    assert world.images == ["shop/counts:1", "bad", "shop/counts:1"]
    assert backends(world) == ["rocksdb"]


def test_a_default_that_does_not_fit_the_job_is_refused_by_field() -> None:
    """Where the first start is planned and by the webhook; RocksDB's options mean RocksDB."""
    spec = manifest(stateBackend={"rocksdb": {"localDir": "/data"}})
    world = World(spec, default_state_backend=MEMORY)
    world.settle(rounds=5)
    sentence = "spec.stateBackend.rocksdb: has no effect with type memory. Remove it or set type: rocksdb"
    assert world.status.error is not None
    assert world.status.error.message == sentence
    assert world.pods_made == 0
    request = {"uid": "u", "operation": "CREATE", "object": _document(spec)}
    assert review({"request": request}, default_backend=MEMORY)["response"]["status"]["message"] == sentence
    assert review({"request": request}, default_backend=ROCKSDB)["response"]["allowed"]
    ran = {"reconciliation": {"lastReconciledSpec": json.dumps({"stateBackend": {"type": "rocksdb"}})}}
    changed = {"uid": "u", "operation": "UPDATE", "object": {**_document(spec), "status": ran}, "oldObject": _document(manifest())}
    assert review({"request": changed}, default_backend=MEMORY)["response"]["allowed"], "a job that has run keeps its backend"


def _document(spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": "counts", "namespace": "shop"}
    return {"apiVersion": "statefulspark.io/v1alpha1", "kind": "StatefulSparkJob", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"stateBackend": null}', '{"stateBackend": {"type": "unheard-of"}}', '{"stateBackend": 3}', "[" * 100_000],
)
def test_a_status_that_cannot_be_read_leaves_the_default(text: str) -> None:
    """Another version of the operator, or a person, has written it."""
    job = {"spec": {}, "status": {"reconciliation": {"lastReconciledSpec": text}}}
    assert with_state_backend(job, FILESYSTEM)["spec"] == {"stateBackend": {"type": "filesystem"}}
    assert job["spec"] == {}, "the object itself is left alone"


@pytest.mark.parametrize("spec", [None, [], {"stateBackend": None}, {"stateBackend": "memory"}, {"stateBackend": {"type": None}}])
def test_what_is_no_spec_is_left_to_validation(spec: Any) -> None:
    job = {"spec": spec}
    assert with_state_backend(job, MEMORY) == job


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [{}, {"image": "shop/counts:2"}, {"image": "bad"}, {"parallelism": 3}, {"state": "suspended"}, {"state": "running"}]
        ),
        st.sampled_from(list(StateBackendType)),
        st.integers(0, 10),
        st.one_of(st.none(), st.integers(0, 5)),
        st.booleans(),
    ),
    max_size=8,
)


@settings(max_examples=examples(15, 100), deadline=None)
@given(STEPS)
def test_whenever_the_default_changes_a_job_has_one_backend_for_life(steps: list[Any]) -> None:
    """Operators with other defaults take over between any two writes: a job that has ever had a driver keeps what that was given."""
    world = World(manifest(), broken_images=frozenset({"bad"}))
    for change, default, rounds, die_after, lose in steps:
        world.change(**change)
        world.default_state_backend = default
        world.die_after = die_after
        for _ in range(rounds):
            with contextlib.suppress(OperatorDiedError):
                world.reconcile()
            world.tick()
        if lose:
            world.pod = None
    world.die_after = None
    world.settle()
    assert len(backends(world)) <= 1


def test_the_manifest_of_the_driver_has_the_type_with_real_objects() -> None:
    """The setting reaches the ConfigMap that the driver reads, and another operator's does not."""
    world = JobWorld(manifest())
    object.__setattr__(world.context, "default_state_backend", FILESYSTEM)

    async def run() -> None:
        for _ in range(10):
            await world.reconcile()
            world.tick()
        object.__setattr__(world.context, "default_state_backend", ROCKSDB)
        world.change(manifest(image="shop/counts:2"))
        for _ in range(20):
            await world.reconcile()
            world.tick()

    asyncio.run(run())
    rendered = yaml.safe_load(world.cluster.objects["ConfigMap", "counts-config"]["data"]["job.yaml"])["spec"]
    assert (rendered["stateBackend"], rendered["image"]) == ({"type": "filesystem"}, "shop/counts:2")
