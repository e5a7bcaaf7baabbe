"""The chart on Kubernetes 1.20 .. 1.36: Helm finds every kind it makes in what that version serves, and fits the rest to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml

from statefulspark_operator.crds.definitions import definitions
from tests.chart.discovery import api_server, served

CHART = Path(__file__).resolve().parents[3] / "charts" / "statefulspark"
VALUES = {"defaults": {}, **{path.stem: yaml.safe_load(path.read_text()) for path in sorted((CHART / "ci").glob("*.yaml"))}}


def installed(chart: helm_python.Chart, minor: int, values: dict[str, Any]) -> list[dict[str, Any]]:
    """The objects that Helm would make on this version; a kind that is not served there is an error of Helm's."""
    with api_server(minor) as url, helm_python.Config(namespace="system", kube_apiserver=url) as config:
        release = config.install(chart, "demo", values, namespace="system", dry_run="server")
    return [each for each in yaml.safe_load_all(release["manifest"]) if each]


@pytest.mark.parametrize("minor", [20, 25, 31, 36])
@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_every_object_is_of_a_served_version(chart: helm_python.Chart, minor: int, values: dict[str, Any]) -> None:
    """Disruption budgets have the version of the cluster, and rules are in the definitions where the API server knows them."""
    objects = installed(chart, minor, values)
    assert {(each["apiVersion"], each["kind"]) for each in objects} <= {
        (key, kind) for key, kinds in served(minor).items() for kind in kinds
    }
    budgets = {each["apiVersion"] for each in objects if each["kind"] == "PodDisruptionBudget"}
    assert budgets <= {"policy/v1" if minor >= 21 else "policy/v1beta1"}
    found = {each["metadata"]["name"]: each["spec"] for each in objects if each["kind"] == "CustomResourceDefinition"}
    for each in definitions():
        if found:
            assert (found[each["metadata"]["name"]] == each["spec"]) == (minor >= 23)
            assert ("x-kubernetes-validations" in str(found[each["metadata"]["name"]])) == (minor >= 23)


def test_the_chart_says_which_versions_it_is_for(chart: helm_python.Chart) -> None:
    """Older ones are refused, and a provider's suffix or a version of tomorrow is none of the chart's business."""
    with pytest.raises(helm_python.HelmError, match="kubeVersion"):
        installed(chart, 19, {})
    assert installed(chart, 40, {})


@pytest.mark.parametrize("version", ["v1.20.2", "v1.25.0", "v1.31.4-eks-7f9249a", "v1.36.1-gke.100"])
def test_lint_with_versions_of_providers(version: str) -> None:
    """No deprecated API among what is rendered."""
    report = helm_python.lint(CHART, {}, strict=True, namespace="system", kube_version=version)
    assert report["errors"] in (None, [])
    assert [each["error"] for each in report["messages"]] == ["icon is recommended"]
