"""The operator's rights are those that it uses: what the chart lists against what a job's life, from first look to deletion, asks of the API."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from statefulspark.errors import StatefulSparkError
from statefulspark_operator.builders.certificates import CERTIFICATE_LIFE, RENEW_BEFORE
from statefulspark_operator.builders.children import role
from statefulspark_operator.builders.identities import JobIdentity
from statefulspark_operator.clients.kubernetes import _PLURALS
from statefulspark_operator.handlers.watches import WATCHED
from tests.manifests import manifest
from tests.reconcile.cluster import NAMESPACE, JobWorld

Right = tuple[str, str]
"""Resource with its group, and verb."""

VERBS = {"get": "get", "apply": "patch", "apply_status": "patch", "create": "create", "patch": "patch", "delete": "delete"}


def rights(rules: Iterable[dict[str, Any]]) -> set[Right]:
    """What rules of RBAC allow."""
    return {
        (f"{group}/{resource}", verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def recorded(world: JobWorld) -> set[Right]:
    """Have a world write down the right that each of its requests needs."""
    used: set[Right] = set()

    def record(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        async def recording(*arguments: Any, **options: Any) -> Any:
            first = arguments[0]
            api_version, kind = (first["apiVersion"], first["kind"]) if isinstance(first, dict) else arguments[:2]
            status = "/status" if name == "apply_status" else ""
            used.add((f"{api_version.rpartition('/')[0]}/{_PLURALS[api_version, kind]}{status}", VERBS[name]))
            return await call(*arguments, **options)

        return recording

    for name in VERBS:
        setattr(world.cluster, name, record(name, getattr(world.cluster, name)))
    return used


async def whole_life(world: JobWorld) -> None:
    """Deploy, savepoints by schedule and their pruning, rescale, repair, upgrade, a new certificate, deletion."""

    async def look_on(reconciler: int, seconds: float = 5.0) -> None:
        for _ in range(reconciler):
            with contextlib.suppress(StatefulSparkError):
                await world.reconcile()
            world.tick(seconds)

    spec = {"savepoints": {"schedule": {"interval": "1min"}, "history": {"count": 1, "age": "1h"}}}
    await look_on(20)
    world.change(manifest(**spec))
    for number in range(4):
        await look_on(6, 30.0)
        for kind, name in [key for key in world.cluster.objects if key[0] == "StateSnapshot"]:
            done = {"state": "COMPLETED", "path": f"s3://bucket/savepoints/{number}-{name}"}
            world.cluster.store({**world.cluster.objects[kind, name], "status": done})
    world.change(manifest(**spec, parallelism=3))
    await look_on(10)
    world.cluster.remove("Service", "counts-driver")
    await look_on(5)
    world.change(manifest(**spec, parallelism=3, image="shop/counts:2", savepointNonce=1))
    await look_on(30)
    world.cluster.relist()
    await look_on(5)
    world.now += CERTIFICATE_LIFE - RENEW_BEFORE  # a new certificate is due
    await look_on(3)
    job = world.job
    assert job is not None
    world.cluster.store({**job, "metadata": {**job["metadata"], "deletionTimestamp": "2026-11-21T12:00:00Z"}})
    await look_on(20)
    for kind, name in [key for key in world.cluster.objects if key[0] == "StateSnapshot"]:
        snapshot = world.cluster.objects[kind, name]
        world.cluster.store({**snapshot, "metadata": {**snapshot["metadata"], "deletionTimestamp": "2026-11-21T12:00:00Z"}})
    await look_on(5)
    assert world.job is None


def documented() -> set[Right]:
    """The table of docs/operator-contract.md, each line with its reason."""
    text = (Path(__file__).resolve().parents[3] / "docs" / "operator-contract.md").read_text()
    lines = re.findall(r"^\| `([a-z0-9./]*/[a-z/]+)` \| ([a-z, ]+) \| .{10,} \|$", text, re.MULTILINE)
    return {(resource, verb) for resource, verbs in lines for verb in verbs.split(", ")}


@pytest.mark.parametrize("values", [{}, {"watchNamespaces": [NAMESPACE]}], ids=["cluster", "namespaces"])
def test_the_chart_grants_what_the_operator_uses_and_nothing_else(render: Any, values: dict[str, Any]) -> None:
    """Beside what it uses itself, only what it passes on to drivers, which RBAC wants it to have."""
    world = JobWorld(manifest(), job_api_from=({"podSelector": {}},))
    used = recorded(world)
    asyncio.run(whole_life(world))
    for group, _, plural, _ in WATCHED:
        used |= {(f"{group}/{plural}", "list"), (f"{group}/{plural}", "watch")}
    used.add(("policy/poddisruptionbudgets", "list"))  # which version of them the API server has
    used.add(("/namespaces", "get"))  # whether a namespace is being deleted

    roles = [
        each
        for each in render(values)
        if each["kind"] in {"ClusterRole", "Role"} and not each["metadata"]["name"].endswith(("-self", "-view", "-edit"))
    ]
    granted = set().union(*(rights(each["rules"]) for each in roles))
    passed_on = rights(role(JobIdentity(name="j", namespace="n", uid="u", generation=1))["rules"])
    assert used - granted == set()
    assert granted - used - passed_on == set()
    assert granted == documented()
    # Any other shows what a Secret holds: patch by its answer, delete as a dry run that waits for dependents.
    assert {verb for resource, verb in granted if resource == "/secrets"} == {"create"}
