"""Namespaces that come and go under a running operator, on a real API server with the chart's own rights."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helm_python
import pytest

from tests.chart.conftest import CHART, documents
from tests.handlers.operators import Process, Rights, operator_process, until
from tests.manifests import manifest

pytestmark = pytest.mark.cluster

FINALIZER = "statefulspark.io/operator"


class Town:
    """Three namespaces: the operator's own, one that stays and one that goes."""

    def __init__(self, kubectl: Any) -> None:
        mark = uuid.uuid4().hex[:6]
        self.kubectl = kubectl
        self.system, self.stays, self.goes = (f"{name}-{mark}" for name in ("system", "stays", "goes"))
        self.rights = self.namespaced()

    def namespaced(self) -> Rights:
        """The rights of an operator for two namespaces."""
        return self._rights([self.stays, self.goes])

    def _rights(self, watched: list[str]) -> Rights:
        with helm_python.Chart.load(CHART) as chart:
            rendered = chart.render({"watchNamespaces": watched}, name="demo", namespace=self.system)
        return Rights(self.kubectl, documents(rendered))

    def watch_all(self) -> None:
        """The rights of an operator for the whole cluster."""
        self.rights.remove_cluster_wide()
        self.rights = self._rights([])
        self.rights.apply(None)
        self.rights.apply(self.system)

    def create(self, namespace: str) -> None:
        self.kubectl.ok("create", "namespace", namespace)
        self.rights.apply(namespace)

    def gone(self, namespace: str) -> bool:
        return bool(self.kubectl.run("get", "namespace", namespace).returncode != 0)

    def job(self, namespace: str, name: str, **spec: Any) -> None:
        """Create or change a job whose driver is scheduled nowhere."""
        podless = {"driver": {"podTemplate": {"spec": {"schedulerName": "nobody"}}}}
        document = {
            "apiVersion": "statefulspark.io/v1alpha1",
            "kind": "StatefulSparkJob",
            "metadata": {"name": name, "namespace": namespace},
        }
        self.kubectl.ok(
            "apply", "--namespace", namespace, "--validate=false", "-f", "-", given=document | {"spec": manifest(**podless, **spec)}
        )

    def reconcile(self, namespace: str, name: str) -> dict[str, Any]:
        """The job as it is; empty when it is gone."""
        done = self.kubectl.run("get", "ssj", name, "--namespace", namespace, "-o", "json")
        found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
        return found

    def acts(self, namespace: str, name: str) -> None:
        """The operator acts on the newest generation of a job."""

        def observed() -> bool:
            tree = self.reconcile(namespace, name)
            return bool((tree.get("status") or {}).get("observedGeneration") == tree["metadata"]["generation"])

        until(f"{namespace}/{name} is acted on", 120, observed)

    def has_driver(self, namespace: str, name: str) -> bool:
        return bool(self.kubectl.run("get", "pod", f"{name}-driver", "--namespace", namespace).returncode == 0)


@pytest.fixture
def town(kubectl: Any) -> Iterator[Town]:
    town = Town(kubectl)
    town.kubectl.ok("create", "namespace", town.system)
    town.rights.apply(None)
    town.rights.apply(town.system)
    try:
        yield town
    finally:
        town.rights.remove_cluster_wide()
        for namespace in (town.goes, town.stays, town.system):
            for name in town.kubectl.run("get", "ssj", "--namespace", namespace, "-o", "name").stdout.split():
                patch = '{"metadata":{"finalizers":null}}'
                town.kubectl.run("patch", "--namespace", namespace, name, "--type=merge", "-p", patch)
            town.kubectl.run("delete", "namespace", namespace, "--wait=false")


def started(town: Town, folder: Path, watched: list[str]) -> Any:
    config = town.rights.kubeconfig(folder / "kubeconfig")
    return operator_process(folder, kubeconfig=config, namespace=town.system, watched=watched)


def refused(operator: Process) -> int:
    """Requests that the API server refused for good."""
    return sum(count for what, count in operator.requests().items() if what.endswith((" 403", " 404")) and not what.startswith("get"))


def test_a_namespace_that_is_not_there_concerns_no_other(town: Town, tmp_path: Path) -> None:
    """It is refused from the start: others are served, health names it, and it is served when it is there. SIGTERM ends the process."""
    town.create(town.stays)
    with started(town, tmp_path, [town.stays, town.goes]) as operator:
        until("ready", 120, operator.ready)
        town.job(town.stays, "one", state="suspended")
        town.acts(town.stays, "one")
        code, text = until("health names it", 120, lambda: operator.health() if town.goes in operator.health()[1] else None)
        assert code == 200, "a restart would not help"
        assert f"namespace {town.goes} has not been watched for " in text
        assert town.stays not in text
        assert operator.gauge("namespaces_lost") == 1
        town.create(town.goes)
        town.job(town.goes, "two", state="suspended")
        town.acts(town.goes, "two")
        until("health is content", 120, lambda: operator.health() == (200, "ok"))
        town.kubectl.ok("delete", "namespace", town.goes, "--wait=false")
        until("the namespace is gone, with a suspended job", 240, lambda: town.gone(town.goes))
        town.job(town.stays, "one", state="suspended", parallelism=3)
        town.acts(town.stays, "one")
        assert operator.end() < 30
        assert operator.process.returncode == 0, operator.log.read_text()[-2000:]


@pytest.mark.parametrize("everywhere", [False, True], ids=["watchNamespaces", "all"])
def test_a_namespace_with_a_running_job_goes_away(town: Town, tmp_path: Path, everywhere: bool) -> None:
    """In both modes, with finalizer, driver and children, and nothing is tried in it that is refused."""
    town.create(town.stays)
    town.create(town.goes)
    if everywhere:
        town.watch_all()
    with started(town, tmp_path, [] if everywhere else [town.stays, town.goes]) as operator:
        until("ready", 120, operator.ready)
        town.job(town.goes, "two")
        until("a driver", 240, lambda: town.has_driver(town.goes, "two"))
        assert FINALIZER in town.reconcile(town.goes, "two")["metadata"]["finalizers"]
        before = refused(operator)
        town.kubectl.ok("delete", "namespace", town.goes, "--wait=false")
        until("the namespace is gone", 240, lambda: town.gone(town.goes))
        town.job(town.stays, "one", state="suspended")
        town.acts(town.stays, "one")
        assert refused(operator) - before <= 2, operator.requests()


def test_lease_and_canary_go_with_the_operator(town: Town, tmp_path: Path) -> None:
    """When its Deployment is deleted, as by uninstalling the chart; a canary that is not wanted any more goes at the next start."""
    config = town.rights.kubeconfig(tmp_path / "kubeconfig")
    pod = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "x", "image": "none"}]}}
    deployment = {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "demo-statefulspark", "namespace": town.system},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "x"}}, "template": pod},
    }  # fmt: skip
    town.kubectl.ok("apply", "--namespace", town.system, "-f", "-", given=deployment)

    def there(kind: str) -> list[str]:
        done = town.kubectl.ok("get", kind, "--namespace", town.system, "-o", "name")
        return [line for line in done.split() if "statefulspark" in line.rpartition("/")[2]]

    town.watch_all()
    with operator_process(tmp_path, kubeconfig=config, namespace=town.system, watched=[], canary=True) as operator:
        until("Lease and canary", 120, lambda: there("leases") and there("ssj"))
        assert operator.end() < 30
    town.rights.remove_cluster_wide()
    town.rights = town.namespaced()
    town.rights.apply(None)
    town.rights.apply(town.system)
    with operator_process(tmp_path, kubeconfig=config, namespace=town.system, watched=[town.stays, town.goes]) as operator:
        until("no canary", 120, lambda: not there("ssj"))
        assert there("leases")
        assert operator.end() < 30
    town.kubectl.ok("delete", "deployment", "demo-statefulspark", "--namespace", town.system)
    until("no Lease", 240, lambda: not there("leases"))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_namespace_deleted_for_long_is_served_when_it_comes_back(town: Town, tmp_path: Path) -> None:
    """Longer than a watch lasts, 300 s, so that it is refused: the way in which one namespace once disabled all."""
    town.create(town.stays)
    town.create(town.goes)
    with started(town, tmp_path, [town.stays, town.goes]) as operator:
        until("ready", 120, operator.ready)
        town.job(town.goes, "old", state="suspended")
        town.acts(town.goes, "old")
        town.kubectl.ok("delete", "namespace", town.goes, "--wait=false")
        until("the namespace is gone", 240, lambda: town.gone(town.goes))
        until("health names it", 400, lambda: town.goes in operator.health()[1])
        assert operator.health()[0] == 200
        town.job(town.stays, "one", state="suspended")
        town.acts(town.stays, "one")
        town.create(town.goes)
        town.job(town.goes, "new", state="suspended")
        town.acts(town.goes, "new")
        until("health is content", 240, lambda: operator.health() == (200, "ok"))
        assert operator.end() < 30
