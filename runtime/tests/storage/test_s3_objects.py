"""Encryption, checksum, storage class and tags: every way to write an object says them, as a real server has received them."""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import FakeKey, s3_backends
from runtime.tests.s3_server import BUCKET
from runtime.tests.storage.flaky_proxy import Fault, FlakyProxy

from statefulspark.checkpoint.formats import paths
from statefulspark.errors import CorruptDataError, InvalidInputError
from statefulspark.keygroups import KeyGroupRange
from statefulspark.rpc.codec import decode, encode
from statefulspark.rpc.messages.conversion import Conversion
from statefulspark.storage.keys import probe_key
from statefulspark.storage.limits import S3Limits
from statefulspark.storage.object_kinds import kind_of_object
from statefulspark.storage.s3.objects import S3Checksum, S3Encryption, S3ObjectSettings
from statefulspark.storage.s3.store import S3Store
from statefulspark.storage.storage_settings import StorageSettings

PART = 5 << 20
CHECKPOINT = "chk-7/slot-0-abcdef00/file"
SAVEPOINT = "savepoint-shop-0123456789ab/slot-0-abcdef00/file"
KMS_KEY = "arn:aws:kms:us-east-1:123456789012:key/8d7b0e0a-0000-4000-8000-000000000000"
ALL = S3ObjectSettings(
    encryption=S3Encryption.SSE_KMS,
    kms_key_id=KMS_KEY,
    bucket_key=True,
    storage_class="STANDARD_IA",
    savepoint_storage_class="GLACIER_IR",
    tags=(("team", "data: a+b=c @home"), ("cost center", "7/8=9")),
    kind_tag="statefulspark-kind",
)

Make = Callable[[S3ObjectSettings], S3Store]


@pytest.fixture
def make(settings: StorageSettings, limits: S3Limits) -> Make:
    prefix = f"tests/{uuid.uuid4().hex}"
    return lambda objects: S3Store(BUCKET, prefix, replace(settings, s3=objects), limits=limits)


def put(store: S3Store, key: str, _folder: Path) -> None:
    store.put(key, b"x")


def put_if_absent(store: S3Store, key: str, _folder: Path) -> None:
    store.put_if_absent(key, b"x")


def put_small_file(store: S3Store, key: str, folder: Path) -> None:
    (folder / "small").write_bytes(b"x")
    store.put_file(key, folder / "small")


def put_large_file(store: S3Store, key: str, folder: Path) -> None:
    (folder / "large").write_bytes(b"x" * (PART + 1))
    store.put_file(key, folder / "large")


def copy(store: S3Store, key: str, _folder: Path) -> None:
    stored(store).put_object(BUCKET, name_of(store, "source"), b"x")
    store.copy("source", key)


def copy_in_parts(store: S3Store, key: str, _folder: Path) -> None:
    stored(store).put_object(BUCKET, name_of(store, "source"), b"x" * (PART + 1))
    store.copy("source", key)


WAYS = [put, put_if_absent, put_small_file, put_large_file, copy, copy_in_parts]


def stored(_store: S3Store) -> Any:
    return s3_backends[DEFAULT_ACCOUNT_ID]["aws"]


def name_of(store: S3Store, key: str) -> str:
    return f"{store.url.removeprefix(f's3://{BUCKET}/')}/{key}"


def key_of(store: S3Store, key: str) -> FakeKey:
    found = stored(store).head_object(BUCKET, name_of(store, key))
    assert isinstance(found, FakeKey)
    return found


def tags_of(store: S3Store, key: str) -> dict[str, str]:
    found: dict[str, str] = stored(store).tagger.get_tag_dict_for_resource(key_of(store, key).arn)
    return found


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_write_says_everything(
    make: Make, proxy: FlakyProxy, tmp_path: Path, way: Callable[[S3Store, str, Path], None]
) -> None:
    """A copy too, in one request and in parts: there, S3 takes nothing over from the source but bytes and metadata."""
    store = make(ALL)
    way(store, SAVEPOINT, tmp_path)
    found = key_of(store, SAVEPOINT)
    assert (found.encryption, found.kms_key_id) == ("aws:kms", KMS_KEY)
    sent = [{name.lower(): value for name, value in headers.items()} for headers in proxy.headers]
    # moto forgets this one for objects in parts.
    assert [each.get("x-amz-server-side-encryption-bucket-key-enabled") for each in sent if "x-amz-server-side-encryption" in each] == [
        "true"
    ]
    assert found.storage_class == "GLACIER_IR"
    assert tags_of(store, SAVEPOINT) == {"team": "data: a+b=c @home", "cost center": "7/8=9", "statefulspark-kind": "savepoint"}
    way(store, CHECKPOINT, tmp_path)
    assert key_of(store, CHECKPOINT).storage_class == "STANDARD_IA"
    assert tags_of(store, CHECKPOINT)["statefulspark-kind"] == "checkpoint"


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_said_by_default(make: Make, tmp_path: Path, way: Callable[[S3Store, str, Path], None]) -> None:
    """The bucket decides. Tags of a source do not stick to its copy: copying them would take a permission that the job need not have."""
    store = make(S3ObjectSettings())
    way(store, CHECKPOINT, tmp_path)
    assert key_of(store, CHECKPOINT).encryption in {None, "AES256"}  # moto encrypts by default, as S3 does
    assert key_of(store, CHECKPOINT).storage_class == "STANDARD"
    assert tags_of(store, CHECKPOINT) == {}
    tagged = make(replace(ALL, encryption=None, kms_key_id=None, bucket_key=None))
    tagged.put(CHECKPOINT, b"x")
    store.copy(CHECKPOINT, SAVEPOINT)
    assert tags_of(store, SAVEPOINT) == {}


def test_sse_s3(make: Make) -> None:
    store = make(S3ObjectSettings(encryption=S3Encryption.SSE_S3))
    store.put_if_absent(CHECKPOINT, b"x")
    assert (key_of(store, CHECKPOINT).encryption, key_of(store, CHECKPOINT).kms_key_id) == ("AES256", None)


@pytest.mark.parametrize(
    ("algorithm", "digest"),
    [(S3Checksum.SHA1, lambda data: hashlib.sha1(data).digest()), (S3Checksum.SHA256, lambda data: hashlib.sha256(data).digest())],
)
@pytest.mark.parametrize("way", [put, put_if_absent, put_small_file, put_large_file])
def test_checksums(  # parametrized
    make: Make,
    proxy: FlakyProxy,
    tmp_path: Path,
    way: Callable[[S3Store, str, Path], None],
    algorithm: S3Checksum,
    digest: Callable[[bytes], bytes],
) -> None:
    """Each body comes with the chosen one, the service stores it, and what is damaged on the way down is refused."""
    store = make(S3ObjectSettings(checksum=algorithm))
    way(store, CHECKPOINT, tmp_path)
    sent = [{name.lower(): value for name, value in headers.items()} for headers in proxy.headers]
    named = f"x-amz-checksum-{algorithm.value.lower()}"
    bodies = [
        each for (method, path), each in zip(proxy.requests, sent, strict=True) if method == "PUT" and "x-amz-copy-source" not in each
    ]
    assert all(named in each for each in bodies)
    assert not any("x-amz-checksum-crc32" in each for each in bodies)
    if way is put_large_file:
        assert any(each.get("x-amz-checksum-algorithm") == algorithm.value for each in sent)
    else:
        assert bodies[0][named] == base64.b64encode(digest(b"x")).decode()
        proxy.faults = [Fault(damage=True)]
        with pytest.raises(CorruptDataError, match=CHECKPOINT):
            store.get(CHECKPOINT)


@pytest.mark.parametrize("way", WAYS)
def test_without_checksums(make: Make, proxy: FlakyProxy, tmp_path: Path, way: Callable[[S3Store, str, Path], None]) -> None:
    """For services that know none of them: no header names one, and MD5, which all know, guards single writes and deletions."""
    store = make(S3ObjectSettings(checksum=S3Checksum.NONE))
    way(store, CHECKPOINT, tmp_path)
    assert store.get(CHECKPOINT)[:1] == b"x"
    store.get_file(CHECKPOINT, tmp_path / "down")
    store.delete([CHECKPOINT])
    assert store.head(CHECKPOINT) is None
    sent = [{name.lower(): value for name, value in headers.items()} for headers in proxy.headers]
    assert [name for each in sent for name in each if name.startswith(("x-amz-checksum", "x-amz-sdk-checksum", "x-amz-trailer"))] == []
    guarded = [each for (method, path), each in zip(proxy.requests, sent, strict=True) if path.endswith("?delete")]
    if way in (put, put_if_absent, put_small_file):
        guarded += [each for (method, _), each in zip(proxy.requests, sent, strict=True) if method == "PUT"]
    assert guarded
    assert all("content-md5" in each for each in guarded)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"storage_class": "GLACIER"}, r"storage\.s3\.storageClass: .*GLACIER_IR"),
        ({"savepoint_storage_class": "DEEP_ARCHIVE"}, r"storage\.s3\.savepointStorageClass"),
        ({"kms_key_id": "k"}, r"storage\.s3\.encryption\.kmsKeyId: requires SSE-KMS"),
        ({"encryption": S3Encryption.SSE_S3, "bucket_key": False}, r"storage\.s3\.encryption\.bucketKey: requires SSE-KMS"),
        ({"tags": (("a", "1"), ("a", "2"))}, r"storage\.s3\.tags: .*twice"),
        ({"tags": (("a", "1"),), "kind_tag": "a"}, r"storage\.s3\.tags: .*twice"),
        ({"tags": tuple((str(i), "") for i in range(10)), "kind_tag": "a"}, r"storage\.s3\.tags: .*10 tags"),
    ],
)
def test_refused(given: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInputError, match=text):
        S3ObjectSettings(**given)


@pytest.mark.parametrize(
    ("code", "status", "text"),
    [
        ("InvalidObjectState", 403, r"checkpointing\.dir.*archive class.*life-cycle"),
        ("KMS.DisabledException", 400, r"checkpointing\.storage\.s3\.encryption\.kmsKeyId.*Enable the key"),
        ("InvalidStorageClass", 400, r"checkpointing\.storage\.s3\.storageClass"),
        ("InvalidTag", 400, r"checkpointing\.storage\.s3\.tags"),
        ("NotImplemented", 501, r"checkpointing\.storage\.endpoint.*storage\.s3"),
    ],
)
def test_refusals_of_the_service(make: Make, proxy: FlakyProxy, code: str, status: int, text: str) -> None:
    store = make(ALL)
    proxy.faults = [Fault(status=status, code=code)]
    with pytest.raises(InvalidInputError, match=text):
        store.put(CHECKPOINT, b"x")


def test_settings_reach_the_process_that_converts() -> None:
    """They travel as JSON."""
    settings = StorageSettings(s3=ALL)
    given = Conversion(origin_url="s3://a/b", origin_folder="chk-1", target_url="s3://a/b", folder="savepoint", storage=settings)
    assert decode(encode(given), Conversion).storage == settings


NONCE = "abcdef0"
KEYS = {
    "checkpoint": [
        paths.metadata_key("chk-12"),
        paths.damaged_key("chk-12"),
        f"chk-12/{paths.slot_folder(3, NONCE)}/changelog",
        f"chk-12/{paths.operator_state_folder(3, NONCE)}/op",
        f"chk-12/{paths.bundle_name(NONCE)}",
        f"chk-12/spark-state/{'0' * 32}",
        paths.shared_key(12, NONCE),
    ],
    "savepoint": [
        paths.metadata_key(paths.savepoint_folder("shop")),
        f"{paths.savepoint_folder('shop')}/{paths.slot_folder(3, NONCE)}/chk-1",
        f"{paths.savepoint_folder('shop')}/{paths.table_reference('changelog', 'shared', KeyGroupRange(first=0, last=3))}",
        f"{paths.savepoint_folder('shop')}/spark-state/{'0' * 32}",
    ],
    "changelog": [paths.changelog_key(1, 2, "uid", 0, 1), paths.spark_state_key(1, 2)],
    "record": [
        paths.batch_key(1, 2),
        paths.attempt_key(1),
        paths.attempt_start_key(1),
        paths.history_key(1),
        paths.JOB_KEY,
        probe_key(),
        "_probe-0123456789abcdef0123456789abcdef",
    ],
}


@pytest.mark.parametrize("root", ["", "jobs/shop/", "chk-1/shared/", "savepoint-old-0123456789ab/", "changelog/00000001/000000000002/"])
@pytest.mark.parametrize(
    ("kind", "key"),
    [pytest.param(kind, key, id=f"{kind}-{number}") for kind, keys in KEYS.items() for number, key in enumerate(keys)],  # keys are random
)
def test_kinds_by_the_names_that_the_runtime_makes(root: str, kind: str, key: str) -> None:
    """Wherever the store was opened. A name that is no folder of ours takes the kind of what it lies in, which is where its life ends."""
    found = kind_of_object(root + key)
    if kind != "record" or root in {"", "jobs/shop/", "chk-1/shared/"}:
        assert found == kind or (root == "chk-1/shared/" and kind == "record")
    else:
        assert found in {"savepoint", "changelog"}


def test_every_object_of_a_job_has_a_kind() -> None:
    """A new kind of object must be placed in `object_kinds` as well."""
    assert {paths.kind_of(key) for keys in KEYS.values() for key in keys} >= set(get_args(paths.ObjectKind))
