"""The manifests of docs/how-to/platform.md: ours are accepted, values render, and references lead to what the operator creates."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml

from statefulspark.config.kubernetes import pods
from statefulspark.config.kubernetes.manifest import validate_on_kubernetes
from statefulspark_operator.builders import children
from statefulspark_operator.builders.identities import JobIdentity
from tests.crds.refusals import GOOD, with_spec

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/how-to/platform.md").read_text(encoding="utf-8")
BLOCKS = [each for block in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE) for each in yaml.safe_load_all(block)]
OBJECTS = [each for each in BLOCKS if "kind" in each]
SPECS = [each["spec"] for each in BLOCKS if each.keys() == {"spec"}]
VALUES = [each for each in BLOCKS if "kind" not in each and "spec" not in each]
JOB = JobIdentity(name="click-sessions", namespace="shop", uid="u-1", generation=1)


def find(value: Any, name: str) -> list[Any]:
    """All values of a key, at any depth."""
    if isinstance(value, dict):
        return [each for key, each in value.items() if key == name] + [found for each in value.values() for found in find(each, name)]
    return [found for each in value for found in find(each, name)] if isinstance(value, list) else []


def test_the_page_has_all_kinds_of_blocks() -> None:
    """Else the other tests would pass for nothing."""
    assert len(OBJECTS) >= 7
    assert len(SPECS) >= 3
    assert len(VALUES) >= 1


@pytest.mark.parametrize("spec", SPECS, ids=",".join)
def test_parts_of_a_job_are_accepted(jobs: Any, spec: dict[str, Any]) -> None:
    """By schema, rules and operator; nothing is pruned."""
    document = with_spec(GOOD, **spec)
    stored, problems = jobs.admit(document)
    assert problems == []
    for part, content in spec.items():
        assert content.items() <= stored["spec"][part].items()
    validate_on_kubernetes(document)


@pytest.mark.parametrize("values", VALUES, ids=",".join)
def test_values_are_those_of_the_chart(values: dict[str, Any]) -> None:
    """The chart's schema knows each of them."""
    with helm_python.Chart.load(ROOT / "charts/statefulspark") as chart:
        assert chart.render(values, name="demo", namespace="system")


@pytest.mark.parametrize("thing", OBJECTS, ids=lambda thing: thing["kind"])
def test_objects_refer_to_what_the_operator_creates(thing: dict[str, Any]) -> None:
    """Service with port and labels, Secrets with keys, and the name in the certificate."""
    assert {"apiVersion", "metadata"} <= thing.keys()
    service = children.service(JOB)
    (port,) = service["spec"]["ports"]
    text = yaml.safe_dump(thing)
    assert set(re.findall(r"\bclick-sessions-\w+", text)) <= {
        service["metadata"]["name"],
        JOB.secret,
        JOB.certificates,
        "click-sessions-ca",
    }
    assert set(find(thing, "serverName") + find(thing, "hostname")) <= {pods.TLS_SERVER_NAME}
    for backend in (each for found in find(thing, "backendRefs") for each in found):
        assert backend == {"name": service["metadata"]["name"], "port": port["port"]}
    for found in find(thing, "credentials"):
        assert found == {"name": JOB.secret, "key": pods.TOKEN_KEY}
    for found in find(thing, "ca"):
        assert found == {"secret": {"name": JOB.certificates, "key": pods.TLS_AUTHORITY_FILE}}
    if thing["kind"] == "ServiceMonitor":
        assert thing["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        assert thing["spec"]["endpoints"][0]["port"] == port["name"]
