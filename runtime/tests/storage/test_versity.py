"""S3Store on a second server of other authors: what moto forgives, it may not."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import boto3
import pytest
from runtime.tests.s3_server import BUCKET
from runtime.tests.storage.flaky_proxy import Fault, FlakyProxy
from runtime.tests.versity import SECRET, USER, Versity, versity_server

from statefulspark.errors import ConflictError, InvalidInputError, UnavailableError
from statefulspark.faults.storage import FaultPlan, FaultyStore
from statefulspark.storage.limits import S3Limits
from statefulspark.storage.open import check_reachable, open_store
from statefulspark.storage.retrying import RetryingStore, RetryPolicy
from statefulspark.storage.s3.objects import S3Checksum, S3ObjectSettings
from statefulspark.storage.s3.store import S3Store
from statefulspark.storage.storage_settings import StorageSettings
from statefulspark.testing.object_store import ObjectStoreContract

pytestmark = pytest.mark.versity

LIMITS = S3Limits(part_bytes=5 << 20, copy_part_bytes=5 << 20, connect_timeout_s=2, read_timeout_s=5, attempts=1)
QUICK = RetryPolicy(budget_s=30, wait_s_first=0.001, wait_s_max=0.01)
TAGS = S3ObjectSettings(tags=(("team", "data: a+b=c @home"),), kind_tag="kind", storage_class="STANDARD", checksum=S3Checksum.SHA256)
SETTINGS = {"defaults": S3ObjectSettings(), "tags-and-sha256": TAGS, "no-checksums": S3ObjectSettings(checksum=S3Checksum.NONE)}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Versity]:
    with versity_server(tmp_path_factory.mktemp("versity")) as server:
        yield server


@pytest.fixture
def settings(server: Versity) -> StorageSettings:
    return StorageSettings(endpoint=server.endpoint, region="us-east-1", access_key_id=USER, secret_access_key=SECRET)


@pytest.fixture
def prefix() -> str:
    return f"tests/{uuid.uuid4().hex}"


class TestContract(ObjectStoreContract):
    """Under each way to write objects."""

    @pytest.fixture(params=SETTINGS)
    def store(self, request: pytest.FixtureRequest, settings: StorageSettings, prefix: str) -> S3Store:
        """An empty store."""
        return S3Store(BUCKET, prefix, replace(settings, s3=SETTINGS[request.param]), limits=LIMITS)


class TestContractUnderFaults(ObjectStoreContract):
    """30 % of all attempts fail."""

    @pytest.fixture
    def store(self, settings: StorageSettings, prefix: str) -> RetryingStore:
        """Server, faults, retries."""
        return RetryingStore(FaultyStore(S3Store(BUCKET, prefix, settings, limits=LIMITS), FaultPlan(rate=0.3, seed=11)), QUICK)


def test_it_honors_conditions_without_help(settings: StorageSettings, prefix: str) -> None:
    """Of many writers at once, one creates the object, each time. No lock in between, unlike the tests on moto."""
    stores = [S3Store(BUCKET, prefix, settings, limits=replace(LIMITS, attempts=3)) for _ in range(8)]
    for number in range(20):
        barrier = threading.Barrier(len(stores))

        def create(writer: int, key: str = f"claim-{number}", barrier: threading.Barrier = barrier) -> bool:
            barrier.wait()
            try:
                RetryingStore(stores[writer], QUICK).put_if_absent(key, f"{writer}".encode())
            except ConflictError:
                return False
            return True

        with ThreadPoolExecutor(len(stores)) as pool:
            won = list(pool.map(create, range(len(stores))))
        assert sum(won) == 1
        assert stores[0].get(f"claim-{number}") == f"{won.index(True)}".encode()


@pytest.mark.parametrize("fault", [Fault(forward=True), Fault(forward=True, silent=True), Fault(forward=True, status=500)])
def test_lost_replies(server: Versity, settings: StorageSettings, prefix: str, fault: Fault) -> None:
    """Written, and the reply was lost: success, also when the client's own retry is told that the object exists."""
    with closing(FlakyProxy("127.0.0.1", server.port)) as proxy:
        for attempts in (1, 3):
            limits = replace(LIMITS, attempts=attempts, read_timeout_s=0.5)
            store = S3Store(BUCKET, prefix, replace(settings, endpoint=proxy.url), limits=limits)
            proxy.matches, proxy.faults = lambda method, _path: method == "PUT", [fault]
            store.put_if_absent(f"claim-{attempts}", b"mine")
            assert not proxy.faults
            with pytest.raises(ConflictError):
                store.put_if_absent(f"claim-{attempts}", b"yours")


def test_it_is_killed_within_an_upload(server: Versity, settings: StorageSettings, prefix: str, tmp_path: Path) -> None:
    """No object, no half of one; with retries, the upload goes on when the server is back."""
    (tmp_path / "large").write_bytes(os.urandom(21 << 20))
    store = S3Store(BUCKET, prefix, settings, limits=LIMITS)
    store.put("before", b"x")
    killed = threading.Event()

    def kill(**_: object) -> None:
        if not killed.is_set():
            killed.set()
            server.kill()

    store._client().meta.events.register("after-call.s3.UploadPart", kill)
    with pytest.raises(UnavailableError):
        store.put_file("large", tmp_path / "large")
    assert killed.is_set()
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            server.start()

    patient = RetryingStore(store, RetryPolicy(budget_s=60), sleep=sleep)
    assert patient.head("large") is None
    assert [info.key for info in patient.list("")] == ["before"]
    patient.put_file("large", tmp_path / "large")
    assert patient.get("large") == (tmp_path / "large").read_bytes()


def test_tags_arrive(settings: StorageSettings, prefix: str, tmp_path: Path) -> None:
    """With each way to write, copies included."""
    store = S3Store(BUCKET, prefix, replace(settings, s3=TAGS), limits=LIMITS)
    (tmp_path / "large").write_bytes(b"x" * (11 << 20))
    store.put("put", b"x")
    store.put_if_absent("created", b"x")
    store.put_file("large", tmp_path / "large")
    store.copy("put", "savepoint-shop-0123456789ab/_metadata")
    store.copy("large", "chk-1/_metadata")
    client = boto3.client(
        "s3", endpoint_url=settings.endpoint, region_name="us-east-1", aws_access_key_id=USER, aws_secret_access_key=SECRET
    )
    kinds = {}
    for info in store.list(""):
        found = client.get_object_tagging(Bucket=BUCKET, Key=f"{prefix}/{info.key}")["TagSet"]
        tags = {each["Key"]: each["Value"] for each in found}
        kinds[info.key] = tags.pop("kind")
        assert tags == {"team": "data: a+b=c @home"}
    assert kinds == {
        "put": "record",
        "created": "record",
        "large": "record",
        "savepoint-shop-0123456789ab/_metadata": "savepoint",
        "chk-1/_metadata": "checkpoint",
    }


def test_start_of_a_job(settings: StorageSettings, prefix: str) -> None:
    check_reachable(open_store(f"s3://{BUCKET}/{prefix}", settings))
    with pytest.raises(InvalidInputError, match=r"checkpointing\.dir: .*NoSuchBucket"):
        check_reachable(open_store(f"s3://no-such-bucket/{prefix}", settings))
    with pytest.raises(InvalidInputError, match=r"checkpointing\.storage: .*secret access key"):
        check_reachable(open_store(f"s3://{BUCKET}/{prefix}", replace(settings, secret_access_key="another")))
