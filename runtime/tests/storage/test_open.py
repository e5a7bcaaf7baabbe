"""From URL to store, and the probe before a job starts."""

from __future__ import annotations

import pickle
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from runtime.tests.s3_server import BUCKET
from runtime.tests.storage.flaky_proxy import Fault, FlakyProxy

from statefulspark.errors import InvalidInputError, UnavailableError
from statefulspark.faults.storage import FAULTS_ENVIRONMENT, FaultPlan, FaultyStore
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.local.store import LocalStore
from statefulspark.storage.open import StorageSettings, check_reachable, open_store
from statefulspark.storage.retrying import RetryingStore
from statefulspark.storage.s3.store import S3Store


def inner(url: str, settings: StorageSettings | None = None) -> ObjectStore:
    store = open_store(url, settings)
    assert isinstance(store, RetryingStore)
    assert store.url == store.inner.url
    return store.inner


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("/data/x", "/data/x"),
        ("/data/a:b", "/data/a:b"),
        ("file:///data/x", "/data/x"),
        ("file:/data/x/", "/data/x"),
        ("file://localhost/data/x", "/data/x"),
        ("file:///a%20b%3F", "/a b?"),
        ("file:///a b", "/a b"),
    ],
)
def test_local_urls(url: str, path: str) -> None:
    """All ways that people write a folder, and the URL of a store leads back to it."""
    store = inner(url)
    assert store == LocalStore(Path(path))
    assert inner(store.url) == store


def test_plain_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Relative ones are fixed at once, so that executors see the same folder; ~ is the home."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert inner("state/x") == LocalStore(tmp_path / "state" / "x")
    assert inner("~/x") == LocalStore(tmp_path / "home" / "x")


@pytest.mark.parametrize("url", ["s3://bucket", "s3://bucket/", "s3://bucket/a/b", "s3://bucket/a/b/"])
def test_s3_urls(url: str) -> None:
    """With and without a prefix; a slash at the end means nothing."""
    store = inner(url)
    assert isinstance(store, S3Store)
    assert store.url == url.rstrip("/")


@pytest.mark.parametrize("url", ["gs://bucket_1", "gs://bucket/a/b/", "abfss://states@account.dfs.core.windows.net/a b/"])
def test_other_urls(url: str) -> None:
    """The URL of a store leads back to it."""
    store = inner(url)
    assert store.url == url.rstrip("/")
    assert inner(store.url).url == store.url


@pytest.mark.parametrize(("url", "extra"), [("gs://bucket/x", "gcs"), ("abfss://states@account.dfs.core.windows.net/x", "azure")])
def test_missing_extras(url: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that is not installed is named by its extra."""
    monkeypatch.delitem(sys.modules, f"statefulspark.storage.{extra}", raising=False)
    for library in ("google.cloud.storage", "google.cloud", "azure.storage.blob"):
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InvalidInputError, match=rf'optional extra {extra}.*pip install "statefulspark\[{extra}\]"'):
        open_store(url)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("gs://", "bucket and prefix"),
        ("gs:bucket", "no slashes"),
        ("gs://user:pw@bucket/x", "must contain only bucket"),
        ("gcs://bucket/x", "gcs.*Write gs://"),
        ("abfs://states@account.dfs.core.windows.net/x", "Write abfss://"),
        ("abfss://states@evil.example.com/x", "names no container of an account.*abfss://container@"),
        ("abfss://account.dfs.core.windows.net/x", "names no container"),
        ("", "empty.*Give s3://"),
        ("s3a://bucket/x", "s3a.*Write s3://"),
        ("ftp://host/x", "ftp.*Give s3://"),
        ("http://host/x", "http"),
        ("file://data/x", "host 'data'.*three slashes"),
        ("file:data", "not absolute"),
        ("file:///a?b", "%3F"),
        ("s3:bucket", "slashes"),
        ("s3://", "no bucket"),
        ("s3:///x", "no bucket"),
        ("s3://bucket/a//b", "empty"),
        ("s3://bucket/../b", r"'\.\.'"),
        ("s3://key:secret@bucket/x", "only bucket and prefix.*credentials"),
    ],
)
def test_bad_urls(url: str, text: str) -> None:
    """Each names the field and the remedy, and repeats no secret."""
    with pytest.raises(InvalidInputError, match=rf"checkpointing\.dir.*{text}") as caught:
        open_store(url)
    assert "secret@" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"endpoint": "minio:9000"}, r"storage\.endpoint.*http://"),
        ({"endpoint": "http://key:secret@minio"}, r"storage\.endpoint.*credentials"),
        ({"access_key_id": "a"}, "both"),
        ({"secret_access_key": "secret"}, "both"),
        ({"session_token": "secret"}, "all three"),
    ],
)
def test_bad_settings(settings: dict[str, str], text: str) -> None:
    """What could never work is refused when it is made."""
    with pytest.raises(InvalidInputError, match=text) as caught:
        StorageSettings(**settings)  # type: ignore[arg-type]  # the parametrized names are strings only
    assert "secret@" not in str(caught.value)


def test_settings_hide_secrets() -> None:
    """In logs and errors."""
    text = repr(StorageSettings(access_key_id="AKIA", secret_access_key="very-secret", session_token="token-secret"))
    assert "AKIA" not in text
    assert "secret" not in text


def test_faults_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The test hook sits below the retries; a slip in it is an error, not silence."""
    monkeypatch.setenv(FAULTS_ENVIRONMENT, "seed=7,rate=0.5")
    store = inner(str(tmp_path))
    assert isinstance(store, FaultyStore)
    assert repr(FaultPlan(seed=7, rate=0.5)) in repr(store)
    monkeypatch.setenv(FAULTS_ENVIRONMENT, "sede=7")
    with pytest.raises(InvalidInputError, match=FAULTS_ENVIRONMENT):
        open_store(str(tmp_path))


def test_local_jobs_do_not_load_boto3(tmp_path: Path) -> None:
    """It takes longer to load than a small job runs."""
    code = f"import sys; from statefulspark.storage.open import open_store; open_store({str(tmp_path)!r}); sys.exit('boto3' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_opened_stores_are_picklable(settings: StorageSettings, tmp_path: Path) -> None:
    """As a whole stack."""
    for store in (open_store(str(tmp_path)), open_store(f"s3://{BUCKET}/tests/{uuid.uuid4().hex}", settings)):
        again = pickle.loads(pickle.dumps(store))
        again.put("a", b"x")
        assert store.get("a") == b"x"


class TestProbe:
    """``check_reachable``: one object, gone afterwards."""

    def test_good_stores(self, settings: StorageSettings, tmp_path: Path) -> None:
        """Nothing is left behind."""
        for store in (open_store(str(tmp_path)), open_store(f"s3://{BUCKET}/tests/{uuid.uuid4().hex}", settings)):
            check_reachable(store)
            assert store.list("") == []

    def test_conditions_that_are_not_honoured(self, s3_store: S3Store, proxy: FlakyProxy) -> None:
        """A service that overwrites in spite of If-None-Match would let two drivers corrupt a job: refused."""
        proxy.ignore_conditions = True
        with pytest.raises(InvalidInputError, match=r"checkpointing\.dir.*conditional write.*MinIO"):
            check_reachable(s3_store)
        assert s3_store.list("") == []

    def test_nobody_listens(self, settings: StorageSettings) -> None:
        """Unavailable, with the field to look at."""
        store = open_store(f"s3://{BUCKET}", replace(settings, endpoint="http://127.0.0.1:9"))
        assert isinstance(store, RetryingStore)
        quick = replace(store, sleep=lambda _s: None, clock=iter(range(0, 1000, 5)).__next__)
        with pytest.raises(UnavailableError, match=r"checkpointing\.storage\.endpoint.*gave up put_if_absent after 2 attempts in"):
            check_reachable(quick)

    def test_refused(self, s3_store: S3Store, proxy: FlakyProxy) -> None:
        """Rights."""
        proxy.faults = [Fault(status=403, code="AccessDenied")]
        with pytest.raises(InvalidInputError, match=r"checkpointing\.dir.*s3:PutObject"):
            check_reachable(s3_store)

    def test_missing_bucket(self, settings: StorageSettings) -> None:
        """A slip in the URL."""
        with pytest.raises(InvalidInputError, match=r"checkpointing\.dir.*NoSuchBucket.*Create the bucket"):
            check_reachable(open_store("s3://nowhere/x", settings))

    def test_local_folder_below_a_file(self, tmp_path: Path) -> None:
        """A slip in the path."""
        (tmp_path / "file").write_bytes(b"")
        with pytest.raises(InvalidInputError, match=r"checkpointing\.dir.*folder"):
            check_reachable(open_store(str(tmp_path / "file" / "x")))
