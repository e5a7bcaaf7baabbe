"""Fixtures of the end-to-end tests: one store and one operator for all; a namespace for each, or a job that several share."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.harness.evidence import keep
from e2e.harness.images import OUT, Images, make_images, make_kafka_image
from e2e.harness.jobs import HUNDRED_MB, KIND, SMALL, SNAPSHOTS, CountingJob, Load, end_jobs
from e2e.harness.kafka import Kafka, kafka_in
from e2e.harness.kubectl import Kubectl
from e2e.harness.operators import Operator, operator_in
from e2e.harness.providers import NONE, PROVIDER, Provider, choose
from e2e.harness.shared_jobs import SharedJobs
from e2e.harness.store import Store, store_in
from e2e.harness.timeouts import COMMAND_S, TEST_S

HERE = Path(__file__).parent
PREFIX = os.environ.get("STATEFULSPARK_E2E_PREFIX", "e2e")
"""Of all namespaces: two runs with different ones can share a cluster."""
OPERATOR_NAMESPACE = f"{PREFIX}-operator"
STORE_NAMESPACE = f"{PREFIX}-store"
SHARED_NAMESPACE = f"{PREFIX}-shared"
SHARED = ("new_job", "job", "ending_job", "full_job", "ending_full_job")
"""The fixtures of shared jobs in the order in which tests with them run, so that each kind of job is started once."""
FAILED = pytest.StashKey[bool]()
NAMESPACES = pytest.StashKey[list[str]]()

MakeJob = Callable[..., CountingJob]


def namespace_of(item: pytest.Item) -> str:
    """The namespace of a test, named by it; at most 63 characters."""
    return re.sub("[^a-z0-9]+", "-", f"{PREFIX}-{item.name.removeprefix('test_')}".lower())[:60].strip("-")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test beside this file needs a cluster; those of the harness itself do not. Those that share a job come first, one after the other."""
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(TEST_S))
    mine = [place for place, item in enumerate(items) if item.path.parent == HERE]
    for place, item in zip(mine, sorted((items[place] for place in mine), key=turn), strict=True):
        items[place] = item


def turn(item: pytest.Item) -> int:
    """The place of a test among those that share jobs; the others come after them."""
    wanted = getattr(item, "fixturenames", ())
    return next((place for place, name in enumerate(SHARED) if name in wanted), len(SHARED))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note the namespaces of the tests that will run: the operator gets rights in these only."""
    items = [item for item in session.items if item.get_closest_marker("e2e")]
    session.config.stash[NAMESPACES] = [SHARED_NAMESPACE, *(namespace_of(item) for item in items if turn(item) == len(SHARED))]


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
            Kubectl(name).run("wait", KIND, "--all", "--for=delete", f"--timeout={COMMAND_S // 2}s")
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
    end_jobs(namespace)


@pytest.fixture
def kafka(kubectl: Kubectl, provider: Provider) -> Iterator[Kafka]:
    """A broker in the test's namespace; the operator of ``kubectl`` has had the job image built."""
    with kafka_in(kubectl, make_kafka_image(provider)) as running:
        yield running


@pytest.fixture
def make_job(kubectl: Kubectl, store: Store, images: Images) -> MakeJob:
    """Makes counting jobs in the test's namespace; nothing is sent before ``create``."""

    def made(name: str = "counts", **more: Any) -> CountingJob:
        return CountingJob(kubectl, store, images, name, **more)

    return made


@pytest.fixture(scope="session")
def shared_jobs(operator: Operator, store: Store, images: Images) -> Iterator[SharedJobs]:  # noqa: ARG001  the operator runs them
    """The job that tests leave running for the next, in a namespace of its own."""
    namespace = Kubectl(SHARED_NAMESPACE)
    shared = SharedJobs(namespace, lambda name, load: CountingJob(namespace, store, images, name, load))
    yield shared
    shared.drop()


def borrowed(shared: SharedJobs, request: pytest.FixtureRequest, load: Load, *, new: bool = False) -> Iterator[CountingJob]:
    """A shared job for one test. No other test gets it after one that failed."""
    taken = False
    try:
        job = shared.take(load, new=new)
        taken = True
        yield job
    finally:
        if not taken or request.node.stash.get(FAILED, False):
            keep(OUT / request.node.name, Kubectl(SHARED_NAMESPACE), Kubectl(OPERATOR_NAMESPACE))
            shared.drop()
        shared.tidy()


@pytest.fixture
def new_job(shared_jobs: SharedJobs, request: pytest.FixtureRequest) -> Iterator[CountingJob]:
    """A job that runs and that no test has used."""
    yield from borrowed(shared_jobs, request, SMALL, new=True)


@pytest.fixture
def job(shared_jobs: SharedJobs, request: pytest.FixtureRequest) -> Iterator[CountingJob]:
    """A job that runs. Leave it STABLE, with 2 slots."""
    yield from borrowed(shared_jobs, request, SMALL)


@pytest.fixture
def ending_job(shared_jobs: SharedJobs, request: pytest.FixtureRequest) -> Iterator[CountingJob]:
    """A job that runs, and that the test may end."""
    yield from borrowed(shared_jobs, request, SMALL)


@pytest.fixture
def full_job(shared_jobs: SharedJobs, request: pytest.FixtureRequest) -> Iterator[CountingJob]:
    """A job that runs with 100 MB of state, all of which is in a checkpoint. Leave it STABLE, with 2 slots."""
    yield from borrowed(shared_jobs, request, HUNDRED_MB)


@pytest.fixture
def ending_full_job(shared_jobs: SharedJobs, request: pytest.FixtureRequest) -> Iterator[CountingJob]:
    """A job that runs with 100 MB of state, and that the test may end."""
    yield from borrowed(shared_jobs, request, HUNDRED_MB)
