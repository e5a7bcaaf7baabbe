"""S3Store beyond the contract: what it does with a service that fails, refuses, or loses its replies.

The faults happen on real sockets, in a proxy between boto3 and the server.
"""

from __future__ import annotations

import logging
import os
import pickle
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import boto3
import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from runtime.tests.s3_server import BUCKET
from runtime.tests.storage.flaky_proxy import Fault, FlakyProxy

from statefulspark.errors import ClosedError, ConflictError, CorruptDataError, InvalidInputError, UnavailableError
from statefulspark.storage.cancellation import Cancellation
from statefulspark.storage.limits import S3Limits
from statefulspark.storage.s3.store import S3Store
from statefulspark.storage.storage_settings import StorageSettings

RESET = Fault()
LOST_BY_RESET = Fault(forward=True)
LOST_BY_SILENCE = Fault(forward=True, silent=True)
LOST_BY_ERROR = Fault(forward=True, status=500)
NEVER_ARRIVED = Fault(status=503, code="SlowDown")
PATIENT = S3Limits(attempts=3, connect_timeout_s=2, read_timeout_s=1)
IMPATIENT = S3Limits(attempts=1, connect_timeout_s=1, read_timeout_s=1)

Make = Callable[..., S3Store]


def puts(method: str, _path: str) -> bool:
    return method == "PUT"


@pytest.fixture
def make(settings: StorageSettings) -> Make:
    """Make stores on one and the same prefix, which differ in their limits."""
    prefix = f"tests/{uuid.uuid4().hex}"
    return lambda limits=IMPATIENT: S3Store(BUCKET, prefix, settings, limits=limits)


class TestConditionalWrites:
    """Exactly once, whatever happens to the reply."""

    @pytest.mark.parametrize("fault", [LOST_BY_RESET, LOST_BY_SILENCE, LOST_BY_ERROR])
    @pytest.mark.parametrize("limits", [IMPATIENT, PATIENT], ids=["without", "with"])
    def test_lost_reply_is_success(self, make: Make, proxy: FlakyProxy, fault: Fault, limits: S3Limits) -> None:
        """Written, but the reply was lost: success, also when boto3's own retry is told that the object exists."""
        store = make(replace(limits, read_timeout_s=0.3))
        proxy.matches, proxy.faults = puts, [fault]
        store.put_if_absent("claim", b"mine")
        assert not proxy.faults
        with pytest.raises(ConflictError):
            store.put_if_absent("claim", b"yours")
        assert store.get("claim") == b"mine"

    @pytest.mark.parametrize("fault", [RESET, NEVER_ARRIVED, Fault(silent=True)])
    def test_unknown_is_not_success(self, make: Make, proxy: FlakyProxy, fault: Fault) -> None:
        """No answer and no object: the caller must repeat, and may."""
        store = make()
        proxy.matches, proxy.faults = puts, [fault]
        with pytest.raises(UnavailableError):
            store.put_if_absent("claim", b"mine")
        assert store.head("claim") is None
        store.put_if_absent("claim", b"mine")

    @pytest.mark.parametrize("fault", [LOST_BY_RESET, NEVER_ARRIVED])
    def test_another_writer_was_first(self, make: Make, proxy: FlakyProxy, fault: Fault) -> None:
        """An ambiguous failure against an existing object of somebody else is a conflict."""
        store = make()
        store.put("claim", b"theirs")
        proxy.matches, proxy.faults = puts, [fault]
        with pytest.raises(ConflictError, match="claim"):
            store.put_if_absent("claim", b"mine")
        assert store.get("claim") == b"theirs"

    def test_concurrent_conditional_writes(self, make: Make, proxy: FlakyProxy) -> None:
        """S3 answers 409 while another conditional write is under way; when that one comes to nothing, ours is repeated."""
        proxy.matches, proxy.faults = puts, [Fault(status=409, code="ConditionalRequestConflict")] * 3
        make().put_if_absent("claim", b"mine")
        assert not proxy.faults
        assert make().get("claim") == b"mine"

    def test_storage_dies_before_the_read_back(self, make: Make, proxy: FlakyProxy) -> None:
        """Undecided is reported as such."""
        proxy.faults = [LOST_BY_RESET, RESET]
        with pytest.raises(UnavailableError):
            make().put_if_absent("claim", b"mine")

    def test_refusal_is_no_conflict(self, make: Make, proxy: FlakyProxy) -> None:
        """A right that is missing is said at once, without a read."""
        proxy.matches, proxy.faults = puts, [Fault(status=403, code="AccessDenied")]
        with pytest.raises(InvalidInputError, match="s3:PutObject"):
            make().put_if_absent("claim", b"mine")
        assert [method for method, _ in proxy.requests] == ["PUT"]

    def test_moto_honours_the_header(self, proxy: FlakyProxy) -> None:
        """The tests above mean something only on a server that refuses the second write by itself."""
        s3 = boto3.client(
            "s3",
            endpoint_url="http://{}:{}".format(*proxy.target),
            region_name="us-east-1",
            aws_access_key_id="a",
            aws_secret_access_key="b",
        )
        key = uuid.uuid4().hex
        s3.put_object(Bucket=BUCKET, Key=key, Body=b"1", IfNoneMatch="*")
        with pytest.raises(s3.exceptions.ClientError, match="PreconditionFailed"):
            s3.put_object(Bucket=BUCKET, Key=key, Body=b"2", IfNoneMatch="*")


class TestRetries:
    """Inside the client, a few; then the word goes up."""

    @pytest.mark.parametrize("fault", [RESET, NEVER_ARRIVED, Fault(status=500), Fault(status=503, code="ServiceUnavailable")])
    def test_transient_faults_pass(self, make: Make, proxy: FlakyProxy, fault: Fault) -> None:
        """Two failures in a row are not noticed."""
        store = make(PATIENT)
        proxy.faults = [fault, fault]
        store.put("a", b"x")
        proxy.faults = [fault, fault]
        assert store.get("a") == b"x"

    @pytest.mark.parametrize("fault", [RESET, NEVER_ARRIVED, Fault(status=500), Fault(silent=True)])
    def test_attempts_are_bounded(self, make: Make, proxy: FlakyProxy, fault: Fault) -> None:
        """Then it is unavailable, and the text says what to look at."""
        store = make(replace(PATIENT, read_timeout_s=0.2))
        proxy.faults = [fault] * 10
        with pytest.raises(UnavailableError, match=rf"{store.url}/a: "):
            store.get("a")
        assert len(proxy.requests) == PATIENT.attempts

    def test_nobody_listens(self, settings: StorageSettings) -> None:
        """A refused connection names the endpoint's field."""
        store = S3Store(BUCKET, "", replace(settings, endpoint="http://127.0.0.1:9"), limits=IMPATIENT)
        for operation in (
            lambda: store.get("a"),
            lambda: store.list(""),
            lambda: store.put_if_absent("a", b""),
            lambda: store.delete(["a"]),
        ):
            with pytest.raises(UnavailableError, match=r"checkpointing\.storage\.endpoint"):
                operation()

    def test_download_breaks_off(self, make: Make, proxy: FlakyProxy, tmp_path: Path) -> None:
        """The old file stays and nothing else is left."""
        store = make()
        store.put("a", b"x" * 100)
        target = tmp_path / "target"
        target.write_bytes(b"old")
        proxy.matches, proxy.faults = lambda method, _path: method == "GET", [RESET] * 20
        with pytest.raises(UnavailableError):
            store.get_file("a", target)
        assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("target", b"old")]


class TestRefusals:
    """Each says which field of the manifest is wrong and what to do."""

    @pytest.mark.parametrize(
        ("status", "code", "text"),
        [
            (403, "AccessDenied", r"checkpointing\.dir.*AccessDenied.*Grant s3:(Get|Put)Object on "),
            (404, "NoSuchBucket", r"checkpointing\.dir.*NoSuchBucket.*Create the bucket"),
            (403, "InvalidAccessKeyId", r"checkpointing\.storage.*access key id"),
            (403, "SignatureDoesNotMatch", r"checkpointing\.storage.*secret access key"),
            (400, "ExpiredToken", r"checkpointing\.storage.*Renew"),
            (400, "AuthorizationHeaderMalformed", r"checkpointing\.storage\.region.*region"),
            (501, "NotImplemented", r"checkpointing\.storage\.endpoint.*conditional"),
            (400, "EntityTooLarge", r"checkpointing\.storage.*EntityTooLarge.*documentation"),
        ],
    )
    def test_by_code(self, make: Make, proxy: FlakyProxy, status: int, code: str, text: str) -> None:
        """On reads and writes alike."""
        for operation in (lambda: make().get("a"), lambda: make().put("a", b""), lambda: make().put_if_absent("a", b"")):
            proxy.faults = [Fault(status=status, code=code)]
            with pytest.raises(InvalidInputError, match=text):
                operation()
            proxy.faults.clear()

    @pytest.mark.parametrize(
        ("status", "code", "text"),
        [(403, "AccessDenied", "Grant s3:GetObject on .*s3:ListBucket"), (403, "InvalidToken", "session token")],
    )
    def test_by_status(self, make: Make, proxy: FlakyProxy, status: int, code: str, text: str) -> None:
        """A HEAD has no body, hence no code: a GET asks for it."""
        proxy.faults = [Fault(status=status), Fault(status=status, code=code)]
        with pytest.raises(InvalidInputError, match=text):
            make().head("a")
        assert [method for method, _ in proxy.requests] == ["HEAD", "GET"]

    def test_a_refusal_that_passes(self, make: Make, proxy: FlakyProxy) -> None:
        """The GET answers as the HEAD would have."""
        store = make()
        store.put("a", b"abc")
        expected = store.head("a")
        assert expected is not None
        proxy.faults = [Fault(status=403)]
        assert store.head("a") == expected
        proxy.faults = [Fault(status=403)]
        assert store.head("absent") is None

    def test_missing_bucket(self, settings: StorageSettings) -> None:
        """By the server's own answer, not ours."""
        store = S3Store("nowhere", "", settings, limits=IMPATIENT)
        for operation in (lambda: store.get("a"), lambda: store.put("a", b""), lambda: store.list(""), lambda: store.delete(["a"])):
            with pytest.raises(InvalidInputError, match=r"checkpointing\.dir.*NoSuchBucket"):
                operation()

    def test_no_credentials(self, settings: StorageSettings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """None in the manifest, none in the environment, no role."""
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
        store = S3Store(BUCKET, "", StorageSettings(endpoint=settings.endpoint))
        with pytest.raises(InvalidInputError, match=r"checkpointing\.storage.*no usable credentials.*AWS_"):
            store.get("a")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        again = S3Store(BUCKET, f"tests/{uuid.uuid4().hex}", StorageSettings(endpoint=settings.endpoint))
        again.put("a", b"x")
        assert again.get("a") == b"x"

    def test_unknown_profile(self, settings: StorageSettings, monkeypatch: pytest.MonkeyPatch) -> None:
        """The client cannot even be made."""
        monkeypatch.setenv("AWS_PROFILE", "nobody")
        with pytest.raises(InvalidInputError, match=r"checkpointing\.storage.*ProfileNotFound"):
            S3Store(BUCKET, "", StorageSettings(endpoint=settings.endpoint)).get("a")

    def test_bad_bucket_name(self, settings: StorageSettings) -> None:
        """Refused before anything is sent."""
        with pytest.raises(InvalidInputError, match="bucket's name"):
            S3Store("no bucket!", "", settings).get("a")


class TestSecrets:
    """Credentials travel to executors and nowhere else."""

    def test_hidden(self, make: Make, proxy: FlakyProxy, settings: StorageSettings, caplog: pytest.LogCaptureFixture) -> None:
        """Not in representations, errors or logs; the pickled store works."""
        store = make()
        caplog.set_level(logging.INFO)
        proxy.faults = [Fault(status=403, code="SignatureDoesNotMatch")]
        with pytest.raises(InvalidInputError) as caught:
            store.get("a")
        for text in (repr(store), repr(settings), str(caught.value), repr(caught.value), caplog.text, store.url):
            assert "very-secret" not in text
            assert "access_key_id" not in text
        again = pickle.loads(pickle.dumps(store))
        again.put("a", b"x")
        assert store.get("a") == b"x"


class TestTransfers:
    """Large objects go in parts; checksums travel with the bytes."""

    def test_large_files_go_in_parts(self, s3_store: S3Store, proxy: FlakyProxy, tmp_path: Path) -> None:
        """Upload and copy of 6 MiB with parts of 5 use two parts each; 4 MiB use one request."""
        (tmp_path / "large").write_bytes(b"x" * (6 << 20))
        (tmp_path / "small").write_bytes(b"x" * (4 << 20))
        s3_store.put_file("large", tmp_path / "large")
        assert sum("partNumber=" in path for _, path in proxy.requests) == 2
        s3_store.copy("large", "copy")
        assert sum("partNumber=" in path for _, path in proxy.requests) == 4
        proxy.requests.clear()
        s3_store.put_file("small", tmp_path / "small")
        assert [method for method, _ in proxy.requests] == ["PUT"]

    def test_torn_upload_leaves_nothing(self, s3_store: S3Store, proxy: FlakyProxy, tmp_path: Path) -> None:
        """A part that fails makes the whole upload fail: no object, and no parts that cost money."""
        (tmp_path / "large").write_bytes(b"x" * (6 << 20))
        proxy.matches, proxy.faults = lambda _method, path: "partNumber=2" in path, [NEVER_ARRIVED] * 20
        with pytest.raises(UnavailableError, match="SlowDown"):
            s3_store.put_file("large", tmp_path / "large")
        assert s3_store.list("") == []
        assert not s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[BUCKET].multiparts

    def test_a_canceled_upload_leaves_nothing(self, s3_store: S3Store, proxy: FlakyProxy, tmp_path: Path) -> None:
        """It ends between two parts: those that have not begun are not sent, and no parts that cost money are left."""
        (tmp_path / "large").write_bytes(b"x" * (40 << 20))
        cancellation = Cancellation("canceled")
        answered: list[str] = []

        def cancel_at_the_first_part(_method: str, path: str) -> bool:
            if "partNumber=" in path:
                answered.append(path)
                cancellation.cancel()
            return False

        proxy.matches = cancel_at_the_first_part
        proxy.faults = [NEVER_ARRIVED]
        with pytest.raises(ClosedError, match="canceled"):
            s3_store.put_file("large", tmp_path / "large", cancellation)
        assert 1 <= len(answered) < 8
        assert s3_store.list("") == []
        assert not s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[BUCKET].multiparts
        proxy.requests.clear()
        with pytest.raises(ClosedError, match="canceled"):
            s3_store.put_file("large", tmp_path / "large", cancellation)
        assert proxy.requests == []

    def test_checksums(self, s3_store: S3Store, proxy: FlakyProxy) -> None:
        """Each write carries one, and bytes damaged on the way down are not given to anybody."""
        s3_store.put("a", b"x" * 100)
        s3_store.put_if_absent("b", b"x" * 100)
        assert all("x-amz-checksum-crc32" in {name.lower() for name in headers} for headers in proxy.headers)
        proxy.faults = [Fault(damage=True)]
        with pytest.raises(CorruptDataError, match=f"{s3_store.url}/a: "):
            s3_store.get("a")


class TestMany:
    """More than one page, more than one request."""

    def test_pages_and_batches(self, s3_store: S3Store, proxy: FlakyProxy) -> None:
        """Lists go over pages of 1000, deletes over batches of 1000; folders too."""
        prefix = s3_store.url.removeprefix(f"s3://{BUCKET}/")
        backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        keys = [f"{i:04d}/x" for i in range(1001)]
        for key in keys:
            backend.put_object(BUCKET, f"{prefix}/{key}", b"x")
        assert [info.key for info in s3_store.list("")] == keys
        assert len(s3_store.list_folders("")) == 1001
        proxy.requests.clear()
        s3_store.delete(keys)
        assert [method for method, _ in proxy.requests] == ["POST", "POST"]
        assert s3_store.list("") == []

    @pytest.mark.parametrize(
        ("code", "error"), [("AccessDenied", InvalidInputError), ("InternalError", UnavailableError), ("SlowDown", UnavailableError)]
    )
    def test_one_key_of_a_batch_fails(self, make: Make, proxy: FlakyProxy, code: str, error: type[Exception]) -> None:
        """The answer is 200 all the same; the key is named."""
        body = f"<DeleteResult><Error><Key>tests/b</Key><Code>{code}</Code><Message>no</Message></Error></DeleteResult>"
        proxy.faults = [Fault(status=200, body=body.encode())]
        with pytest.raises(error, match=f"tests/b.*{code}"):
            make().delete(["a", "b"])

    def test_console_folders_are_no_objects(self, s3_store: S3Store) -> None:
        """Consoles make empty objects called "folder/"."""
        prefix = s3_store.url.removeprefix(f"s3://{BUCKET}/")
        s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(BUCKET, f"{prefix}/folder/", b"")
        assert s3_store.list("") == []


def test_a_fork_makes_its_own_client(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sockets of the parent must not be used by the child: their answers would mix."""
    store = make()
    parent = store._client()
    assert store._client() is parent
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert store._client() is not parent


def test_whole_bucket(settings: StorageSettings) -> None:
    """A store without a prefix sees keys as they are."""
    store = S3Store(BUCKET, "", settings)
    key = f"whole-{uuid.uuid4().hex}/x"
    store.put(key, b"x")
    assert store.url == f"s3://{BUCKET}"
    assert [info.key for info in store.list(key)] == [key]
    assert key.partition("/")[0] in store.list_folders("")
