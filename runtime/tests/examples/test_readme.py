"""What the README shows is what the repository has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from statefulspark.config.kubernetes.manifest import validate_on_kubernetes
from statefulspark.config.manifest import parse_manifest

LINES_MAX = 30


@pytest.fixture(scope="module")
def readme(examples: Path) -> str:
    return (examples.parent / "README.md").read_text()


def test_the_sample_is_the_second_example_and_short(readme: str, examples: Path) -> None:
    """The example's first line is for the linter; everything after it is shown."""
    sample, _ = re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)
    assert sample.strip() == (examples / "02-sessions" / "sessions.py").read_text().split("\n", 1)[1].strip()
    assert len([line for line in sample.splitlines() if line.strip()]) <= LINES_MAX


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/test-functions.md"])
def test_the_test_that_is_shown_is_the_one_beside_the_example(examples: Path, page: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (examples.parent / page).read_text(), flags=re.DOTALL)
    assert (examples / "02-sessions" / "test_sessions.py").read_text().split("\n", 1)[1].strip() in {block.strip() for block in blocks}


def test_each_example_has_a_test_beside_it(examples: Path) -> None:
    """But that of Kubernetes, which is the job of another one."""
    jobs = {path.parent for path in examples.glob("*/job.yaml")} - {examples / "04-kubernetes"}
    assert [job.name for job in sorted(jobs) if not list(job.glob("test_*.py"))] == []


def test_every_manifest_that_is_mentioned_exists(readme: str, examples: Path) -> None:
    mentioned = re.findall(r"statefulspark run (\S+)", readme + (examples / "README.md").read_text())
    assert mentioned
    assert [path for path in mentioned if not (examples.parent / path).is_file()] == []


def test_the_manifest_that_is_shown_is_valid(readme: str) -> None:
    (shown,) = re.findall(r"```yaml\n(.*?)```", readme, flags=re.DOTALL)
    assert parse_manifest(shown).spec.parallelism == 2


def test_the_manifest_of_the_kafka_page_is_the_one_that_runs_on_a_cluster(examples: Path) -> None:
    """An end-to-end test runs the file."""
    page = (examples.parent / "docs" / "how-to" / "kafka.md").read_text()
    shown = [each for block in re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL) for each in yaml.safe_load_all(block)]
    manifest, mounted = shown
    assert [manifest] == list(yaml.safe_load_all((examples / "14-kafka" / "kubernetes.yaml").read_text()))[1:]
    assert validate_on_kubernetes(manifest).spec.job.script == "/opt/job/payments.py"
    manifest["spec"] |= mounted["spec"]
    assert validate_on_kubernetes(manifest).spec.driver.pod_template


def test_the_security_of_the_kafka_page_is_that_of_the_example(examples: Path) -> None:
    """A test runs the example with it."""
    (shown,) = re.findall(
        r"^def security.*?^    return source, sink$", (examples / "14-kafka" / "payments.py").read_text(), re.DOTALL | re.MULTILINE
    )
    assert shown in (examples.parent / "docs" / "how-to" / "kafka.md").read_text()


def test_no_two_examples_are_jobs_of_one_name(examples: Path) -> None:
    """They would share a folder in storage, or be one object on a cluster."""
    manifests = [each for path in sorted(examples.glob("*/job.yaml")) for each in yaml.safe_load_all(path.read_text())]
    names = [each["metadata"]["name"] for each in manifests if each["kind"] == "StatefulSparkJob"]
    assert len(names) == len(set(names)) >= 4


def test_every_link_leads_to_a_file(readme: str, examples: Path) -> None:
    links = re.findall(r"\]\(https://[\w./-]+?/statefulspark/statefulspark/(?:(?:blob|tree)/)?main/([^)#]+)", readme)
    assert links
    assert [link for link in links if not (examples.parent / link).exists()] == []
