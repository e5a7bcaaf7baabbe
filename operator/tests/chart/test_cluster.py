"""A real API server takes what the chart makes for it, and Helm installs, upgrades and removes it as promised."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml

pytestmark = pytest.mark.cluster

CHART = Path(__file__).resolve().parents[3] / "charts" / "statefulspark"
VALUES = {"defaults": {}, **{path.stem: yaml.safe_load(path.read_text()) for path in sorted((CHART / "ci").glob("*.yaml"))}}
DEFINITIONS = ("statefulsparkjobs.statefulspark.io", "statesnapshots.statefulspark.io")
FOREIGN = {"ServiceMonitor", "PrometheusRule", "Certificate", "Issuer"}
"""Resources of other operators, which the test cluster does not have."""


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_the_api_server_takes_every_object(kubectl: Any, render: Any, values: dict[str, Any]) -> None:
    """Server-side dry run of each object, strictly: an unknown field is an error."""
    for each in render(values):
        if each["kind"] in FOREIGN:
            continue
        arguments = ["apply", "--dry-run=server", "--validate=true", "-f", "-"]
        if "namespace" in each["metadata"]:
            each["metadata"]["namespace"] = kubectl.namespace  # those of the values are not there
        kubectl.ok(*arguments, given=each)


def test_install_upgrade_remove(kubectl: Any) -> None:
    """Definitions are taken over and stay, the certificate survives an upgrade, what the real server serves counts."""
    name = "chart-test"
    owner = [f"meta.helm.sh/release-name={name}", f"meta.helm.sh/release-namespace={kubectl.namespace}"]
    kubectl.ok("annotate", "--overwrite", "crd", *DEFINITIONS, *owner)
    kubectl.ok("label", "--overwrite", "crd", *DEFINITIONS, "app.kubernetes.io/managed-by=Helm")
    with helm_python.Config(namespace=kubectl.namespace, kubeconfig_path=os.environ["KUBECONFIG"]) as config:
        values: dict[str, Any] = {"replicas": 2, "image": {"repository": "localhost/none"}}
        try:
            config.install(CHART, name, values)
            secret = json.loads(kubectl.ok("get", "secret", f"{name}-statefulspark-webhook", "-o", "json"))
            budget = json.loads(kubectl.ok("get", "pdb", f"{name}-statefulspark", "-o", "json"))
            assert budget["spec"]["maxUnavailable"] == 1
            config.upgrade(CHART, name, {**values, "replicas": 3})
            again = json.loads(kubectl.ok("get", "secret", f"{name}-statefulspark-webhook", "-o", "json"))
            assert again["data"] == secret["data"]
            hook = f"{kubectl.namespace}-{name}-statefulspark"
            (webhook,) = json.loads(kubectl.ok("get", "validatingwebhookconfiguration", hook, "-o", "json"))["webhooks"]
            assert webhook["clientConfig"]["caBundle"] == secret["data"]["ca.crt"]
            account = f"--as=system:serviceaccount:{kubectl.namespace}:{name}-statefulspark"
            for question, answer in (
                (("list", "statefulsparkjobs.statefulspark.io", "-A"), "yes"),
                (("create", "pods"), "yes"),
                (("create", "roles.rbac.authorization.k8s.io"), "yes"),
                (("create", "secrets"), "yes"),
                *(((verb, "secrets"), "no") for verb in ("get", "list", "watch", "patch", "update", "delete", "deletecollection")),
                *(((verb, "secrets", "-n", "default"), "no") for verb in ("get", "patch", "delete")),
                (("get", f"secret/{name}-statefulspark-key"), "yes"),
                (("get", f"secret/{name}-statefulspark-key", "-n", "default"), "no"),
                (("patch", f"secret/{name}-statefulspark-key"), "no"),
                (("delete", "customresourcedefinitions.apiextensions.k8s.io"), "no"),
                (("delete", "statefulsparkjobs.statefulspark.io", "-n", "default"), "no"),
            ):
                assert kubectl.run("auth", "can-i", *question, account).stdout.strip() == answer, question
        finally:
            with contextlib.suppress(helm_python.HelmError):
                config.uninstall(name)
    assert kubectl.run("get", "deployment", f"{name}-statefulspark").returncode != 0
    kubectl.ok("get", "crd", *DEFINITIONS)


def test_the_operator_may_do_what_the_chart_lists_and_nothing_else(kubectl: Any, render: Any) -> None:
    """By the API server's own account of its rights, in the operator's namespace and in another one."""
    name = "rights"
    values: dict[str, Any] = {"crds": {"install": False}, "image": {"repository": "localhost/none"}, "webhook": {"enabled": False}}
    with helm_python.Config(namespace=kubectl.namespace, kubeconfig_path=os.environ["KUBECONFIG"]) as config:
        try:
            config.install(CHART, name, values)
            account = f"--as=system:serviceaccount:{kubectl.namespace}:{name}-statefulspark"
            granted = {
                place: _rights(kubectl.ok("auth", "can-i", "--list", account, "--namespace", place))
                for place in (kubectl.namespace, "default")
            }
            nobody = _rights(kubectl.ok("auth", "can-i", "--list", "--as=system:serviceaccount:default:nobody", "--namespace", "default"))
        finally:
            with contextlib.suppress(helm_python.HelmError):
                config.uninstall(name)
    rendered = [each for each in render(values) if each["kind"] in {"ClusterRole", "Role"} and "aggregate" not in json.dumps(each)]
    everywhere = _listed(each for each in rendered if each["kind"] == "ClusterRole")
    assert granted["default"] - nobody == everywhere
    assert granted[kubectl.namespace] - nobody == everywhere | _listed(each for each in rendered if each["kind"] == "Role")


def _rights(text: str) -> set[tuple[str, str]]:
    """Resource (with its group) and verb of each line of ``kubectl auth can-i --list``."""
    found = set()
    for line in text.splitlines()[1:]:
        if line.startswith(" "):
            continue  # URLs that are no resources
        resource, _, rest = line.partition(" ")
        found |= {(resource, verb) for verb in rest.rpartition("[")[2].rstrip("]").split()}
    return found


def _listed(roles: Iterable[dict[str, Any]]) -> set[tuple[str, str]]:
    """The same of roles."""
    return {
        (".".join(filter(None, (resource.partition("/")[0], group))) + "".join(resource.partition("/")[1:]), verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_a_driver_gets_its_role_from_the_operator(kubectl: Any) -> None:
    """With the operator's own identity: making a role with the driver's rules is allowed, one with more is not."""
    name = "grants"
    with helm_python.Config(namespace=kubectl.namespace, kubeconfig_path=os.environ["KUBECONFIG"]) as config:
        values = {
            "crds": {"install": False},
            "jobServiceAccount": {"create": True},
            "image": {"repository": "localhost/none"},
            "webhook": {"enabled": False},
        }
        try:
            config.install(CHART, name, values)
            driver = json.loads(kubectl.ok("get", "role", "statefulspark-job", "-o", "json"))
            role = {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "Role",
                "metadata": {"name": "a-driver", "namespace": kubectl.namespace},
                "rules": driver["rules"],
            }
            account = f"--as=system:serviceaccount:{kubectl.namespace}:{name}-statefulspark"
            kubectl.ok("create", "-f", "-", account, given=role)
            role["metadata"]["name"] = "too-much"
            role["rules"] = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}]
            assert "attempting to grant RBAC permissions not currently held" in kubectl.run("create", "-f", "-", account, given=role).stderr
        finally:
            with contextlib.suppress(helm_python.HelmError):
                config.uninstall(name)
