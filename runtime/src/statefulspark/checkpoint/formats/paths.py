"""Names of the objects in a job folder: building and parsing them in one place.

All keys are relative to the job folder (``<checkpoint dir>/<job id>``), the root of the runtime's `ObjectStore`.
Numbers have a fixed width, so that names sort in numeric order.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Literal
from urllib.parse import quote, unquote
from uuid import uuid4

from statefulspark.checkpoint.formats.metadata import METADATA_NAME
from statefulspark.errors import CorruptDataError, InvalidInputError
from statefulspark.keygroups import KeyGroupRange

JOB_KEY = "_job"
SHARED_PREFIX = "shared/"
CHANGELOG_PREFIX = "changelog/"
BATCHES_PREFIX = "batches/"
ATTEMPTS_PREFIX = "attempts/"
SPARK_STATE_PREFIX = "spark-state/"
HISTORY_PREFIX = "history/"

_NONCE_CHARS = 7
_FOLDER_CHARS = 120
"""Longest name of a folder of tables: two of them and a file fit into the key of an object."""

_FILE = "file:"
"""Scheme of URLs that are percent-encoded; keys never are."""
_CHECKPOINT_FOLDER = re.compile(r"^chk-(\d+)$")
_SHARED = re.compile(r"^shared/(\d{10})-[0-9a-f]{32}$")
_ATTEMPT_BATCH = re.compile(r"^(?:batches|changelog)/(\d{8})/(\d{12})(?:/.*)?$")
_SPARK_STATE = re.compile(r"^spark-state/(\d{8})/(\d{12})/[0-9a-f]{32}$")
_ATTEMPT = re.compile(r"^attempts/(\d{8})(-start)?$")
_HISTORY = re.compile(r"^history/(\d{8})$")

ObjectKind = Literal[
    "job", "attempt", "batch record", "changelog", "shared file", "pack", "checkpoint file", "savepoint file", "history", "probe"
]
"""Kind of an object of a job, as its name tells."""

_TABLE = r"tables/uid=[^/]+/state=[^/]+/(?:key-groups-\d{5}-\d{5}|operator)-[0-9a-f]{8}\.parquet"
_BUNDLE = r"spark-location(?:-[0-9a-f]{8})?"
_SNAPSHOT_FILE = rf"(?:{METADATA_NAME}|_damaged|_claimed|{_BUNDLE}|slot-\d+-[0-9a-f]{{8}}/[^/]+|spark-state/[0-9a-f]{{32}})"
_IN_FOLDER = re.compile(rf"^(?:{_SNAPSHOT_FILE}|{_TABLE})$")
_KINDS: tuple[tuple[ObjectKind, re.Pattern[str]], ...] = (
    ("job", re.compile(rf"^{JOB_KEY}$")),
    ("attempt", _ATTEMPT),
    ("batch record", re.compile(r"^batches/\d{8}/\d{12}$")),
    ("changelog", re.compile(r"^changelog/\d{8}/\d{12}/(?:[0-9a-f]{16}-\d+-\d+|group)-[0-9a-f]{12}$")),
    ("shared file", _SHARED),
    ("pack", _SPARK_STATE),
    ("checkpoint file", re.compile(rf"^chk-\d+/{_SNAPSHOT_FILE}$")),
    ("history", _HISTORY),
    ("probe", re.compile(r"^_probe-[0-9a-f]{32}$")),
    ("savepoint file", re.compile(rf"^savepoint-[^/]+-[0-9a-f]{{12}}/(?:{_SNAPSHOT_FILE}|{_TABLE})$")),
)


def kind_of(key: str) -> ObjectKind | None:
    """Kind of the object with this key, None when the name is not ours."""
    return next((kind for kind, pattern in _KINDS if pattern.match(key)), None)


def own_files(keys: Iterable[str], folder: str) -> list[str]:
    """The keys of files that a checkpoint or savepoint in ``folder`` may have, by their names. Anything else there has another owner."""
    return [key for key in keys if key.startswith(f"{folder}/") and _IN_FOLDER.match(key[len(folder) + 1 :])]


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


def claimed_key(folder: str) -> str:
    """``savepoint-orders-1f2e3d4c5b6a/_claimed``: which job has claimed the savepoint, and deletes it."""
    return f"{folder}/_claimed"


def metadata_key(folder: str) -> str:
    """``chk-7/_metadata``."""
    return f"{folder}/{METADATA_NAME}"


def new_nonce() -> str:
    """Seven hexadecimal digits that tell the uploads of one checkpoint from those of another driver's checkpoint of the same number."""
    return uuid4().hex[:_NONCE_CHARS]


def slot_folder(slot: int, nonce: str) -> str:
    """Folder, within that of a checkpoint, of the files of one slot that no other checkpoint names."""
    return f"slot-{slot}-{nonce}0"


def operator_state_folder(slot: int, nonce: str) -> str:
    """Folder, within that of a checkpoint, of the operator state of one slot. A state backend of one's own may give its files any name."""
    return f"slot-{slot}-{nonce}1"


def bundle_name(nonce: str) -> str:
    """Name, within the folder of a checkpoint, of the bundle of Spark's location. A driver that is fenced may write to the same folder."""
    return f"spark-location-{nonce}0"


def shared_key(checkpoint_id: int, nonce: str = "") -> str:
    """A new name below ``shared/``; it begins with the checkpoint that uploaded it, so retention can tell what is in flight."""
    return f"{shared_prefix(checkpoint_id, nonce)}{uuid4().hex[len(nonce) :]}"


def shared_prefix(checkpoint_id: int, nonce: str) -> str:
    """Prefix of the shared files that the checkpoint with this nonce has uploaded."""
    return f"{SHARED_PREFIX}{checkpoint_id:010d}-{nonce}"


def is_uploaded_by(key: str, checkpoint_id: int, nonce: str) -> bool:
    """True for the name of an object that only the checkpoint with this nonce may have uploaded."""
    if key.startswith(shared_prefix(checkpoint_id, nonce)):
        return shared_checkpoint_id(key) == checkpoint_id
    folder, _, rest = key.partition("/")
    own = re.match(rf"(?:slot-\d+|spark-location)-{nonce}[01](?:/|$)", rest)
    return own is not None and folder == checkpoint_folder(checkpoint_id)


def shared_checkpoint_id(key: str) -> int | None:
    """The checkpoint that uploaded a shared file, None when the name is not ours."""
    match = _SHARED.match(key)
    return int(match[1]) if match else None


def changelog_key(attempt: int, batch: int, uid: str, slot: int, epoch: int) -> str:
    """A new name for one changelog; a slot that writes the same batch again takes another name."""
    uid_hash = sha256(uid.encode()).hexdigest()[:16]
    return f"{CHANGELOG_PREFIX}{attempt:08d}/{batch:012d}/{uid_hash}-{slot}-{epoch}-{uuid4().hex[:12]}"


def changelog_group_key(attempt: int, batch: int) -> str:
    """A new name for an object with several changelogs of a batch."""
    return f"{changelog_prefix(attempt, batch)}group-{uuid4().hex[:12]}"


def changelog_prefix(attempt: int, batch: int) -> str:
    """Prefix of the changelogs of one batch."""
    return f"{CHANGELOG_PREFIX}{attempt:08d}/{batch:012d}/"


def batch_key(attempt: int, batch: int) -> str:
    """Name of a batch record."""
    return f"{BATCHES_PREFIX}{attempt:08d}/{batch:012d}"


def table_reference(uid: str, state: str, key_groups: KeyGroupRange | None) -> str:
    """A new name for rows of a state, relative to the savepoint's folder: ``tables/uid=u/state=s/key-groups-00000-00063-1f2e3d4c.parquet``.

    Spark and other programs take folders ``name=value`` for columns, and skip files and folders that begin with ``_`` or a dot.
    """
    part = "operator" if key_groups is None else f"key-groups-{key_groups.first:05d}-{key_groups.last:05d}"
    return f"tables/uid={_folder_name(uid)}/state={_folder_name(state)}/{part}-{uuid4().hex[:8]}.parquet"


def _folder_name(text: str) -> str:
    """Percent-encode a name; a long one is cut and made unique by a hash."""
    encoded = quote(text, safe="()")
    if len(encoded) <= _FOLDER_CHARS:
        return encoded
    return f"{encoded[:_FOLDER_CHARS].rpartition('%')[0] or encoded[:_FOLDER_CHARS]}-{sha256(text.encode()).hexdigest()[:16]}"


def attempt_and_batch(key: str) -> tuple[int, int] | None:
    """Attempt and batch in the name of a batch record or changelog, None when the name is not ours."""
    match = _ATTEMPT_BATCH.match(key)
    return (int(match[1]), int(match[2])) if match else None


def batch_of(key: str) -> int:
    """Number of the batch whose record ``key`` is.

    Raises:
        CorruptDataError: It is no batch record.
    """
    numbers = attempt_and_batch(key)
    if numbers is None:
        raise CorruptDataError("not the name of a batch record", path=key)
    return numbers[1]


def spark_state_key(attempt: int, batch: int) -> str:
    """A new name for a pack of Spark's state files as they are after ``batch``."""
    return f"{SPARK_STATE_PREFIX}{attempt:08d}/{batch:012d}/{uuid4().hex}"


def spark_state_position(key: str) -> tuple[int, int] | None:
    """Attempt and batch in the name of a pack, None when the name is not ours."""
    match = _SPARK_STATE.match(key)
    return (int(match[1]), int(match[2])) if match else None


def is_bundle(name: str) -> bool:
    """True for the name, in the folder of a checkpoint, of the bundle of Spark's location."""
    return re.fullmatch(_BUNDLE, name) is not None


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


def history_key(attempt: int) -> str:
    """Name of the job's history as the driver of an attempt writes it. Each driver has its own, so a fenced one cannot replace its successor's."""
    return f"{HISTORY_PREFIX}{attempt:08d}"


def history_attempt(key: str) -> int | None:
    """The attempt that wrote a history, None when the name is not ours."""
    match = _HISTORY.match(key)
    return int(match[1]) if match else None


def url_of(root: str, key: str) -> str:
    """URL of ``key`` in the store that is opened at ``root``."""
    return f"{root.rstrip('/')}/{key}"


def folder_url(root: str, name: str) -> str:
    """URL of the folder ``name`` in the store that is opened at ``root``. It opens that folder again, whatever characters the name has."""
    return url_of(root, quote(name) if root.startswith(_FILE) else name)


def folder_of(url: str) -> tuple[str, str]:
    """URL of the store above a store's ``url``, and the name of the folder in it."""
    root, _, name = url.rstrip("/").rpartition("/")
    return root, unquote(name) if url.startswith(_FILE) else name


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
    below = url.rstrip("/").removeprefix(root.rstrip("/")).strip("/")
    return posixpath.join(unquote(below) if url.startswith(_FILE) else below, key)


def _split_url(url: str) -> tuple[str, str]:
    scheme, separator, rest = url.rstrip("/").partition("://")
    return (scheme, rest) if separator else ("file", scheme)


def leaves_folder(path: str) -> bool:
    """True if a relative path from a stored file must not be used below a folder, because it could lead outside."""
    return any(part in ("", ".", "..") for part in path.split("/")) or "\\" in path or "\x00" in path
