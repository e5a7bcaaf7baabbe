"""gs:// and abfss:// beyond the contract: services that fail, refuse, redirect or lose their replies, on real sockets."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import pytest
from azure.storage.blob import generate_container_sas
from runtime.tests.checkpoint.one_life import life, resumes
from runtime.tests.storage.flaky_proxy import Fault, FlakyProxy
from runtime.tests.storage.remote_stores import ACCOUNT, ACCOUNT_KEY, BUCKET, IMPATIENT, SERVICES, SMALL, Service
from typer.testing import CliRunner

from statefulspark.cli import main
from statefulspark.errors import ConflictError, InvalidInputError, StatefulSparkError, UnavailableError
from statefulspark.storage.azure import KEY_VARIABLE, SAS_VARIABLE
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.open import check_reachable, open_store

# The vendors' clients leave the connection of a request that failed to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

RESET = Fault()
LOST_BY_RESET = Fault(forward=True)
LOST_BY_ERROR = Fault(forward=True, status=500)
LOST_BY_SILENCE = Fault(forward=True, silent=True)
NEVER_ARRIVED = Fault(status=503)


def sas_token() -> str:
    """A shared access signature of the emulator's container."""
    return generate_container_sas(
        ACCOUNT, BUCKET, account_key=ACCOUNT_KEY, permission="racwdl", expiry=datetime.now(UTC) + timedelta(hours=1)
    )


def writes(method: str, _path: str) -> bool:
    return method in {"PUT", "POST"}


@pytest.fixture(scope="module", params=SERVICES)
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One server per scheme; every test has its own prefix."""
    with ExitStack() as stack:
        found = stack.enter_context(SERVICES[request.param](tmp_path_factory.mktemp("emulator")))
        stack.enter_context(patch.dict(os.environ, found.environment))
        yield found
    gc.collect()  # what the clients left is collected here and not in a test of another module


@pytest.fixture
def proxy(service: Service) -> FlakyProxy:
    service.proxy.reset()
    return service.proxy


@pytest.fixture
def store(service: Service, proxy: FlakyProxy) -> ObjectStore:
    return service.store(IMPATIENT)


@pytest.mark.parametrize("fault", [LOST_BY_RESET, LOST_BY_ERROR, LOST_BY_SILENCE], ids=["reset", "error", "silence"])
def test_a_lost_reply_is_success(store: ObjectStore, proxy: FlakyProxy, fault: Fault) -> None:
    """Written, but the reply was lost: success; another writer's bytes are then a conflict."""
    proxy.matches, proxy.faults = writes, [fault]
    store.put_if_absent("claim", b"mine")
    assert not proxy.faults
    with pytest.raises(ConflictError):
        store.put_if_absent("claim", b"yours")
    assert store.get("claim") == b"mine"


@pytest.mark.parametrize("fault", [RESET, NEVER_ARRIVED, Fault(silent=True)], ids=["reset", "error", "silence"])
def test_unknown_is_not_success(store: ObjectStore, service: Service, proxy: FlakyProxy, fault: Fault) -> None:
    """No answer to any attempt, and no object: the caller must repeat, and may."""
    proxy.matches, proxy.faults = writes, [fault] * service.attempts
    with pytest.raises(UnavailableError):
        store.put_if_absent("claim", b"mine")
    assert not proxy.faults
    assert store.head("claim") is None
    store.put_if_absent("claim", b"mine")


@pytest.mark.parametrize("fault", [LOST_BY_RESET, NEVER_ARRIVED], ids=["lost", "never"])
def test_another_writer_was_first(store: ObjectStore, proxy: FlakyProxy, fault: Fault) -> None:
    """A failure that leaves all open, against an object of somebody else, is a conflict."""
    store.put("claim", b"theirs")
    proxy.matches, proxy.faults = writes, [fault]
    with pytest.raises(ConflictError, match="claim"):
        store.put_if_absent("claim", b"mine")
    assert store.get("claim") == b"theirs"


def test_storage_dies_before_the_read_back(store: ObjectStore, service: Service, proxy: FlakyProxy) -> None:
    """Undecided is reported as such, also if the write was made."""
    proxy.faults = [LOST_BY_RESET, *[RESET] * (2 * service.attempts - 1)]
    with pytest.raises(UnavailableError):
        store.put_if_absent("claim", b"mine")
    assert store.get("claim") == b"mine"


@pytest.mark.parametrize(
    "operation", ["put", "put_if_absent", "put_file", "get", "get_file", "head", "list", "list_folders", "copy", "delete"]
)
@pytest.mark.parametrize("fault", [RESET, NEVER_ARRIVED, Fault(silent=True)], ids=["reset", "error", "silence"])
def test_every_call_fails_within_bounds(
    store: ObjectStore, service: Service, proxy: FlakyProxy, fault: Fault, operation: str, tmp_path: Path
) -> None:
    """A service that does not answer is UnavailableError after the client's few attempts, and the call can be repeated."""
    store.put("source", b"x")
    (tmp_path / "file").write_bytes(b"x")
    calls: dict[str, Callable[[], object]] = {
        "put": lambda: store.put("target", b"x"),
        "put_if_absent": lambda: store.put_if_absent("target", b"x"),
        "put_file": lambda: store.put_file("target", tmp_path / "file"),
        "get": lambda: store.get("source"),
        "get_file": lambda: store.get_file("source", tmp_path / "down"),
        "head": lambda: store.head("source"),
        "list": lambda: store.list(""),
        "list_folders": lambda: store.list_folders(""),
        "copy": lambda: store.copy("source", "target"),
        "delete": lambda: store.delete(["source"]),
    }
    proxy.requests.clear()
    proxy.faults = [fault] * 30
    if operation == "get_file":
        proxy.faults = [fault] * 300  # the client goes on with a broken download, for a bounded time
    with pytest.raises(UnavailableError, match=r"checkpointing\.storage\.endpoint|HTTP 503"):
        calls[operation]()
    if operation != "get_file":
        assert len(proxy.requests) <= 2 * service.attempts
    proxy.reset()
    assert not (tmp_path / "down").exists()
    calls[operation]()


@pytest.mark.parametrize(("status", "text"), [(401, "credentials"), (403, "Grant these credentials"), (501, "Look up"), (302, "redirects")])
def test_refusals(store: ObjectStore, proxy: FlakyProxy, status: int, text: str) -> None:
    """Each says what to do, at once; a conditional write that is refused is no conflict."""
    for operation in (lambda: store.get("a"), lambda: store.put("a", b""), lambda: store.put_if_absent("a", b""), lambda: store.list("")):
        proxy.faults = [Fault(status=status)] * 3
        with pytest.raises(StatefulSparkError, match=text):
            operation()
        proxy.faults.clear()


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_not_followed(store: ObjectStore, proxy: FlakyProxy, status: int) -> None:
    """Neither data nor credentials go to an address that nobody named."""
    other = FlakyProxy("127.0.0.1", 9)
    try:
        for operation in (lambda: store.get("a"), lambda: store.put("a", b"data"), lambda: store.list("")):
            proxy.faults = [Fault(status=status, location=f"{other.url}/elsewhere")] * 3
            with pytest.raises(StatefulSparkError):
                operation()
        assert other.requests == []
    finally:
        other.close()


def test_two_uploads_of_one_object_do_not_mix(service: Service, proxy: FlakyProxy, tmp_path: Path) -> None:
    """The parts of two writers, one of them perhaps an old driver's, never become one object."""
    store = service.store()
    contents = [bytes([writer]) * (11 << 20) for writer in range(3)]
    for writer, content in enumerate(contents):
        (tmp_path / str(writer)).write_bytes(content)

    def upload(writer: int) -> None:
        with contextlib.suppress(UnavailableError):  # the other one was first; RetryingStore repeats
            store.put_file("object", tmp_path / str(writer))

    threads = [threading.Thread(target=upload, args=(writer,), daemon=True) for writer in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert store.get("object") in contents


def test_a_shared_access_signature(tmp_path: Path, service: Service, proxy: FlakyProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """It grants every operation, copies too, and is in no error."""
    if not service.root.startswith("abfss:"):
        pytest.skip("only Azure has them")
    token = sas_token()
    monkeypatch.delenv(KEY_VARIABLE)
    monkeypatch.setenv(SAS_VARIABLE, f"?{token}")
    store = service.store()
    store.put_if_absent("a", b"x")
    store.copy("a", "b")
    assert store.get("b") == b"x"
    assert [info.key for info in store.list("")] == ["a", "b"]
    store.delete(["a", "b"])
    monkeypatch.setenv(SAS_VARIABLE, token[:-8] + "AAAA%3D")
    with pytest.raises(InvalidInputError, match="Grant these credentials") as caught:
        service.store().get("a")
    assert "sig=" not in str(caught.value)


def test_a_missing_bucket(service: Service, proxy: FlakyProxy) -> None:
    """By the server's own answer."""
    store = service.missing(service.settings, IMPATIENT)
    for operation in (lambda: store.put("a", b""), lambda: store.put_if_absent("a", b""), lambda: store.list("")):
        with pytest.raises(InvalidInputError, match=r"checkpointing\.dir.*404.*Create the bucket"):
            operation()


def test_the_probe(service: Service, proxy: FlakyProxy) -> None:
    """A job asks this before it starts; nothing is left behind."""
    store = open_store(f"{service.root}/tests/{uuid.uuid4().hex}", service.settings)
    check_reachable(store)
    assert store.list("") == []


def test_a_server_without_conditions_is_refused(service: Service, proxy: FlakyProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two drivers could corrupt a job there. An account key signs the condition, which the proxy removes; a shared access signature does not."""
    if service.environment.get(KEY_VARIABLE):
        monkeypatch.delenv(KEY_VARIABLE)
        monkeypatch.setenv(SAS_VARIABLE, sas_token())
    store = service.store(IMPATIENT)
    proxy.ignore_conditions = True
    with pytest.raises(InvalidInputError, match=r"checkpointing\.dir.*conditional write"):
        check_reachable(store)


def test_secrets_are_hidden(store: ObjectStore, proxy: FlakyProxy, caplog: pytest.LogCaptureFixture) -> None:
    """Not in representations, errors or logs."""
    caplog.set_level(logging.INFO)
    proxy.faults = [Fault(status=403)] * 3
    with pytest.raises(InvalidInputError) as caught:
        store.get("a")
    for text in (repr(store), str(caught.value), caplog.text, store.url):
        assert ACCOUNT_KEY not in text
        assert "SharedKey" not in text


def test_pages_of_lists(service: Service, proxy: FlakyProxy) -> None:
    """A folder with more objects than one answer holds is listed whole, in order."""
    store = service.store(replace(SMALL, page_objects=7))
    keys = [f"many/{number:04d}/x" for number in range(30)]
    for key in keys:
        store.put(key, b"")
    proxy.requests.clear()
    assert [info.key for info in store.list("many/")] == keys
    assert len(proxy.requests) >= 5
    assert store.list_folders("many/") == [f"{number:04d}" for number in range(30)]


def test_a_job(service: Service, proxy: FlakyProxy, tmp_path: Path) -> None:
    """One life: batches, checkpoints, retention, another number of slots, a savepoint copied inside the storage, and looking at it all."""

    def opened(url: str) -> ObjectStore:
        return open_store(url, service.settings)

    root = f"{service.root}/{uuid.uuid4().hex}"
    lived = life(root, opened, tmp_path)
    resumes(lived)
    assert service.settings.endpoint is not None
    answer = CliRunner().invoke(main.app, ["checkpoints", lived.url, "--endpoint", service.settings.endpoint, "-o", "json"])
    assert answer.exit_code == 0, answer.output
    assert [each["url"] for each in json.loads(answer.stdout)["checkpoints"]] == [lived.url]
