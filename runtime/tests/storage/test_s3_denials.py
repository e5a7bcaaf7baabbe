"""A denied request names the permission that it lacks: as the service names it, or else by what the request does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from runtime.tests.s3_server import BUCKET
from runtime.tests.storage.flaky_proxy import Fault, FlakyProxy

from statefulspark.errors import InvalidInputError
from statefulspark.storage.limits import S3Limits
from statefulspark.storage.s3.objects import S3Encryption, S3ObjectSettings
from statefulspark.storage.s3.store import S3Store
from statefulspark.storage.storage_settings import StorageSettings

OPERATIONS: dict[str, Callable[[S3Store, Path], object]] = {
    "s3:PutObject": lambda store, _folder: store.put("a", b"x"),
    "s3:GetObject": lambda store, _folder: store.get("a"),
    "s3:ListBucket": lambda store, _folder: store.list(""),
    "s3:DeleteObject": lambda store, _folder: store.delete(["a"]),
}


@pytest.mark.parametrize("action", OPERATIONS)
def test_names_without_a_word_from_the_service(s3_store: S3Store, proxy: FlakyProxy, tmp_path: Path, action: str) -> None:
    proxy.faults = [Fault(status=403, code="AccessDenied")]
    with pytest.raises(InvalidInputError, match=f"Grant {action} on arn:aws:s3:::bucket"):
        OPERATIONS[action](s3_store, tmp_path)


@pytest.mark.parametrize(
    ("action", "operation", "place"),
    [
        ("s3:PutObjectTagging", "put", r"arn:aws:s3:::bucket/tests/.*/\*"),
        ("kms:GenerateDataKey", "put", "the key"),
        ("kms:Decrypt", "get", "the key"),
        ("kms:Decrypt", "head", "the key"),
        ("s3:GetObject", "get", r"arn:aws:s3:::bucket/tests/.*/\*"),
    ],
)
def test_the_service_names_it(s3_store: S3Store, proxy: FlakyProxy, action: str, operation: str, place: str) -> None:
    """As AWS words it. Nothing else of its message is repeated: it holds names of users and accounts."""
    message = (
        f"User: arn:aws:iam::123456789012:user/somename is not authorized to perform: {action} on resource: "
        "arn:aws:kms:us-east-1:123456789012:key/k because no identity-based policy allows the action"
    )
    body = f"<Error><Code>AccessDenied</Code><Message>{message}</Message></Error>".encode()
    proxy.faults = [Fault(status=403, body=body)] * (2 if operation == "head" else 1)
    calls: dict[str, Callable[[], object]] = {
        "put": lambda: s3_store.put("a", b"x"),
        "get": lambda: s3_store.get("a"),
        "head": lambda: s3_store.head("a"),
    }
    call = calls[operation]
    with pytest.raises(InvalidInputError, match=f"Grant {action} on {place} to these credentials. docs") as caught:
        call()
    assert "somename" not in str(caught.value)
    assert "123456789012" not in str(caught.value)


def test_all_that_a_write_may_need_is_named(settings: StorageSettings, proxy: FlakyProxy) -> None:
    """Services that say nothing else but "access denied" leave the choice to the reader."""
    objects = S3ObjectSettings(encryption=S3Encryption.SSE_KMS, kind_tag="kind")
    store = S3Store(BUCKET, "p", replace(settings, s3=objects), limits=S3Limits(attempts=1))
    proxy.faults = [Fault(status=403, code="AccessDenied")]
    with pytest.raises(InvalidInputError, match=r"s3:PutObject on .*, s3:PutObjectTagging on .*, kms:GenerateDataKey on the key"):
        store.put("a", b"x")
