"""Downloads the objects in which changelogs are: one changelog each, or a group of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from statefulspark.checkpoint.formats.changelog_group import decode_group
from statefulspark.checkpoint.formats.records import ChangelogRef
from statefulspark.checkpoint.transfers import download_verified
from statefulspark.errors import CorruptDataError
from statefulspark.storage.base import ObjectStore


def by_object(changelogs: Iterable[ChangelogRef]) -> list[tuple[ChangelogRef, ...]]:
    """Return the changelogs by the object that they are in, objects in the order in which they first come, so batches stay in order."""
    objects: dict[str, dict[int | None, ChangelogRef]] = {}
    for ref in changelogs:
        objects.setdefault(ref.key, {}).setdefault(ref.member, ref)
    return [tuple(refs.values()) for refs in objects.values()]


def size_of_objects(changelogs: Iterable[ChangelogRef]) -> int:
    """Return the bytes of the objects in which the changelogs are."""
    return sum(refs[0].size_bytes for refs in by_object(changelogs))


def download_changelogs(store: ObjectStore, refs: Sequence[ChangelogRef], path: Path) -> list[Path]:
    """Download one object.

    Args:
        store: Opened at the job folder.
        refs: The wanted changelogs of the object, at least one.
        path: Local file to create, or files whose names begin like that.

    Returns:
        A file for each of ``refs``.

    Raises:
        CorruptDataError: The object is missing or damaged, or has no such changelog.
        IncompatibleFormatError: A later release wrote it.
        UnavailableError: Storage did not answer.
    """
    first = refs[0]
    download_verified(store, first.key, path, first.digest)
    if first.member is None:
        return [path for _ in refs]
    changelogs = decode_group(path.read_bytes(), path=first.key)
    path.unlink()
    return [_written(changelogs, ref, path) for ref in refs]


def _written(changelogs: Sequence[bytes], ref: ChangelogRef, path: Path) -> Path:
    if ref.member is None or ref.member >= len(changelogs):
        raise CorruptDataError("the object does not have the changelog that was acknowledged", path=ref.key)
    file = path.with_name(f"{path.name}-{ref.member}")
    file.write_bytes(changelogs[ref.member])
    return file
