"""The policy of docs/how-to/s3.md suffices, none of its statements can be left out, and a denied request names what it lacks."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from runtime.tests.checkpoint.dict_store import DictStore
from runtime.tests.checkpoint.miniature import Miniature, apply
from runtime.tests.iam import UNCHECKED, User, documented_statements, enforced, unenforced
from runtime.tests.s3_server import BUCKET, S3Server, s3_server

from statefulspark.checkpoint.catalog import open_checkpoint
from statefulspark.checkpoint.formats.paths import common_root
from statefulspark.checkpoint.gc.collecting import collect_garbage
from statefulspark.checkpoint.write.retention import Retention
from statefulspark.errors import ClosedError, InvalidInputError
from statefulspark.state.store.base import Change
from statefulspark.storage.cancellation import Cancellation
from statefulspark.storage.limits import S3Limits
from statefulspark.storage.open import check_reachable
from statefulspark.storage.s3.store import S3Store
from statefulspark.storage.storage_settings import StorageSettings

PREFIX = "team/state"
CHANGES: list[Change] = [(bytes([0, key_group, 0, 1]), b"%d" % key_group) for key_group in range(8)]
SMALL_PARTS = S3Limits(part_bytes=5 << 20, copy_part_bytes=5 << 20, attempts=1)
CHECKED = [each for each in documented_statements(BUCKET, PREFIX) if each["Sid"] not in UNCHECKED]

Open = Callable[[str], S3Store]


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    """A service that asks for rights."""
    with s3_server() as server, enforced():
        yield server


@pytest.fixture(scope="module")
def user(server: S3Server) -> User:
    with unenforced():
        return User(server)


@pytest.fixture
def opened(server: S3Server, user: User) -> Open:
    """Opens stores with the rights of the user, without retries."""
    settings = StorageSettings(endpoint=server.endpoint, region="us-east-1", access_key_id=user.key, secret_access_key=user.secret)

    def open_one(url: str) -> S3Store:
        bucket, _, prefix = url.removeprefix("s3://").partition("/")
        return S3Store(bucket, prefix, settings, limits=SMALL_PARTS)

    return open_one


def live(opened: Open, folder: Path) -> None:
    """All that a job and its commands do to storage: start, batches, checkpoints, retention, savepoint, gc, restore, rescale, fork, disposal."""
    root = f"s3://{BUCKET}/{PREFIX}/{uuid.uuid4().hex}"
    check_reachable(opened(f"{root}/checkpoints"))
    job = opened(f"{root}/checkpoints/shop")
    mini = Miniature(job, folder, DictStore, open_store=opened)
    mini.start(2)
    mini.begin(0)
    mini.run(0, CHANGES)
    mini.checkpoint(0)
    mini.begin(1)
    mini.run(1, [(CHANGES[3][0], None)])
    mini.checkpoint(1)
    assert mini.lineage is not None
    Retention(mini.job, retained=1).run(mini.lineage, now_s=0.0, check_fence=mini.check_fence)
    savepoints = opened(f"{root}/savepoints")
    common = common_root(mini.job.url, savepoints.url)
    assert common is not None
    url = mini.savepoint(savepoints, "savepoint-shop-0123456789ab", 1, common=opened(common))
    collect_garbage(job.url, open_store=opened, now_s=1e11, older_than_s=3600, dry_run=False, progress=lambda _count: None)
    expected = apply(apply({}, CHANGES), [(CHANGES[3][0], None)])
    assert mini.start(3) == 1
    assert mini.contents() == expected
    (folder / "fork").mkdir()
    fork = Miniature(opened(f"{root}/checkpoints/fork"), folder / "fork", DictStore, open_store=opened)
    assert fork.start(2, origin=url) == 1
    assert fork.contents() == expected
    assert open_checkpoint(url, opened).metadata.kind == "savepoint"
    large(opened(root), folder)
    savepoints.delete([info.key for info in savepoints.list("")])


def large(store: S3Store, folder: Path) -> None:
    """A file in parts: up, inside, down, and an upload that is canceled within."""
    (folder / "large").write_bytes(b"x" * (11 << 20))
    store.put_file("large", folder / "large")
    store.copy("large", "copy")
    store.get_file("copy", folder / "down")
    cancellation = Cancellation("canceled")

    def cancel(**_: Any) -> None:
        cancellation.cancel()

    store._client().meta.events.register("before-call.s3.UploadPart", cancel)
    with pytest.raises(ClosedError):
        store.put_file("canceled", folder / "large", cancellation)
    assert store.head("canceled") is None


def test_the_documented_policy_suffices(opened: Open, user: User, tmp_path: Path) -> None:
    user.allow(CHECKED)
    live(opened, tmp_path)
    assert s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[BUCKET].multiparts == {}


@pytest.mark.parametrize("missing", [each for each in CHECKED if each["Sid"] != "Abort"], ids=lambda each: str(each["Sid"]))
def test_no_statement_can_be_left_out(opened: Open, user: User, tmp_path: Path, missing: dict[str, Any]) -> None:
    """The start of a job already says which one it is, on what, and where the whole policy is."""
    user.allow([each for each in CHECKED if each is not missing])
    with pytest.raises(InvalidInputError) as caught:
        live(opened, tmp_path)
    text = str(caught.value)
    assert f"Grant {missing['Action']} on {missing['Resource'].removesuffix('*')}" in text
    assert "docs/how-to/s3.md" in text
    assert "checkpointing.dir" in text


def test_without_the_right_to_abort(opened: Open, user: User, tmp_path: Path) -> None:
    """The job goes on, and the log says why parts that cost money are left."""
    user.allow([each for each in CHECKED if each["Sid"] != "Abort"])
    with structlog.testing.capture_logs() as logs:
        live(opened, tmp_path)
    warnings = [each for each in logs if each.get("missing_permission") == "s3:AbortMultipartUpload"]
    assert warnings
    assert "s3:AbortMultipartUpload" in next(each["Action"] for each in CHECKED if each["Sid"] == "Abort")
    s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[BUCKET].multiparts.clear()


def test_another_teams_prefix(opened: Open, user: User) -> None:
    user.allow(CHECKED)
    with pytest.raises(InvalidInputError, match=r"Grant s3:PutObject on arn:aws:s3:::bucket/other/\*"):
        check_reachable(opened(f"s3://{BUCKET}/other"))
