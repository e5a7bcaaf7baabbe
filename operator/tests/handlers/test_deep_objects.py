"""An object with thousands of levels, which an API server takes, concerns nobody but its owner."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import helm_python
import pytest

from tests.chart.conftest import CHART, documents
from tests.handlers.deep_watch import LISTED, STREAMED
from tests.handlers.operators import Rights, operator_process, until
from tests.manifests import manifest
from tests.reconcile.cluster import JobWorld

LEVELS = 9_900
TAKEN = 1_500
"""More than Python reads by itself."""

_READS = f"""
import asyncio, copy, json, sys
from statefulspark_operator.__main__ import LEVELS
from statefulspark_operator.clients.connection import _parsed
sys.setrecursionlimit(LEVELS)
from tests.handlers.test_deep_objects import look_at
deep = '{{"a":' * {LEVELS} + '1' + '}}' * {LEVELS}
event = json.loads('{{"type": "ADDED", "object": ' + deep + '}}')
assert _parsed(deep.encode()) == event["object"] == copy.deepcopy(event["object"])
print(asyncio.run(look_at(event["object"])))
"""


async def look_at(spec: Any) -> str:
    """What the operator says of a job with this in its template."""
    world = JobWorld(manifest())
    assert world.job is not None
    world.cluster.objects["StatefulSparkJob", "counts"]["spec"]["driver"] = {"podTemplate": {"spec": spec}}
    world.cluster.store(world.job)
    await world.reconcile()
    assert world.job is not None
    return str(next(each["message"] for each in world.job["status"]["conditions"] if each["type"] == "Valid"))


def test_a_deep_object_is_read_and_refused() -> None:
    """In a process of its own, as the operator sets it up: a stack that overflows ends a process."""
    done = subprocess.run([sys.executable, "-c", _READS], capture_output=True, text=True, timeout=60, check=False, cwd=_root())
    assert done.returncode == 0, done.stderr[-2000:]
    assert "spec.driver.podTemplate: has more than 32 levels" in done.stdout


def test_a_deep_object_ends_no_watch(tmp_path: Path) -> None:
    """Listed and streamed, as kopf itself reads it: at Python's own limit it gives up all watches at the first such object, again and again."""
    command = [sys.executable, "-m", "tests.handlers.deep_watch", str(tmp_path)]
    with subprocess.Popen(command, cwd=_root(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            heard = {process.stdout.readline().strip() for _ in LISTED + STREAMED}
        finally:
            process.kill()
    assert heard == {*LISTED, *STREAMED}


def _root() -> str:
    return str(CHART.parents[1] / "operator")


@pytest.mark.cluster
def test_a_deep_object_stops_no_watch(kubectl: Any, tmp_path: Any) -> None:
    """A real API server takes it; a job beside it is deployed as ever, before and after the operator lists everything anew."""
    system = f"{kubectl.namespace}-system"
    with helm_python.Chart.load(CHART) as chart:
        rights = Rights(kubectl, documents(chart.render({"watchNamespaces": [kubectl.namespace]}, name="demo", namespace=system)))
    kubectl.ok("create", "namespace", system)
    for namespace in (system, kubectl.namespace):
        rights.apply(namespace)
    kind = {"apiVersion": "statefulspark.io/v1alpha1", "kind": "StatefulSparkJob"}

    def create(name: str, template: str) -> None:
        spec = manifest(driver={"podTemplate": {"spec": "TEMPLATE"}})
        text = json.dumps(kind | {"metadata": {"name": name, "namespace": kubectl.namespace}, "spec": spec}).replace('"TEMPLATE"', template)
        path = tmp_path / f"{name}.json"
        path.write_text(text)
        kubectl.ok("create", "--raw", f"/apis/statefulspark.io/v1alpha1/namespaces/{kubectl.namespace}/statefulsparkjobs", "-f", str(path))

    def acted(name: str) -> None:
        def seen() -> bool:
            return bool(kubectl.run("get", "ssj", name, "-o", "jsonpath={.status.lifecycleState}").stdout)

        until(f"job {name} is acted on", 240, seen)

    def refused() -> bool:
        found = kubectl.run("get", "ssj", "deep", "-o", "jsonpath={.status.conditions[?(@.type=='Valid')].message}").stdout
        return "has more than 32 levels" in found

    podless = '{"schedulerName": "nobody"}'
    try:
        for round_ in range(2):
            with operator_process(
                tmp_path, kubeconfig=rights.kubeconfig(tmp_path / "kubeconfig"), namespace=system, watched=[kubectl.namespace]
            ):
                create(f"before-{round_}", podless)
                acted(f"before-{round_}")
                if not round_:
                    create("deep", '{"a":' * TAKEN + "1" + "}" * TAKEN)
                until("the deep job is refused", 240, refused)
                create(f"after-{round_}", podless)
                acted(f"after-{round_}")
    finally:
        kubectl.run("delete", "namespace", system, "--wait=false")
