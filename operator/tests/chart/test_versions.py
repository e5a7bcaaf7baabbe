"""The chart on Kubernetes 1.32 .. 1.37: Helm finds every kind that it makes in what that version serves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml

from statefulspark_operator.crds.definitions import definitions
from tests.chart.discovery import KINDS, api_server

CHART = Path(__file__).resolve().parents[3] / "charts" / "statefulspark"
VALUES = {"defaults": {}, **{path.stem: yaml.safe_load(path.read_text()) for path in sorted((CHART / "ci").glob("*.yaml"))}}


def installed(chart: helm_python.Chart, minor: int, values: dict[str, Any]) -> list[dict[str, Any]]:
    """The objects that Helm would make on this version; a kind that is not served there is an error of Helm's."""
    with api_server(minor) as url, helm_python.Config(namespace="system", kube_apiserver=url) as config:
        release = config.install(chart, "demo", values, namespace="system", dry_run="server")
    return [each for each in yaml.safe_load_all(release["manifest"]) if each]


@pytest.mark.parametrize("minor", [32, 37])
@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_every_object_is_of_a_served_version(chart: helm_python.Chart, minor: int, values: dict[str, Any]) -> None:
    """Nothing is of a version that the cluster lacks, and the definitions are complete."""
    objects = installed(chart, minor, values)
    assert {(each["apiVersion"], each["kind"]) for each in objects} <= {(key, kind) for key, kinds in KINDS.items() for kind in kinds}
    found = {each["metadata"]["name"]: each["spec"] for each in objects if each["kind"] == "CustomResourceDefinition"}
    for each in definitions():
        if found:
            assert found[each["metadata"]["name"]] == each["spec"]


def test_the_chart_says_which_versions_it_is_for(chart: helm_python.Chart) -> None:
    """Older ones are refused, and a provider's suffix or a version of tomorrow is none of the chart's business."""
    with pytest.raises(helm_python.HelmError, match="kubeVersion"):
        installed(chart, 31, {})
    assert installed(chart, 40, {})


@pytest.mark.parametrize("version", ["v1.32.0", "v1.34.4-eks-7f9249a", "v1.37.1-gke.100"])
def test_lint_with_versions_of_providers(version: str) -> None:
    """No deprecated API among what is rendered."""
    report = helm_python.lint(CHART, {}, strict=True, namespace="system", kube_version=version)
    assert report["errors"] in (None, [])
    assert [each["error"] for each in report["messages"]] == ["icon is recommended"]
