"""Credentials that rotate under a running job: the server really refuses the old ones, and nobody above notices."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.sts.models import sts_backends
from moto.sts.responses import TokenResponse
from runtime.tests.iam import UNCHECKED, User, documented_statements, enforced, unenforced
from runtime.tests.s3_server import BUCKET, S3Server, s3_server

from statefulspark.errors import InvalidInputError, UnavailableError
from statefulspark.storage.limits import S3Limits
from statefulspark.storage.retrying import RetryingStore, RetryPolicy
from statefulspark.storage.s3.store import S3Store
from statefulspark.storage.storage_settings import StorageSettings

PREFIX = "rotation"
LIMITS = S3Limits(part_bytes=5 << 20, copy_part_bytes=5 << 20, attempts=3)
STATEMENTS = [each for each in documented_statements(BUCKET, PREFIX) if each["Sid"] not in UNCHECKED]

Write = Callable[[str, str], None]
"""Replaces what the source of credentials holds by a key and its secret."""


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as server, enforced():
        yield server


@pytest.fixture
def user(server: S3Server) -> User:
    """With one pair of keys."""
    with unenforced():
        user = User(server)
    user.allow(STATEMENTS)
    return user


@pytest.fixture(params=["mounted-secret", "shared-file"])
def write(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Write:
    """Two sources of credentials that can change."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    if request.param == "shared-file":
        file = tmp_path / "credentials"
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))

        def write_file(key: str, secret: str) -> None:
            text = f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n"
            file.write_text(text if key else "")

        return write_file
    folder = tmp_path / "secret"
    folder.mkdir()
    monkeypatch.setenv("STATEFULSPARK_CREDENTIALS_FOLDER", str(folder))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        (folder / name).symlink_to(Path("..data") / name)

    def mount(key: str, secret: str) -> None:
        """As the kubelet does: a new folder, and one link that is replaced."""
        version = folder / f"..{uuid.uuid4().hex}"
        version.mkdir()
        (version / "AWS_ACCESS_KEY_ID").write_text(f"{key}\n")
        (version / "AWS_SECRET_ACCESS_KEY").write_text(secret)
        (folder / "..new").symlink_to(version.name)
        (folder / "..new").rename(folder / "..data")

    return mount


@pytest.fixture
def store(server: S3Server, user: User, write: Write) -> S3Store:
    """That has worked with the user's first keys."""
    write(user.key, user.secret)
    store = S3Store(BUCKET, f"{PREFIX}/{uuid.uuid4().hex}", StorageSettings(endpoint=server.endpoint, region="us-east-1"), limits=LIMITS)
    store.put("a", b"before")
    return store


def test_every_operation_goes_on(store: S3Store, user: User, write: Write, tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"x")
    (tmp_path / "large").write_bytes(b"x" * (6 << 20))
    operations: list[Callable[[], object]] = [
        lambda: store.put("b", b"1"),
        lambda: store.put_if_absent("c", b"1"),
        lambda: store.get("a"),
        lambda: store.head("a"),
        lambda: store.list(""),
        lambda: store.list_folders(""),
        lambda: store.copy("a", "d"),
        lambda: store.put_file("large", tmp_path / "large"),
        lambda: store.get_file("large", tmp_path / "down"),
        lambda: store.copy("large", "e"),
        lambda: store.delete(["b"]),
    ]
    key = user.key
    for operation in operations:
        with unenforced():
            new, secret = user.add_key()
        write(new, secret)
        user.revoke(key)
        operation()
        key = new
    assert (tmp_path / "down").read_bytes() == b"x" * (6 << 20)
    assert [info.key for info in store.list("")] == ["a", "c", "d", "e", "large"]


def test_within_an_upload_in_parts(store: S3Store, user: User, write: Write, tmp_path: Path) -> None:
    """Parts are repeated, the upload is not begun anew."""
    (tmp_path / "large").write_bytes(os.urandom(21 << 20))
    with unenforced():
        new, secret = user.add_key()
    rotated: list[bool] = []

    def rotate(**_: object) -> None:
        if not rotated:
            rotated.append(True)
            write(new, secret)
            user.revoke(user.key)

    store._client().meta.events.register("before-call.s3.UploadPart", rotate)
    store.put_file("large", tmp_path / "large")
    assert rotated
    assert store.get("large") == (tmp_path / "large").read_bytes()


def test_many_threads(store: S3Store, user: User, write: Write) -> None:
    with unenforced():
        new, secret = user.add_key()
    write(new, secret)
    user.revoke(user.key)
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _number: store.get("a"), range(32))) == {b"before"}


def test_the_new_key_comes_late(store: S3Store, user: User, write: Write) -> None:
    """The kubelet takes a minute: what worked before is waited for, with the patience of any interruption."""
    with unenforced():
        new, secret = user.add_key()
    user.revoke(user.key)
    operations: list[Callable[[], object]] = [lambda: store.put("b", b"1"), lambda: store.put_if_absent("b", b"1"), lambda: store.head("a")]
    for operation in operations:
        with pytest.raises(UnavailableError, match="credentials worked before, and have not been replaced yet"):
            operation()
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            write(new, secret)

    RetryingStore(store, RetryPolicy(budget_s=60), sleep=sleep).put_if_absent("b", b"1")
    assert len(slept) == 3
    assert store.get("b") == b"1"


def test_a_half_written_source(store: S3Store, user: User, write: Write) -> None:
    """The new key's id with the old key's secret, and a file with nothing in it: neither is the end."""
    with unenforced():
        new, secret = user.add_key()
    user.revoke(user.key)
    write(new, user.secret)
    with pytest.raises(UnavailableError, match="SignatureDoesNotMatch"):
        store.get("a")
    write("", "")
    with pytest.raises(UnavailableError, match="SignatureDoesNotMatch"):
        store.get("a")
    write(new, secret)
    assert store.get("a") == b"before"


def test_credentials_that_never_worked(server: S3Server, user: User, write: Write) -> None:
    """A wrong key at the start is said at once."""
    write(user.key, "not-the-secret-of-this-key")
    store = S3Store(BUCKET, PREFIX, StorageSettings(endpoint=server.endpoint, region="us-east-1"), limits=LIMITS)
    with pytest.raises(InvalidInputError, match=r"checkpointing\.storage: .*secret access key") as caught:
        store.put("a", b"x")
    assert "not-the-secret" not in str(caught.value)


def test_a_source_that_is_empty_at_first(server: S3Server, user: User, write: Write) -> None:
    """The store need not be made anew when it is filled."""
    write("", "")
    store = S3Store(BUCKET, f"{PREFIX}/x", StorageSettings(endpoint=server.endpoint, region="us-east-1"), limits=LIMITS)
    with pytest.raises(InvalidInputError, match="no usable credentials"):
        store.put("a", b"x")
    write(user.key, user.secret)
    store.put("a", b"x")


def test_credentials_of_the_manifest_cannot_change(server: S3Server, user: User) -> None:
    settings = StorageSettings(endpoint=server.endpoint, region="us-east-1", access_key_id=user.key, secret_access_key=user.secret)
    store = S3Store(BUCKET, f"{PREFIX}/y", settings, limits=LIMITS)
    store.put("a", b"x")
    user.revoke(user.key)
    with pytest.raises(InvalidInputError, match=r"checkpointing\.storage: .*InvalidAccessKeyId"):
        store.put("a", b"x")


def test_web_identity(server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As on EKS: a session that the service refuses is replaced by a new one, for the token that the file holds by then."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(TokenResponse, "_authenticate_and_authorize_normal_action", lambda _self, _resource="*": None)  # it is not signed
    with unenforced():
        role = User(server).role(STATEMENTS)
    token = tmp_path / "token"
    token.write_text("first")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    monkeypatch.setenv("AWS_ROLE_ARN", role)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.endpoint)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    sessions = sts_backends[DEFAULT_ACCOUNT_ID]["aws"].assumed_roles
    sessions.clear()
    store = S3Store(BUCKET, f"{PREFIX}/z", StorageSettings(endpoint=server.endpoint), limits=LIMITS)
    store.put("a", b"x")
    assert len(sessions) == 1
    sessions.clear()  # the service knows the session no more
    token.write_text("second")
    assert store.get("a") == b"x"
    assert len(sessions) == 1
    sessions.clear()
    token.unlink()  # no new one can be had for now
    with pytest.raises(UnavailableError, match="worked before"):
        store.get("a")
    token.write_text("third")
    assert store.get("a") == b"x"
