"""One version, and one list of Pythons, wherever they are written."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import yaml

from .test_vocabulary import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_runtime_chart_and_images_have_one_version() -> None:
    chart = yaml.safe_load((ROOT / "charts/statefulspark/Chart.yaml").read_text())
    image = re.search(r"^ARG VERSION=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert image is not None
    assert {chart["version"], chart["appVersion"], image[1]} == {PROJECT["version"]}


def test_the_changelog_has_the_version_or_what_will_be_in_it() -> None:
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert PROJECT["version"] in headings or f"The first release, {PROJECT['version']}," in (ROOT / "CHANGELOG.md").read_text()


def test_each_python_that_is_promised_is_tested() -> None:
    promised = [
        each.rpartition(" ")[2] for each in PROJECT["classifiers"] if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", each)
    ]
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    assert jobs["unit"]["strategy"]["matrix"]["python"] == promised
    assert PROJECT["requires-python"] == f">={promised[0]}"


def test_actions_are_pinned_by_their_commit() -> None:
    """A tag can be moved to other code; the comment after the hash says which release it is."""
    uses = [line.strip() for path in WORKFLOWS for line in path.read_text().splitlines() if re.match(r"\s*(- )?uses:", line)]
    assert len(uses) > 20
    assert [line for line in uses if not re.search(r"uses: [\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line)] == []


def test_workflows_call_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = {name for path in WORKFLOWS for name in re.findall(r"run: make ([a-z0-9-]+)", path.read_text())}
    assert called
    assert called - targets == set()


def test_one_address_of_the_repository() -> None:
    site = re.search(r"^  repository: (\S+)", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert site is not None
    assert PROJECT["urls"]["Source"] == site[1]
