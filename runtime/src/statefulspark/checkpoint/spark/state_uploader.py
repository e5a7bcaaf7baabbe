"""Uploads Spark's own state to durable storage as packs, and restores it.

At the start of batch b all files of version b are complete, because batch b - 1 is committed. `SparkStateUploader.capture` stores the files of
version b that are not stored yet, as packs that are never overwritten. A batch record names the new packs; a
checkpoint names all packs that its version needs. A file that Spark rewrites (because a batch ran again) is stored again;
if two packs contain the same path, the later one counts.

Spark writes a file under a temporary name and renames it, so visible files are complete. RocksDB's table files are copied in place, so they
are used only if a finished ``.zip`` names them. Spark's maintenance deletes old versions at any time, but never one that the batch
before the running one needs.
"""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.digests import FileDigest, digest_file
from statefulspark.checkpoint.formats.packs import Mark, extract, mark_of, write_pack
from statefulspark.checkpoint.formats.records import PackRef
from statefulspark.checkpoint.spark.state_files import STATE_FOLDER, grouped, has_version, needed_files, wasteful
from statefulspark.checkpoint.transfers import download_verified, in_parallel
from statefulspark.errors import CorruptDataError, UnavailableError
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.local.os_errors import local_disk

_ALONE_BYTES = 1 << 20
"""Files of at least this size get a separate pack: they live long, and one request each is cheap for them."""
_PACK_BYTES = 64 << 20
_THREADS = 4
_TRIES = 3
_ZIP_MEMBER = "metadata"
_ZIP_LISTS = {"sstFiles": ("dfsSstFileName", "SSTs"), "logFiles": ("dfsLogFileName", "logs")}


@dataclass(frozen=True, slots=True)
class StoredPack:
    """A pack to restore from."""

    store: ObjectStore
    key: str
    digest: FileDigest
    own: PackRef | None
    """Reference within this job's folder; None if it belongs to another folder, on which this job must not depend."""


@dataclass(frozen=True, slots=True)
class _Held:
    """A file of the present version and the pack that has it."""

    pack: str
    mark: Mark


@dataclass(frozen=True, slots=True)
class _Present:
    """The stored files of one version; replaced as a whole, so that other threads can read it without a lock."""

    files: Mapping[str, _Held]
    packs: Mapping[str, PackRef]
    """In the order in which they were written."""
    content_bytes: Mapping[str, int]
    """Bytes of content by pack, when it was written or restored."""


_NOTHING = _Present({}, {}, {})


class SparkStateUploader:
    """Remembers which files of Spark's state are durable, and where. The caller guards it with its lock, except `in_use`.

    Args:
        root: The local checkpoint location; it may still be missing.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._present = _NOTHING
        self._frozen: tuple[PackRef, ...] = ()
        self._unrecorded: tuple[PackRef, ...] = ()
        self._recording: tuple[PackRef, ...] = ()
        self._writing: tuple[str, ...] = ()
        self._zips: dict[str, tuple[Mark, tuple[str, ...]]] = {}

    # -- reading --------------------------------------------------------------------------------------------------------

    def has_version(self, version: int) -> bool:
        """True if Spark has made ``version`` of its state."""
        return has_version(_list(self._root), version)

    def in_use(self) -> set[str]:
        """Keys of the packs that the present version or the checkpoint in progress needs, and of those that are being written.

        Retention keeps them. It asks after it has listed what is stored, so it knows every pack that it found.
        """
        return {*self._writing, *self._present.packs, *(pack.key for pack in self._frozen)}

    def freeze(self) -> tuple[PackRef, ...]:
        """The packs of the captured version, oldest first, for a checkpoint of it; they stay in use until the next call."""
        self._frozen = tuple(self._present.packs.values())
        return self._frozen

    def record(self) -> tuple[PackRef, ...]:
        """The packs that no batch record names yet, oldest first."""
        self._recording = self._unrecorded
        return self._recording

    def confirm(self) -> None:
        """Record that a durable batch record names the packs returned by the last `record`."""
        done = {pack.key for pack in self._recording}
        self._unrecorded = tuple(pack for pack in self._unrecorded if pack.key not in done)
        self._recording = ()

    # -- to storage ------------------------------------------------------------------------------------------------------

    def capture(self, store: ObjectStore, attempt: int, batch: int) -> None:
        """Make durable what rebuilds Spark's state as it is after ``batch``, which is committed.

        Args:
            store: Opened at the job folder.
            attempt: The running attempt.
            batch: Last committed batch; -1 for none.

        Raises:
            UnavailableError: Storage did not answer; what was stored before still counts.
        """
        for left in reversed(range(_TRIES)):
            try:
                self._capture(store, attempt, batch)
            except FileNotFoundError:
                if not left:
                    raise UnavailableError(f"Spark's state files of batch {batch} kept changing while they were read") from None
            else:
                return

    def _capture(self, store: ObjectStore, attempt: int, batch: int) -> None:
        needed = needed_files(_list(self._root), batch + 1, self._references)
        marks = {path: mark_of((self._root / path).stat()) for path in needed}
        before = self._present
        kept = {path: held for path, held in before.files.items() if marks.get(path) == held.mark}
        live: dict[str, int] = {}
        for held in kept.values():
            live[held.pack] = live.get(held.pack, 0) + held.mark[0]
        given_up = wasteful(before.content_bytes, live)
        kept = {path: held for path, held in kept.items() if held.pack not in given_up}
        new = {path: mark[0] for path, mark in marks.items() if path not in kept}
        groups = grouped(new, alone_bytes=_ALONE_BYTES, pack_bytes=_PACK_BYTES)
        self._writing = tuple(paths.spark_state_key(attempt, batch) for _ in groups)
        named = list(zip(self._writing, groups, strict=True))
        stored = in_parallel(lambda pair: self._store(store, *pair), named, _THREADS)
        for pack, packed in stored:
            kept |= {path: _Held(pack.key, mark) for path, mark in packed.items()}
        self._replace(kept, [*before.packs.values(), *(pack for pack, _ in stored)], before.content_bytes)
        self._writing = ()
        self._unrecorded += tuple(pack for pack, _ in stored)
        self._zips = {path: known for path, known in self._zips.items() if path in needed}

    def _store(self, store: ObjectStore, key: str, group: Sequence[str]) -> tuple[PackRef, dict[str, Mark]]:
        with local_disk(), tempfile.TemporaryDirectory(prefix="statefulspark-pack-") as folder:
            local = Path(folder) / "pack"
            marks = write_pack(self._root, group, local)
            digest = digest_file(local)
            store.put_file(key, local)
        return PackRef(key=key, size_bytes=digest.size_bytes, checksum=digest.checksum), marks

    def _replace(self, files: Mapping[str, _Held], packs: Iterable[PackRef], known_bytes: Mapping[str, int]) -> None:
        content: dict[str, int] = {}
        for held in files.values():
            content[held.pack] = content.get(held.pack, 0) + held.mark[0]
        self._present = _Present(
            files=files,
            packs={pack.key: pack for pack in packs if pack.key in content},
            content_bytes={key: known_bytes.get(key, size_bytes) for key, size_bytes in content.items()},
        )

    def _references(self, path: str) -> tuple[str, ...]:
        """Files that a ``.zip`` of RocksDB's needs, by the list inside it."""
        mark = mark_of((self._root / path).stat())
        known = self._zips.get(path)
        if known is None or known[0] != mark:
            known = (mark, _named_by_zip(self._root, path))
            self._zips[path] = known
        return known[1]

    # -- from storage ----------------------------------------------------------------------------------------------------

    def restore(self, packs: Sequence[StoredPack], version: int) -> None:
        """Fill the missing or empty ``state/`` with what ``version`` needs.

        Args:
            packs: Oldest first; of two with the same path the later one counts.
            version: Version to rebuild, that before batch ``version``.

        Raises:
            CorruptDataError: A pack is damaged or missing.
            UnavailableError: Storage did not answer.
        """
        origin: dict[str, StoredPack] = {}
        content: dict[str, int] = {}
        with tempfile.TemporaryDirectory(prefix="statefulspark-pack-") as folder:

            def fetch(number: int) -> Path:
                local = Path(folder) / str(number)
                download_verified(packs[number].store, packs[number].key, local, packs[number].digest)
                return local

            for first in range(0, len(packs), _THREADS):
                several = range(first, min(first + _THREADS, len(packs)))
                for number, local in zip(several, in_parallel(fetch, several, _THREADS), strict=True):
                    pack = packs[number]
                    files = extract(local, self._root, name=paths.url_of(pack.store.url, pack.key))
                    origin |= {file.path: pack for file in files}
                    content[pack.key] = sum(file.size_bytes for file in files)
                    local.unlink()
        needed = needed_files(_list(self._root), version, self._references)
        self._drop(origin.keys() - needed)
        own = {path: origin[path] for path in needed if path in origin and origin[path].own is not None}
        held = {path: _Held(pack.key, mark_of((self._root / path).stat())) for path, pack in own.items()}
        self._replace(held, [pack.own for pack in packs if pack.own is not None], content)

    def _drop(self, unneeded: Collection[str]) -> None:
        for path in unneeded:
            (self._root / path).unlink(missing_ok=True)


def _list(root: Path) -> list[str]:
    """Paths of all files below ``state/``, relative to ``root``."""
    found: list[str] = []
    folders = [STATE_FOLDER]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(root / folder) as entries:
                for entry in entries:
                    path = f"{folder}/{entry.name}"
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(path)
                    else:
                        found.append(path)
        except FileNotFoundError:
            continue
    return found


def _named_by_zip(root: Path, path: str) -> tuple[str, ...]:
    """Read the list of table and log files in a ``.zip``: ``v1`` and a line of JSON."""
    folder = path.rpartition("/")[0]
    try:
        with zipfile.ZipFile(root / path) as archive:
            _, _, text = archive.read(_ZIP_MEMBER).decode().partition("\n")
        listed: dict[str, list[dict[str, Any]]] = json.loads(text)
        return tuple(f"{folder}/{below}/{entry[field]}" for name, (field, below) in _ZIP_LISTS.items() for entry in listed.get(name) or ())
    except (zipfile.BadZipFile, KeyError, ValueError) as exc:
        raise CorruptDataError("not a version of Spark's RocksDB state store that this release can read", path=path) from exc
