"""The generated files are those of the models, and their schemas are what an API server takes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from statefulspark.errors import InternalError
from statefulspark_operator.crds.__main__ import main
from statefulspark_operator.crds.definitions import definitions
from statefulspark_operator.crds.files import generated_files
from statefulspark_operator.crds.structural import structural_schema

ROOT = Path(__file__).resolve().parents[3]
Schema = dict[str, Any]


@pytest.mark.parametrize("name", generated_files())
def test_no_generated_file_has_drifted(name: str) -> None:
    """Whoever changes a model runs `make crds`."""
    assert (ROOT / name).read_text(encoding="utf-8") == generated_files()[name], "run make crds"


def test_the_command_writes_and_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--check writes nothing and names what is missing; without it, all files are written."""
    assert main(["--check", str(tmp_path)]) == 1
    assert "crds/statefulsparkjobs.yaml is out of date" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    assert main([str(tmp_path)]) == 0
    assert main(["--check", str(tmp_path)]) == 0


def test_the_chart_keeps_the_definitions_when_it_is_removed() -> None:
    """Removing a definition removes every job of the cluster."""
    for path in (ROOT / "charts/statefulspark/files/crds").glob("*.yaml"):
        chart, plain = yaml.safe_load(path.read_text()), yaml.safe_load((ROOT / "crds" / path.name).read_text())
        assert chart["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
        assert chart == plain


def nodes(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """All schemas inside a schema, with their paths."""
    yield path, schema
    for name, each in schema.get("properties", {}).items():
        yield from nodes(each, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from nodes(schema[key], f"{path}[]")


ALL = [
    pytest.param(path, node, id=f"{each['spec']['names']['kind']}{path}")
    for each in definitions()
    for path, node in nodes(each["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
]


@pytest.mark.parametrize(("path", "node"), ALL)
def test_every_part_of_a_schema_is_structural_described_and_bounded(path: str, node: Schema) -> None:
    """No references or alternatives, a type everywhere, free fields only in pod templates, and a bound on whatever CEL may look at."""
    assert not node.keys() & {"$ref", "anyOf", "oneOf", "allOf", "not", "title", "const", "patternProperties", "change", "local"}
    assert "type" in node or node.get("x-kubernetes-int-or-string")
    assert not ("properties" in node and "additionalProperties" in node)
    assert node.get("additionalProperties") not in (True, False)
    assert bool(node.get("x-kubernetes-preserve-unknown-fields")) == path.endswith(".podTemplate")
    for bound in ("exclusiveMinimum", "exclusiveMaximum"):
        assert isinstance(node.get(bound, False), bool)
    if path.startswith((".spec", ".status")) and not path.endswith("[]"):
        assert node["description"].endswith("."), path
        assert "\n" not in node["description"]
    if node.get("type") == "string":
        assert "maxLength" in node or "enum" in node or node.get("format") == "date-time" or path in {".apiVersion", ".kind"}
    if node.get("type") == "array":
        assert "maxItems" in node
    if isinstance(node.get("additionalProperties"), dict):
        assert "maxProperties" in node
    for rule in node.get("x-kubernetes-validations", ()):
        assert len(rule["message"]) <= 2048
        assert "\n" not in rule["message"] + rule["rule"]


@pytest.mark.parametrize(("path", "node"), ALL)
def test_rules_read_fields_that_are_there(path: str, node: Schema) -> None:
    """An API server compiles rules against the schema and refuses the whole definition for a field that it does not have."""
    for rule in node.get("x-kubernetes-validations", ()):
        for dotted in re.findall(r"\b(?:self|oldSelf)((?:\.\w+)+)(?![\w(])", rule["rule"]):
            at = node
            for name in dotted.strip(".").split("."):
                at = at["properties"][name] if "properties" in at else {}
                assert at, f"{path}: {dotted}"


def test_inline_credentials_are_not_in_the_resource() -> None:
    """On Kubernetes they would lie in etcd and in everybody's kubectl output."""
    text = (ROOT / "crds/statefulsparkjobs.yaml").read_text()
    assert not re.search(r"\b(secretAccessKey|accessKeyId|sessionToken)\b *:", text)
    assert "credentialsSecret:" in text


def test_subresources_names_and_columns() -> None:
    """What kubectl and autoscalers work with."""
    job, snapshot = definitions()
    assert job["metadata"]["name"] == "statefulsparkjobs.statefulspark.io"
    assert snapshot["metadata"]["name"] == "statesnapshots.statefulspark.io"
    assert job["spec"]["names"]["shortNames"][0] == "ssj"
    assert snapshot["spec"]["names"]["shortNames"] == ["ssnap"]
    (version,) = job["spec"]["versions"]
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    assert version["subresources"]["scale"]["specReplicasPath"] == ".spec.parallelism"
    for path in ("statusReplicasPath", "labelSelectorPath"):
        assert version["subresources"]["scale"][path].removeprefix(".status.") in status
    for definition in (job, snapshot):
        (version,) = definition["spec"]["versions"]
        schema = version["schema"]["openAPIV3Schema"]
        for column in version["additionalPrinterColumns"]:
            path = column["jsonPath"]
            if not path.startswith(".metadata"):
                node = schema
                for part in re.sub(r"\[.*?\]", "[]", path).strip(".").split("."):
                    node = node["properties"][part.removesuffix("[]")]
                    node = node["items"] if part.endswith("[]") else node


class Two(BaseModel):
    """A model that a structural schema cannot say."""

    either: int | str


def test_what_cannot_be_said_is_named() -> None:
    """A developer who uses alternatives in a model hears it at once."""
    with pytest.raises(InternalError, match="no alternatives"):
        structural_schema(Two)
