"""Names of the objects in a job folder: building and parsing them in one place.

All keys are relative to the job folder (``<checkpoint dir>/<job id>``), the root of the runtime's `ObjectStore`.
Numbers have a fixed width, so that names sort in numeric order.
"""

from __future__ import annotations

import posixpath
import re
from hashlib import sha256
from uuid import uuid4

from statefulspark.checkpoint.formats.metadata import METADATA_NAME
from statefulspark.errors import InvalidInputError

JOB_KEY = "_job"
SHARED_PREFIX = "shared/"
CHANGELOG_PREFIX = "changelog/"
BATCHES_PREFIX = "batches/"
ATTEMPTS_PREFIX = "attempts/"
SPARK_STATE_PREFIX = "spark-state/"

_CHECKPOINT_FOLDER = re.compile(r"^chk-(\d+)$")
_SHARED = re.compile(r"^shared/(\d{10})-[0-9a-f]{32}$")
_ATTEMPT_BATCH = re.compile(r"^(?:batches|changelog)/(\d{8})/(\d{12})(?:/.*)?$")
_SPARK_STATE = re.compile(r"^spark-state/(\d{8})/(\d{12})/[0-9a-f]{32}$")
_ATTEMPT = re.compile(r"^attempts/(\d{8})(-start)?$")


def checkpoint_folder(checkpoint_id: int) -> str:
    """``chk-7``."""
    return f"chk-{checkpoint_id}"


def checkpoint_id_of(folder: str) -> int | None:
    """Number of a checkpoint folder's name, None when it is another folder."""
    match = _CHECKPOINT_FOLDER.match(folder)
    return int(match[1]) if match else None


def savepoint_folder(job_id: str) -> str:
    """A new ``savepoint-<job>-<nonce>``."""
    return f"savepoint-{job_id}-{uuid4().hex[:12]}"


def damaged_key(folder: str) -> str:
    """``chk-7/_damaged``: written when restoring the checkpoint failed, so that no later attempt starts from it."""
    return f"{folder}/_damaged"


def metadata_key(folder: str) -> str:
    """``chk-7/_metadata``."""
    return f"{folder}/{METADATA_NAME}"


def shared_key(checkpoint_id: int) -> str:
    """A new name below ``shared/``; it begins with the checkpoint that uploaded it, so retention can tell what is in flight."""
    return f"{SHARED_PREFIX}{checkpoint_id:010d}-{uuid4().hex}"


def shared_checkpoint_id(key: str) -> int | None:
    """The checkpoint that uploaded a shared file, None when the name is not ours."""
    match = _SHARED.match(key)
    return int(match[1]) if match else None


def changelog_key(attempt: int, batch: int, uid: str, slot: int, epoch: int) -> str:
    """A new name for one changelog; a slot that writes the same batch again takes another name."""
    uid_hash = sha256(uid.encode()).hexdigest()[:16]
    return f"{CHANGELOG_PREFIX}{attempt:08d}/{batch:012d}/{uid_hash}-{slot}-{epoch}-{uuid4().hex[:12]}"


def changelog_prefix(attempt: int, batch: int) -> str:
    """Prefix of the changelogs of one batch."""
    return f"{CHANGELOG_PREFIX}{attempt:08d}/{batch:012d}/"


def batch_key(attempt: int, batch: int) -> str:
    """Name of a batch record."""
    return f"{BATCHES_PREFIX}{attempt:08d}/{batch:012d}"


def attempt_and_batch(key: str) -> tuple[int, int] | None:
    """Attempt and batch in the name of a batch record or changelog, None when the name is not ours."""
    match = _ATTEMPT_BATCH.match(key)
    return (int(match[1]), int(match[2])) if match else None


def spark_state_key(attempt: int, batch: int) -> str:
    """A new name for a pack of Spark's state files as they are after ``batch``."""
    return f"{SPARK_STATE_PREFIX}{attempt:08d}/{batch:012d}/{uuid4().hex}"


def spark_state_position(key: str) -> tuple[int, int] | None:
    """Attempt and batch in the name of a pack, None when the name is not ours."""
    match = _SPARK_STATE.match(key)
    return (int(match[1]), int(match[2])) if match else None


def attempt_key(attempt: int) -> str:
    """Name of the claim of an attempt."""
    return f"{ATTEMPTS_PREFIX}{attempt:08d}"


def attempt_start_key(attempt: int) -> str:
    """Name of the object that says what an attempt started from."""
    return f"{ATTEMPTS_PREFIX}{attempt:08d}-start"


def attempt_of(key: str) -> tuple[int, bool] | None:
    """Number of the attempt and whether ``key`` is its start (else its claim), None when the name is not ours."""
    match = _ATTEMPT.match(key)
    return (int(match[1]), match[2] is not None) if match else None


def url_of(root: str, key: str) -> str:
    """URL of ``key`` in the store that is opened at ``root``."""
    return f"{root.rstrip('/')}/{key}"


def same_folder(first: str, second: str) -> bool:
    """True if two URLs of stores name the same folder."""
    return first.rstrip("/") == second.rstrip("/")


def resolve_reference(metadata_path: str, reference: str) -> str:
    """Key of a file that ``_metadata`` at ``metadata_path`` names by the relative path ``reference``.

    Raises:
        InvalidInputError: The reference leaves the store's root.
    """
    key = posixpath.normpath(posixpath.join(posixpath.dirname(metadata_path), reference))
    if key.startswith(("../", "/")) or key in ("..", "."):
        raise InvalidInputError(
            "the file is outside the opened folder",
            field="path",
            remedy="Open the checkpoint through its job folder, which also contains shared/.",
        )
    return key


def relative_reference(folder: str, key: str) -> str:
    """The relative path by which ``<folder>/_metadata`` names ``key``."""
    return posixpath.relpath(key, folder)


def common_root(first: str, second: str) -> str | None:
    """The deepest folder that two store URLs share, or None when they are in different buckets or kinds of storage."""
    (scheme, rest), (other_scheme, other_rest) = _split_url(first), _split_url(second)
    if scheme != other_scheme:
        return None
    shared: list[str] = []
    for part, other in zip(rest.split("/"), other_rest.split("/"), strict=False):
        if part != other:
            break
        shared.append(part)
    # Of s3://bucket/prefix at least the bucket must be the same; of file:///a/b the root is worth nothing.
    return f"{scheme}://{'/'.join(shared)}" if any(shared) else None


def key_below(root: str, url: str, key: str) -> str:
    """The key, below ``root``, of ``key`` below ``url``, which is below ``root``."""
    return posixpath.join(url.rstrip("/").removeprefix(root.rstrip("/")).strip("/"), key)


def _split_url(url: str) -> tuple[str, str]:
    scheme, separator, rest = url.rstrip("/").partition("://")
    return (scheme, rest) if separator else ("file", scheme)


def leaves_folder(path: str) -> bool:
    """True if a relative path from a stored file must not be used below a folder, because it could lead outside."""
    return any(part in ("", ".", "..") for part in path.split("/")) or "\\" in path or "\x00" in path
