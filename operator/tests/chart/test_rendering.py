"""What the chart makes: safe pods, least rights, the operator's own settings, and nothing that the values did not ask for."""

from __future__ import annotations

import base64
import datetime as dt
import itertools
import json
import tomllib
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml

from statefulspark.errors import InvalidInputError
from statefulspark_operator.builders.children import role
from statefulspark_operator.builders.identities import JobIdentity
from statefulspark_operator.crds.definitions import definitions
from statefulspark_operator.settings import PREFIX, OperatorSettings

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "charts" / "statefulspark"
VALUES = {"defaults": {}, **{path.stem: yaml.safe_load(path.read_text()) for path in sorted((CHART / "ci").glob("*.yaml"))}}
each_values = pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)


def only(objects: list[dict[str, Any]], kind: str, name: str | None = None) -> dict[str, Any]:
    """The one object of a kind."""
    (found,) = [each for each in objects if each["kind"] == kind and name in {None, each["metadata"]["name"]}]
    return found


def container(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """The operator's container."""
    (found,) = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    return dict(found)


@each_values
def test_helm_finds_nothing_to_say(values: dict[str, Any]) -> None:
    """Lint with warnings as errors; an icon is all that is missing."""
    report = helm_python.lint(CHART, values, strict=True, namespace="system", kube_version="v1.32.0")
    assert report["errors"] in (None, [])
    assert [each["error"] for each in report["messages"]] == ["icon is recommended"]


@each_values
def test_objects_are_labelled_and_in_their_namespace(render: Any, values: dict[str, Any]) -> None:
    """No name twice, nothing in a namespace that nobody named, recommended labels everywhere but on the definitions."""
    objects = render(values)
    names = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in objects]
    assert len(set(names)) == len(names)
    assert {namespace for _, namespace, _ in names} <= {None, "system", *values.get("watchNamespaces", ())}
    for each in objects:
        if each["kind"] != "CustomResourceDefinition":
            assert each["metadata"]["labels"]["app.kubernetes.io/instance"] == "demo"


@each_values
def test_pods_are_restricted(render: Any, values: dict[str, Any]) -> None:
    """Kubernetes's Pod Security standard "restricted", and a read-only root file system with one writable folder."""
    pod = only(render(values), "Deployment")["spec"]["template"]["spec"]
    (operator,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 10001
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert operator["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not any(pod.get(name) for name in ("hostNetwork", "hostPID", "hostIPC"))
    assert all(set(volume) & {"emptyDir", "secret", "configMap"} for volume in pod["volumes"])
    assert {mount["mountPath"] for mount in operator["volumeMounts"] if not mount.get("readOnly")} == {"/tmp"}
    assert operator["resources"]["requests"]["memory"]
    assert operator["resources"]["limits"]["memory"]
    assert {"livenessProbe", "readinessProbe", "startupProbe"} <= operator.keys()


@each_values
def test_the_environment_is_that_of_the_settings(render: Any, values: dict[str, Any]) -> None:
    """Each setting has its variable and no variable is without setting, so a renamed setting is noticed here."""
    given = {each["name"]: each.get("value", "from-field") for each in container(render(values))["env"]}
    ours = {name: value for name, value in given.items() if name.startswith(PREFIX)}
    assert {name.removeprefix(PREFIX).lower() for name in ours} == set(OperatorSettings.model_fields)
    settings = OperatorSettings.of(ours)
    assert settings.watch_namespaces == tuple(sorted(values.get("watchNamespaces", ())))
    ports = {each["name"]: each["containerPort"] for each in container(render(values))["ports"]}
    assert (ports["health"], ports["metrics"]) == (settings.health_port, settings.metrics_port)
    assert ports.get("webhook") == (settings.webhook_port if settings.webhook_enabled else None)


def test_the_charts_defaults_are_the_settings_defaults(render: Any) -> None:
    """One truth; only Lease, key and Deployment have the release's name."""
    given = {each["name"]: each.get("value", "x") for each in container(render())["env"]}
    settings = OperatorSettings.of({name: value for name, value in given.items() if name.startswith(PREFIX)})
    labels = only(render(), "Deployment")["spec"]["selector"]["matchLabels"]
    namespace = {"matchLabels": {"kubernetes.io/metadata.name": "system"}}
    operator = {"namespaceSelector": namespace, "podSelector": {"matchLabels": labels}}
    name = "demo-statefulspark"
    assert settings == OperatorSettings(
        namespace="x", pod_name="x", deployment=name, lease_name=name, key_secret=f"{name}-key", job_api_from=(operator,)
    )


def test_who_may_reach_drivers_is_said_by_the_values(render: Any) -> None:
    """The operator in any case; and where jobs get no policy, it has no right to make one."""
    prometheus = {"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}

    def peers(**values: Any) -> Any:
        (text,) = (each["value"] for each in container(render(jobNetworkPolicy=values))["env"] if each["name"] == f"{PREFIX}JOB_API_FROM")
        return OperatorSettings.of({f"{PREFIX}NAMESPACE": "x", f"{PREFIX}POD_NAME": "x", f"{PREFIX}JOB_API_FROM": text}).job_api_from

    operator = only(render(), "Deployment")["spec"]["selector"]["matchLabels"]
    own, other = peers(apiFrom=[prometheus])
    assert own["podSelector"]["matchLabels"] == operator
    assert other == prometheus
    assert peers(enabled=False, apiFrom=[prometheus]) is None
    for enabled in (True, False):
        found = [
            rule["verbs"] for _, rule in rules(render(jobNetworkPolicy={"enabled": enabled})) if "networkpolicies" in rule["resources"]
        ]
        assert ("create" in found[0]) is enabled


def test_definitions_are_rendered_with_their_rules(render: Any) -> None:
    """Helm assumes a new Kubernetes when it has none; definitions are those of the models, and not there when somebody else installs them."""
    found = {each["metadata"]["name"]: each for each in render() if each["kind"] == "CustomResourceDefinition"}
    for each in definitions():
        rendered = found.pop(each["metadata"]["name"])
        assert rendered["spec"] == each["spec"]
        assert rendered["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert not found
    assert not [each for each in render(crds={"install": False}) if each["kind"] == "CustomResourceDefinition"]


def rules(objects: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """All rules of all roles, each with its role."""
    return [(each, rule) for each in objects if each["kind"] in {"Role", "ClusterRole"} for rule in each["rules"]]


@each_values
def test_rights_are_spelt_out(render: Any, values: dict[str, Any]) -> None:
    """No wildcards, no escalation, no list of secrets, no exec; no verb twice in one role."""
    for owner, rule in rules(render(values)):
        assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]
        assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"])
        assert not {"pods/exec", "nodes", "customresourcedefinitions"} & set(rule["resources"])
        if "secrets" in rule["resources"]:
            assert not {"list", "watch", "deletecollection"} & set(rule["verbs"]), owner["metadata"]["name"]
    for owner in (each for each in render(values) if each["kind"] in {"Role", "ClusterRole"}):
        seen = [
            (group, resource, verb, tuple(rule.get("resourceNames", ())))
            for rule in owner["rules"]
            for group, resource, verb in itertools.product(rule["apiGroups"], rule["resources"], rule["verbs"])
        ]
        assert len(seen) == len(set(seen)), sorted({each for each in seen if seen.count(each) > 1})


def test_the_operator_has_all_that_it_grants(render: Any) -> None:
    """RBAC lets nobody grant what he does not have; the driver's role is the shared account's."""

    def rights(of: dict[str, Any]) -> set[tuple[str, str, str]]:
        return {
            (group, resource, verb)
            for rule in of["rules"]
            for group, resource, verb in itertools.product(rule["apiGroups"], rule["resources"], rule["verbs"])
        }

    objects = render(jobServiceAccount={"create": True})
    driver = only(objects, "Role", "statefulspark-job")
    assert rights(driver) == rights(role(JobIdentity(name="x", namespace="x", uid="x", generation=1)))
    assert rights(driver) <= rights(only(objects, "ClusterRole", "system-demo-statefulspark"))
    assert ("", "pods", "create") in rights(driver)
    assert ("", "secrets", "get") not in rights(driver)


def test_rights_are_where_the_jobs_are(render: Any) -> None:
    """With a list of namespaces only what lets a namespace go is cluster-wide, beside aggregation and webhook; without, no role per namespace."""
    named = render(VALUES["namespaced"])
    assert not [each for each in named if each["kind"].startswith(("Validating", "CustomResource"))]
    namespaces, own = only(named, "ClusterRole")["rules"]
    assert namespaces == {"apiGroups": [""], "resources": ["namespaces"], "resourceNames": ["team-a", "team-b"], "verbs": ["get"]}
    assert own["apiGroups"] == ["statefulspark.io"]
    assert set(own["verbs"]) == {"get", "list", "watch", "patch"}
    assert {each["metadata"]["namespace"] for each in named if each["kind"] == "Role"} == {"team-a", "team-b", "system"}
    for _, rule in rules(named):
        if {"roles", "rolebindings", "serviceaccounts"} & set(rule["resources"]):
            assert set(rule["verbs"]) == {"get", "list", "watch"}
    assert {each["name"]: each.get("value") for each in container(named)["env"]}[f"{PREFIX}CANARY"] == "false"
    assert {each["name"]: each.get("value") for each in container(render(watchNamespaces=["system"]))["env"]}[f"{PREFIX}CANARY"] == "true"
    own = [
        (rule["resources"], rule.get("resourceNames"), rule["verbs"])
        for each, rule in rules(named)
        if each["metadata"]["name"].endswith("-self")
    ]
    assert (["statefulsparkjobs"], ["statefulspark-canary"], ["get", "delete"]) in own, "to remove the one of other settings"
    everywhere = render()
    assert {each["metadata"]["namespace"] for each in everywhere if each["kind"] == "Role"} == {"system"}


def test_only_one_operator_acts(render: Any) -> None:
    """Replicas need a leader; without one the old process is gone before the new one starts."""
    with pytest.raises(helm_python.HelmRenderError, match="leaderElection"):
        render(leaderElection={"enabled": False})
    single = render(replicas=1, leaderElection={"enabled": False})
    assert only(single, "Deployment")["spec"]["strategy"] == {"type": "Recreate"}
    assert not [each for each in single if each["kind"] == "PodDisruptionBudget"]
    assert only(render(), "PodDisruptionBudget")["apiVersion"] == "policy/v1"


def test_a_generated_certificate_fits_the_service(render: Any) -> None:
    """The API server checks name and authority."""
    cryptography = pytest.importorskip("cryptography.x509")
    objects = render()
    data = only(objects, "Secret")["data"]
    (webhook,) = only(objects, "ValidatingWebhookConfiguration")["webhooks"]
    assert webhook["clientConfig"]["caBundle"] == data["ca.crt"]
    authority, certificate = (cryptography.load_pem_x509_certificate(base64.b64decode(data[name])) for name in ("ca.crt", "tls.crt"))
    certificate.verify_directly_issued_by(authority)
    names = certificate.extensions.get_extension_for_class(cryptography.SubjectAlternativeName).value.get_values_for_type(
        cryptography.DNSName
    )
    assert "demo-statefulspark.system.svc" in names
    assert certificate.not_valid_after_utc > dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
    service = webhook["clientConfig"]["service"]
    assert (service["name"], service["path"]) == (only(objects, "Service")["metadata"]["name"], "/validate")


def test_other_certificates(render: Any) -> None:
    """From cert-manager nothing is generated; one's own needs its authority."""
    managed = render(VALUES["cert-manager"])
    assert not [each for each in managed if each["kind"] == "Secret"]
    assert only(managed, "Certificate")["spec"]["secretName"] == "demo-statefulspark-webhook"
    (webhook,) = only(managed, "ValidatingWebhookConfiguration")["webhooks"]
    assert "caBundle" not in webhook["clientConfig"]
    assert webhook["failurePolicy"] == "Fail"
    with pytest.raises(helm_python.HelmRenderError, match="caBundle"):
        render(webhook={"certificate": {"source": "secret", "secretName": "x"}})
    (webhook,) = only(render(VALUES["secret"]), "ValidatingWebhookConfiguration")["webhooks"]
    assert webhook["namespaceSelector"]["matchExpressions"][0]["values"] == ["jobs"]


def test_the_webhook_is_about_the_custom_resources(render: Any) -> None:
    """Plural names and version are those of the definitions."""
    (webhook,) = only(render(), "ValidatingWebhookConfiguration")["webhooks"]
    (rule,) = webhook["rules"]
    assert rule["resources"] == [each["spec"]["names"]["plural"] for each in definitions()]
    assert rule["apiVersions"] == [each["name"] for each in definitions()[0]["spec"]["versions"]]


@pytest.mark.parametrize(
    "values",
    [
        {"replica": 1},
        {"replicas": "2"},
        {"watchNamespaces": "team-a"},
        {"watchNamespaces": ["Team A"]},
        {"webhook": {"failurePolicy": "ignore"}},
        {"leaderElection": {"leaseDuration": 15}},
        {"image": {"digest": "sha256:123"}},
        {"metrics": {"serviceMonitor": {"enabled": "yes"}}},
    ],
)
def test_bad_values_are_refused(chart: helm_python.Chart, values: dict[str, Any]) -> None:
    """Misspelt and impossible values are no silent defaults."""
    with pytest.raises(helm_python.HelmError):
        chart.validate_schema(values)


def test_the_schema_knows_every_value_and_describes_it() -> None:
    """Editors and Artifact Hub show these descriptions."""

    def compare(values: dict[str, Any], schema: dict[str, Any], path: str) -> None:
        for name, value in values.items():
            each = schema["properties"][name]
            assert each["description"].endswith((".", "lines.")), f"{path}{name}"
            if "properties" in each:
                compare(value, each, f"{path}{name}.")
        assert set(schema["properties"]) - {"global"} == set(values), path

    schema = json.loads((CHART / "values.schema.json").read_text())
    compare(yaml.safe_load((CHART / "values.yaml").read_text()), schema, "")


def test_the_readme_lists_every_value() -> None:
    """The table of the chart's README is that of the values."""
    readme = (CHART / "README.md").read_text()

    def leaves(values: dict[str, Any], schema: dict[str, Any], path: str = "") -> list[str]:
        found: list[str] = []
        for name, value in values.items():
            each = schema["properties"][name]
            found += leaves(value, each, f"{path}{name}.") if "properties" in each else [f"{path}{name}"]
        return found

    schema = json.loads((CHART / "values.schema.json").read_text())
    for leaf in leaves(yaml.safe_load((CHART / "values.yaml").read_text()), schema):
        assert f"| `{leaf}` |" in readme, leaf


def test_a_bad_environment_is_refused_not_defaulted(render: Any) -> None:
    """What the schema of the values cannot say, the operator says when it starts."""
    given = {each["name"]: each.get("value", "x") for each in container(render(leaderElection={"renewDeadline": "20s"}))["env"]}
    with pytest.raises(InvalidInputError, match="lease_renew_deadline"):
        OperatorSettings.of({name: value for name, value in given.items() if name.startswith(PREFIX)})


def test_the_default_image_is_the_one_that_releases_push() -> None:
    """``IMAGE`` of the release workflow, for the repository that pyproject.toml names."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    source = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Source"]
    pushed = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]["images"]["env"]["IMAGE"]
    named = pushed.replace("${{ github.repository }}", source.removeprefix("https://github.com/")).replace(
        "${{ matrix.target }}", "operator"
    )
    assert values["image"]["repository"] == named
