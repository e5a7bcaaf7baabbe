"""One operator with many jobs: what it takes when nothing happens, and how soon it acts when something does.

    ../shared/test-cluster/cluster run .venv/bin/python bench/operator_scale.py [--jobs N] [--steady-s S] [--changes N]

A real API server (that of ``KUBECONFIG``) and a real operator process; only drivers are not there: their pods are scheduled nowhere and
called running by this script, which also answers for their APIs (`fake_drivers.py`). What is measured is the operator's process alone.
Batches and checkpoints go on in every driver, so a status that followed each of them would show here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from fake_drivers import MERGE, FakeDrivers, FakeNode
from kubernetes.aio.client import ApiClient, ApiException, CoreV1Api, CustomObjectsApi, V1Namespace, V1ObjectMeta
from kubernetes.aio.config import load_kube_config
from machine import ROOT, Clock, load
from results import Result, Table, Target, arguments_of, keep

# Any: spread over arguments of many types.
_JOBS: Any = {"group": "statefulspark.io", "version": "v1alpha1", "plural": "statefulsparkjobs"}
_METRICS_PORT = 19090
_HEALTH_PORT = 18080
_AT_ONCE = 16
_PATIENCE_S = 900.0
_MIB = 1 << 20


@dataclass(slots=True)
class Bench:
    """One run."""

    client: ApiClient
    namespace: str
    jobs: int
    rescaled: dict[str, float] = field(default_factory=dict)
    """When the driver at an address was asked to rescale."""

    def names(self) -> list[str]:
        """Of all jobs."""
        return [f"job-{number:04d}" for number in range(self.jobs)]

    def asked(self, address: str, kind: str) -> None:
        """A driver was asked for something."""
        if kind == "rescale":
            self.rescaled[address] = time.perf_counter()

    async def create(self) -> None:
        """Make all jobs."""
        places = asyncio.Semaphore(_AT_ONCE)
        objects = CustomObjectsApi(self.client)

        async def one(name: str) -> None:
            async with places:
                await objects.create_namespaced_custom_object(**_JOBS, namespace=self.namespace, body=_manifest(name, self.namespace))

        await asyncio.gather(*(one(name) for name in self.names()))

    async def states(self) -> Counter[str]:
        """How many jobs are in which state of their life."""
        return Counter((job.get("status") or {}).get("lifecycleState", "none") for job in await jobs(self.client, self.namespace))

    async def until_stable(self) -> float:
        """Wait for all jobs; returns the seconds."""
        began = time.perf_counter()
        while (found := await self.states())["STABLE"] < self.jobs:
            if time.perf_counter() - began > _PATIENCE_S:
                raise SystemExit(f"the jobs did not become stable: {dict(found)}")
            print(f"{time.perf_counter() - began:5.0f} s  {dict(found)}", flush=True)
            await asyncio.sleep(5)
        return time.perf_counter() - began

    async def react(self, node: FakeNode, changes: int, pause_s: float) -> list[float]:
        """Rescale jobs one after the other; returns the seconds from each change of a spec to the request that its driver got."""
        asked_at: dict[str, float] = {}
        for name in self.names()[:changes]:
            asked_at[node.address_of[f"{name}-driver"]] = time.perf_counter()
            patch = {"spec": {"parallelism": 2}}
            await CustomObjectsApi(self.client).patch_namespaced_custom_object(
                **_JOBS, namespace=self.namespace, name=name, body=patch, _content_type=MERGE
            )
            await asyncio.sleep(pause_s)
        for _ in range(600):
            if not asked_at.keys() - self.rescaled.keys():
                break
            await asyncio.sleep(0.1)
        if missing := asked_at.keys() - self.rescaled.keys():
            raise SystemExit(f"{len(missing)} changes were not acted on within a minute")
        return [self.rescaled[address] - at for address, at in asked_at.items()]


async def jobs(client: ApiClient, namespace: str) -> list[dict[str, Any]]:
    """All jobs of a namespace, as the API server has them."""
    listed: Any = await CustomObjectsApi(client).list_namespaced_custom_object(**_JOBS, namespace=namespace)
    items: list[dict[str, Any]] = listed["items"]
    return items


def _manifest(name: str, namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "statefulspark.io/v1alpha1",
        "kind": "StatefulSparkJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "image": "nowhere/fake:1",
            "job": {"script": "counts.py"},
            "parallelism": 1,
            "maxParallelism": 128,
            "checkpointing": {"dir": "file:///tmp/statefulspark-fake", "interval": "10s"},
            # No scheduler of this name: the pod stays with the API server, and no node tries to run it.
            "driver": {"podTemplate": {"spec": {"schedulerName": "nobody"}}},
        },
    }


@contextlib.contextmanager
def operator(namespace: str, log: Path) -> Any:
    """The operator as a process of its own; gives it as psutil sees it."""
    prefix = "STATEFULSPARK_OPERATOR_"
    settings = {
        "NAMESPACE": _own(namespace), "POD_NAME": "bench-0", "WATCH_NAMESPACES": namespace, "WEBHOOK_ENABLED": "false",
        "METRICS_PORT": str(_METRICS_PORT), "HEALTH_PORT": str(_HEALTH_PORT), "WEBHOOK_PORT": "19443",
    }  # fmt: skip
    environ = os.environ | {prefix + name: value for name, value in settings.items()}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "statefulspark_operator"], env=environ, stdout=output, stderr=subprocess.STDOUT, cwd=log.parent
        )
        try:
            yield psutil.Process(process.pid)
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _own(namespace: str) -> str:
    """The operator's namespace, in which it takes no jobs."""
    return f"{namespace}-operator"


def requests_made() -> Counter[str]:
    """Requests of the operator to the API server so far, by verb and code, off its own metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{_METRICS_PORT}/metrics") as answer:
        text = answer.read().decode()
    found: Counter[str] = Counter()
    for code, verb, count in re.findall(r'api_request_seconds_count\{code="(\w+)",verb="(\w+)"\} (\S+)', text):
        found[f"{verb} {code}"] += int(float(count))
    return found


def say(what: str) -> None:
    """Tell how far it is."""
    print(f"{time.strftime('%H:%M:%S')}  {what}", flush=True)


def cpu_s(process: psutil.Process) -> float:
    """CPU seconds of the process so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


async def measure(options: Any, log: Path) -> tuple[dict[str, Any], list[float]]:
    """Run it all; returns the figures and each reaction in seconds."""
    await load_kube_config()  # type: ignore[no-untyped-call]  # the package's
    client = ApiClient()
    namespace = f"bench-{uuid.uuid4().hex[:8]}"
    for each in (namespace, _own(namespace)):
        await CoreV1Api(client).create_namespace(V1Namespace(metadata=V1ObjectMeta(name=each)))
    bench = Bench(client, namespace, options.jobs)
    drivers = FakeDrivers(bench.asked)
    node = FakeNode(client, namespace, drivers)
    helpers = [asyncio.create_task(node.run())]
    figures: dict[str, Any] = {}
    try:
        with operator(namespace, log) as process:
            began = cpu_s(process)
            await bench.create()
            figures["deploy_s"] = await bench.until_stable()
            figures["deploy_cpu_s"] = cpu_s(process) - began
            say(f"all stable; {options.settle_s:.0f} s to settle, then {options.steady_s:.0f} s in which nobody changes anything")
            await asyncio.sleep(options.settle_s)
            before, since, began = requests_made(), time.perf_counter(), cpu_s(process)
            await asyncio.sleep(options.steady_s)
            figures["steady_cores"] = (cpu_s(process) - began) / (time.perf_counter() - since)
            figures["steady_requests"] = dict(requests_made() - before)
            figures["steady_s"] = time.perf_counter() - since
            say(f"steady: {figures['steady_cores'] * 1000:.0f} millicores; now specs are changed")
            reactions = await bench.react(node, min(options.changes, options.jobs), options.pause_s)
            figures["rss_bytes"] = process.memory_info().rss
            say("measured; the jobs are removed")
    finally:
        for helper in helpers:
            helper.cancel()
        await asyncio.gather(*helpers, return_exceptions=True)
        await tidy(client, namespace)
    return figures, reactions


async def tidy(client: ApiClient, namespace: str) -> None:
    """Remove what was made; jobs have finalizers, which the operator is not there any more to take off."""
    places = asyncio.Semaphore(_AT_ONCE)

    async def let_go(name: str) -> None:
        async with places:
            with contextlib.suppress(ApiException):  # gone already, when this was interrupted before
                await CustomObjectsApi(client).patch_namespaced_custom_object(
                    **_JOBS, namespace=namespace, name=name, body={"metadata": {"finalizers": None}}, _content_type=MERGE
                )

    await asyncio.gather(*(let_go(job["metadata"]["name"]) for job in await jobs(client, namespace)))
    for each in (namespace, _own(namespace)):
        await CoreV1Api(client).delete_namespace(each)
    await client.close()  # type: ignore[no-untyped-call]  # the package's


def install_definitions() -> None:
    """Apply the custom resources of this tree; an API server of 1.20 takes CEL rules for a mistake that kubectl must not look for."""
    subprocess.run(["kubectl", "apply", "--validate=false", "-f", str(ROOT / "crds")], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["kubectl", "wait", "--for=condition=Established", "--timeout=60s", "-f", str(ROOT / "crds")], check=True)


def main() -> None:
    """Measure once."""
    parser = arguments_of(__doc__)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--settle-s", type=float, default=30, help="after the last job is stable, before the steady state is measured")
    parser.add_argument("--steady-s", type=float, default=120)
    parser.add_argument("--changes", type=int, default=200, help="jobs whose spec is changed")
    parser.add_argument("--pause-s", type=float, default=0.2, help="between two changes")
    parser.add_argument("--installed", action="store_true", help="the custom resources are there already")
    options = parser.parse_args()
    clock = Clock()
    loads = (load("everything"),)
    if not options.installed:
        install_definitions()
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "operator.log"
        try:
            figures, reactions = asyncio.run(measure(options, log))
        except BaseException:
            print(log.read_text(errors="replace")[-4000:], file=sys.stderr)
            raise
    keep(result(options, figures, reactions, clock, loads), options.result)


def result(options: Any, figures: dict[str, Any], reactions: list[float], clock: Clock, loads: Any) -> Result:
    """As it goes into the documentation."""
    milliseconds = sorted(seconds * 1000 for seconds in reactions)
    p99 = statistics.quantiles(milliseconds, n=100, method="inclusive")[98]
    requests = figures["steady_requests"]
    per_s = sum(requests.values()) / figures["steady_s"]
    return Result(
        **clock.header(__file__),
        title=f"One operator with {options.jobs} jobs",
        about=(
            f"A real API server and one operator process; {options.jobs} jobs whose drivers are faked at pod level and go on with batches and"
            f" checkpoints. CPU of the operator over {options.steady_s:,.0f} s in which nobody changes anything, then {len(reactions)} specs are"
            " changed and each is timed until its driver is asked to rescale. API server, etcd and this script share the cores with it."
        ),
        loads=loads,
        targets=(
            Target(
                what="operator, CPU in steady state", wanted=200, measured=figures["steady_cores"] * 1000, unit="millicores", at_least=False
            ),
            Target(what="operator, reaction to a spec change, 99th percentile", wanted=2000, measured=p99, unit="ms", at_least=False),
            Target(what="operator, resident memory", wanted=300, measured=figures["rss_bytes"] / _MIB, unit="MiB", at_least=False),
        ),
        tables=(
            Table(
                columns=("what", "measured"),
                rows=(
                    ("all jobs created and stable", f"{figures['deploy_s']:,.0f} s, {figures['deploy_cpu_s']:,.0f} s of CPU"),
                    ("requests to the API server in steady state", f"{per_s:,.1f} per second: {_told(requests, figures['steady_s'])}"),
                    ("reaction, median and slowest", f"{statistics.median(milliseconds):,.0f} ms, {milliseconds[-1]:,.0f} ms"),
                ),
            ),
        ),
        figures={**figures, "reactions_ms": milliseconds},
    )


def _told(requests: dict[str, int], seconds: float) -> str:
    return ", ".join(f"{what} {count / seconds:,.1f}" for what, count in sorted(requests.items(), key=lambda item: -item[1]))


if __name__ == "__main__":
    main()
