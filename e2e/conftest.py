"""Fixtures of the end-to-end tests: one store and one operator for all, a namespace for each."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.harness.evidence import keep
from e2e.harness.images import OUT, Images, make_images
from e2e.harness.jobs import KIND, SNAPSHOTS, CountingJob
from e2e.harness.kubectl import Kubectl
from e2e.harness.operators import Operator, operator_in
from e2e.harness.providers import NONE, PROVIDER, Provider, choose
from e2e.harness.store import Store, store_in
from e2e.harness.timeouts import COMMAND_S, TEST_S

HERE = Path(__file__).parent
PREFIX = os.environ.get("STATEFULSPARK_E2E_PREFIX", "e2e")
"""Of all namespaces: two runs with different ones can share a cluster."""
OPERATOR_NAMESPACE = f"{PREFIX}-operator"
STORE_NAMESPACE = f"{PREFIX}-store"
FAILED = pytest.StashKey[bool]()
NAMESPACES = pytest.StashKey[list[str]]()

MakeJob = Callable[..., CountingJob]


def namespace_of(item: pytest.Item) -> str:
    """The namespace of a test, named by it; at most 63 characters."""
    return re.sub("[^a-z0-9]+", "-", f"{PREFIX}-{item.name.removeprefix('test_')}".lower())[:60].strip("-")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test beside this file needs a cluster; those of the harness itself do not."""
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(TEST_S))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note the namespaces of the tests that will run: the operator gets rights in these only."""
    items = [item for item in session.items if item.get_closest_marker("e2e")]
    session.config.stash[NAMESPACES] = [namespace_of(item) for item in items]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:  # noqa: ARG001  pytest gives it by name
    """Remember that a test failed, for the fixtures that end after it."""
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


@pytest.fixture(scope="session")
def provider() -> Provider:
    """The cluster within which pytest was started."""
    chosen = choose() if os.environ.get(PROVIDER) else None
    if chosen is None:
        pytest.skip(NONE)
    return chosen


@pytest.fixture(scope="session")
def images(provider: Provider) -> Images:
    """Built from this tree, and loaded."""
    return make_images(provider)


@pytest.fixture(scope="session")
def store(images: Images) -> Iterator[Store]:
    """S3 in the cluster."""
    with store_in(Kubectl(STORE_NAMESPACE), images.store) as running:
        yield running


@pytest.fixture(scope="session")
def operator(images: Images, request: pytest.FixtureRequest) -> Iterator[Operator]:
    """The operator, for the namespaces of the tests."""
    namespaces = request.config.stash[NAMESPACES]
    Kubectl(OPERATOR_NAMESPACE).delete_namespace()  # an operator that a run has left would put finalizers back
    for name in namespaces:
        kubectl = Kubectl(name)
        kubectl.delete_namespace(wait=False)
        release(kubectl)
        kubectl.create_namespace(labels={"pod-security.kubernetes.io/enforce": "restricted"})
    with operator_in(Kubectl(OPERATOR_NAMESPACE), images, namespaces) as running:
        yield running
        for name in namespaces:
            release(Kubectl(name))
            Kubectl(name).delete_namespace(wait=False)


def release(kubectl: Kubectl) -> None:
    """Take finalizers away from what a run that broke off has left, so that its namespace can go."""
    for kind in (KIND, SNAPSHOTS):
        for name in kubectl.run("get", kind, "-o", "name").stdout.split():
            kubectl.run("patch", name, "--type=merge", "--patch", '{"metadata": {"finalizers": null}}')


@pytest.fixture
def kubectl(operator: Operator, request: pytest.FixtureRequest) -> Iterator[Kubectl]:
    """The test's own namespace, which the operator watches."""
    namespace = Kubectl(namespace_of(request.node))
    yield namespace
    if request.node.stash.get(FAILED, False):
        keep(OUT / request.node.name, namespace, operator.kubectl)
    # What is left goes fast: drivers would take up to 60 s for a last checkpoint that nobody asks for.
    namespace.run("delete", "pods", "--all", "--grace-period=1", "--wait=false")
    namespace.run("delete", KIND, "--all", f"--timeout={COMMAND_S // 2}s")
    namespace.run("delete", "pods", "--all", "--grace-period=0", "--force", "--wait=false")


@pytest.fixture
def make_job(kubectl: Kubectl, store: Store, images: Images) -> MakeJob:
    """Makes counting jobs in the test's namespace; nothing is sent before ``create``."""

    def made(name: str = "counts", **more: Any) -> CountingJob:
        return CountingJob(kubectl, store, images, name, **more)

    return made
