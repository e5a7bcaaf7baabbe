"""Settings of the operator's tests: hypothesis profiles as for the runtime, and the cluster when there is one.

Tests marked ``cluster`` want a Kubernetes that may be broken: they run only when ``STATEFULSPARK_TEST_CLUSTER`` is set, against the current
context of kubectl.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from runtime.tests.depth import load_profile

load_profile()

ROOT = Path(__file__).resolve().parents[2]


DEFINITIONS = ("statefulsparkjobs.statefulspark.io", "statesnapshots.statefulspark.io")
_OWNER = ("meta.helm.sh/release-name", "meta.helm.sh/release-namespace")
_MANAGED_BY = "app.kubernetes.io/managed-by"


class Kubectl:
    """kubectl in one namespace."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace

    def run(self, *arguments: str, given: object = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl; ``given`` becomes its standard input, as JSON."""
        command = ["kubectl", "--namespace", self.namespace, *arguments]
        return subprocess.run(
            command, input=None if given is None else json.dumps(given), capture_output=True, text=True, timeout=60, check=False
        )

    def ok(self, *arguments: str, given: object = None) -> str:
        """Run kubectl and return what it says; it must succeed."""
        done = self.run(*arguments, given=given)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def owner(self, definition: str) -> dict[str, str] | None:
        """Whose a definition is: the marks by which Helm knows its own. None if it is not there."""
        found = self.run("get", "crd", definition, "-o", "json")
        if found.returncode != 0:
            return None
        metadata = json.loads(found.stdout)["metadata"]
        marks = {**metadata.get("annotations", {}), **metadata.get("labels", {})}
        return {name: marks[name] for name in (*_OWNER, _MANAGED_BY) if name in marks}

    def give_back(self, definition: str, owner: dict[str, str] | None) -> None:
        """Remove a definition that was not there before the tests, and give one that was its marks back: `helm install` refuses others'."""
        if owner is None:
            self.ok("delete", "crd", definition, "--ignore-not-found", "--wait=false")
            return
        marks = [f"{name}={owner[name]}" if name in owner else f"{name}-" for name in _OWNER]
        self.ok("annotate", "--overwrite", "crd", definition, *marks)
        self.ok(
            "label", "--overwrite", "crd", definition, f"{_MANAGED_BY}={owner[_MANAGED_BY]}" if _MANAGED_BY in owner else f"{_MANAGED_BY}-"
        )

    def release_all(self) -> None:
        """Remove all objects of ours with their finalizers, which no operator may be there to take off."""
        for kind in DEFINITIONS:
            for name in self.run("get", kind, "-o", "name").stdout.split():
                self.run("patch", name, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
                self.run("delete", name, "--wait=false")

    def apply(self, document: object) -> Any:
        """Apply an object and return it as stored."""
        return json.loads(self.ok("apply", "-f", "-", "-o", "json", given=document))

    def refusal(self, document: object) -> str:
        """Apply an object that the API server refuses, and return what it says."""
        done = self.run("apply", "--validate=false", "-f", "-", given=document)
        assert done.returncode != 0, done.stdout
        return done.stderr


@pytest.fixture(scope="session")
def definitions() -> Iterator[None]:
    """The custom resource definitions of this tree, in the test cluster."""
    if not os.environ.get("STATEFULSPARK_TEST_CLUSTER") or shutil.which("kubectl") is None:
        pytest.skip("needs a test cluster: set STATEFULSPARK_TEST_CLUSTER and KUBECONFIG")
    cluster = Kubectl("default")
    before = {name: cluster.owner(name) for name in DEFINITIONS}
    cluster.ok("apply", "--validate=true", "-f", str(ROOT / "crds"))
    cluster.ok("wait", "--for=condition=Established", "--timeout=30s", "-f", str(ROOT / "crds"))
    yield
    for name, owner in before.items():
        cluster.give_back(name, owner)


@pytest.fixture(scope="module")
def kubectl(definitions: None) -> Iterator[Kubectl]:
    """A namespace of its own in the test cluster.

    It goes with the module: an operator that another test runs for the whole cluster would start its jobs, whose pods take the node.
    """
    namespace = Kubectl(f"crds-{uuid.uuid4().hex[:8]}")
    # A server for custom resources alone has no namespaces, and asks for none.
    has_namespaces = namespace.run("get", "--raw", "/api/v1/namespaces").returncode == 0
    if has_namespaces:
        namespace.ok("create", "namespace", namespace.namespace)
    yield namespace
    namespace.release_all()
    if has_namespaces:
        namespace.ok("delete", "namespace", namespace.namespace, "--wait=false")
