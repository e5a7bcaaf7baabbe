"""No object, however absurd, and no failing call stops the operator or a job: whole looks against a cluster in memory."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime.tests.depth import examples

from statefulspark.errors import ConflictError, StatefulSparkError, UnavailableError
from statefulspark_operator.handlers.admission import review
from tests.manifests import manifest
from tests.reconcile.cluster import JobWorld

ROOT = Path(__file__).resolve().parents[3]
_VERSION = yaml.safe_load((ROOT / "crds" / "statefulsparkjobs.yaml").read_text())["spec"]["versions"][0]
_SCHEMA = _VERSION["schema"]["openAPIV3Schema"]["properties"]

Absurd = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(-2, 300) | st.floats(allow_nan=False) | st.text(max_size=12)
    | st.sampled_from(["", "10s", "1Gi", "s3://bucket/x", "../..", "a" * 300, "*/5 * * * *", "9" * 40, "-1", "\u0000", "NaN"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "spec", "metadata", "containers", "labels", "x", ""]), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
"""Anything that JSON can say."""


def paths(schema: dict[str, Any], at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Every field of a schema."""
    for name, each in schema.get("properties", {}).items():
        yield (*at, name), each
        yield from paths(each, (*at, name))


def by_schema(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that the schema allows, mostly; its patterns and rules are left to luck."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kind = schema.get("type")
    if kind == "integer":
        return st.integers(schema.get("minimum", -(1 << 40)), schema.get("maximum", 1 << 40))
    if kind == "number":
        return st.floats(schema.get("minimum", -1e9), schema.get("maximum", 1e9), allow_nan=False)
    if kind == "boolean":
        return st.booleans()
    if kind == "array":
        return st.lists(by_schema(schema.get("items", {})), max_size=3)
    if kind == "object" and "properties" in schema:
        return st.fixed_dictionaries({}, optional={name: by_schema(each) for name, each in schema["properties"].items()})
    if kind == "string":
        return st.sampled_from(["10s", "1min", "1Gi", "512Mi", "s3://bucket/x", "file:///x", "name", "0 3 * * *"]) | st.text(max_size=20)
    return Absurd


def put(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    """Set a field, making what is above it."""
    for name in path[:-1]:
        if not isinstance(tree.get(name), dict):
            tree[name] = {}
        tree = tree[name]
    tree[path[-1]] = value


@st.composite
def mutated(draw: st.DrawFn, base: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The base with some fields as the schema allows them, or as nobody would."""
    tree: dict[str, Any] = json.loads(json.dumps(base))
    for path, each in draw(st.lists(st.sampled_from(list(paths(schema))), max_size=4)):
        put(tree, path, draw(st.one_of(by_schema(each), by_schema(each), Absurd)))
    return tree


async def look_on(world: JobWorld, rounds: int) -> None:
    """Looks that must not raise what is no error of ours."""
    for _ in range(rounds):
        with contextlib.suppress(StatefulSparkError):  # the queue tries again
            await world.reconcile()
        world.tick()


def state(world: JobWorld) -> Any:
    assert world.job is not None
    return world.job.get("status", {}).get("lifecycleState")


@settings(deadline=None)
@given(spec=mutated(manifest(), _SCHEMA["spec"]))
def test_no_spec_stops_the_reconciler_and_a_good_one_mends_the_job(spec: dict[str, Any]) -> None:
    """Through admission, planning, builders and apply. In the end a good spec runs, unless the key groups of what ran are others."""
    good = manifest(restartNonce=77)
    for new, old in ((spec, None), (spec, good), (good, spec)):
        kind = {"apiVersion": "statefulspark.io/v1alpha1", "kind": "StatefulSparkJob", "metadata": {"name": "counts", "namespace": "shop"}}
        request = {"uid": "1", "operation": "CREATE" if old is None else "UPDATE", "object": kind | {"spec": new}}
        answer = review({"request": request | ({"oldObject": kind | {"spec": old}} if old is not None else {})})
        assert answer["response"]["allowed"] or answer["response"]["status"]["message"]

    async def run() -> None:
        world = JobWorld(spec)
        await look_on(world, 8)
        world.change(good)
        await look_on(world, 60)
        assert world.job is not None
        conditions = {each["type"]: each for each in world.job["status"]["conditions"]}
        assert state(world) == "STABLE" or conditions["Valid"]["reason"] == "ImmutableField"

    asyncio.run(run())


@settings(deadline=None, max_examples=examples(15, 100))
@given(status=mutated({}, _SCHEMA["status"]))
def test_no_status_stops_the_reconciler(status: dict[str, Any]) -> None:
    """Statuses are edited by hand and written by other versions: what cannot be read counts as not there, and the job runs in the end."""

    async def run() -> None:
        world = JobWorld(manifest(), status=status)
        await look_on(world, 4)
        world.change(manifest(restartNonce=1))
        await look_on(world, 100)
        assert world.cluster.objects.get(("Pod", "counts-driver")) is not None
        assert state(world) in {"STABLE", "RUNNING"}

    asyncio.run(run())


def repairs(world: JobWorld) -> list[str]:
    """What the events say was repaired."""
    return [
        tree["message"] for (kind, _), tree in world.cluster.objects.items() if kind == "Event" and tree["reason"] == "ChildrenRepaired"
    ]


@settings(deadline=None, max_examples=examples(8, 60))
@given(seed=st.integers(0, 1 << 32), share=st.sampled_from([0.1, 0.3, 0.6]), drops=st.lists(st.integers(0, 60), max_size=4))
def test_failing_calls_and_lost_watches_delay_a_job_but_do_not_stop_it(seed: int, share: float, drops: list[int]) -> None:
    """Each call may fail before it has an effect, or after it; watches go silent and come back. Then it converges, with every change made."""
    chance = random.Random(seed)

    def trouble(moment: str) -> None:
        if chance.random() < share:
            raise (ConflictError if chance.random() < 0.3 else UnavailableError)(f"injected at {moment}")

    async def run() -> None:
        world = JobWorld(manifest(upgradeMode="savepoint"))
        world.cluster.trouble = trouble
        for number in range(60):
            if number == 20:
                world.change(manifest(upgradeMode="savepoint", image="shop/counts:2"))
            if number == 40:
                world.change(manifest(upgradeMode="savepoint", image="shop/counts:2", parallelism=5))
            if number in drops:
                world.cluster.deaf = True
            elif world.cluster.deaf and chance.random() < 0.3:
                world.cluster.relist()
            await look_on(world, 1)
        world.cluster.relist()
        world.cluster.trouble = lambda moment: None
        await look_on(world, 100)
        assert state(world) == "STABLE"
        assert not repairs(world), "nobody but the operator has touched anything"
        world.cluster.remove("Service", "counts-driver")
        await look_on(world, 4)
        assert ["Service counts-driver" in message for message in repairs(world)] == [True]
        pod = world.cluster.objects["Pod", "counts-driver"]
        assert pod["spec"]["containers"][0]["image"] == "shop/counts:2"
        config = world.cluster.objects["ConfigMap", "counts-config"]["data"]["job.yaml"]
        assert yaml.safe_load(config)["spec"]["parallelism"] == 5
        assert world.job is not None
        world.cluster.store({**world.job, "metadata": {**world.job["metadata"], "deletionTimestamp": "2026-11-21T12:00:00Z"}})
        await look_on(world, 20)
        assert world.job is None

    asyncio.run(run())
