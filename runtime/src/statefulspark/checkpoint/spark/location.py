"""Copies Spark's local checkpoint location to durable storage and back.

Spark keeps its offsets, commits and source logs in a local folder that is lost with the driver's disk. Each batch record contains
what is new since the previous record; a checkpoint contains everything. Spark's own state stores (``state/``) are larger and are
uploaded separately (`state_uploader`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from statefulspark.checkpoint.spark.state_files import STATE_FOLDER, is_carried
from statefulspark.errors import InvalidInputError

_NUMBERED_LOGS = ("offsets", "commits")
_SKIPPED_FOLDERS = frozenset({STATE_FOLDER, "temp"})

_Mark = tuple[int, int]
"""Size in bytes and modification time in nanoseconds."""


class LocationFiles:
    """Remembers which files of a local Spark checkpoint location are already durable.

    Args:
        root: The folder; it may still be missing.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._durable: dict[str, _Mark] = {}
        self._read: dict[str, _Mark] = {}

    def is_committed(self, batch: int) -> bool:
        """True if Spark has written the commit of ``batch``."""
        return (self._root / "commits" / str(batch)).exists()

    def committed_batch(self) -> int:
        """The last batch whose commit Spark has written; -1 for none."""
        return max(_numbers(self._root / "commits"), default=-1)

    def planned_batch(self) -> int:
        """The last batch whose offsets Spark has written; -1 for none."""
        return max(_numbers(self._root / "offsets"), default=-1)

    def forget_planned(self, *, after: int) -> None:
        """Delete the offsets of batches later than ``after`` that are not committed: Spark plans them again."""
        last = max([after, *_numbers(self._root / "commits")])
        self._forget("offsets", last)

    def forget_commit(self, batch: int) -> None:
        """Delete the commit of ``batch`` and all that is later: Spark runs the batch again with its offsets."""
        self._forget("commits", batch - 1)
        self._forget("offsets", batch)

    def _forget(self, folder: str, last: int) -> None:
        for number in _numbers(self._root / folder):
            if number > last:
                for name in (str(number), f".{number}.crc", f"{number}.crc"):
                    (self._root / folder / name).unlink(missing_ok=True)

    def new_files(self) -> dict[str, bytes]:
        """Return the files that are new or changed since the last `confirm`, by path relative to the folder."""
        self._read = {}
        files: dict[str, bytes] = {}
        for path, mark in _scan(self._root):
            if self._durable.get(path) != mark:
                content = _read(self._root / path)
                if content is not None:
                    files[path] = content
                    self._read[path] = mark
        return files

    def confirm(self) -> None:
        """Record that the files returned by the last `new_files` are durable."""
        self._durable |= self._read
        self._read = {}

    def all_files(self, *, batch: int) -> dict[str, bytes]:
        """Return the files needed to resume after ``batch``, without later offsets and commits.

        Args:
            batch: Last batch whose offsets and commit are taken; -1 takes none.
        """
        paths = [path for path, _ in _scan(self._root) if _belongs(path, planned=batch, committed=batch)]
        contents = ((path, _read(self._root / path)) for path in paths)
        return {path: content for path, content in contents if content is not None}

    def clear(self) -> None:
        """Remove everything; no query may run."""
        shutil.rmtree(self._root, ignore_errors=True)
        self._durable, self._read = {}, {}

    def restore(self, files: Mapping[str, bytes], *, planned: int, committed: int, durable: bool = True) -> None:
        """Fill the empty or missing folder.

        Args:
            files: Content by relative path.
            planned: Last batch whose offsets are kept; Spark runs it (again) with exactly those.
            committed: Last batch that counts as done, ``planned`` or ``planned - 1``; -1 for none.
            durable: True if what is written counts as durable; otherwise the next record takes all of it.

        Raises:
            InvalidInputError: The folder is not empty, or the two batches do not fit each other.
        """
        if not planned - 1 <= committed <= planned:
            raise InvalidInputError(f"batch {committed} cannot be the last committed one when {planned} is planned", field="committed")
        if self._root.exists() and any(self._root.iterdir()):
            raise InvalidInputError("the local checkpoint location is not empty", field=str(self._root), remedy="Use a new folder.")
        self._root.mkdir(parents=True, exist_ok=True)
        for path, content in files.items():
            if _belongs(path, planned=planned, committed=committed):
                target = self._root / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
        self._durable = dict(_scan(self._root)) if durable else {}


def _numbers(folder: Path) -> list[int]:
    """Batches that have a file in a numbered log."""
    try:
        return [int(path.name) for path in folder.iterdir() if path.name.isdecimal()]
    except FileNotFoundError:
        return []


def _scan(root: Path) -> Iterator[tuple[str, _Mark]]:
    """Files that are carried, in order of their paths. Spark renames finished files into place, so each one is whole."""
    if not root.is_dir():
        return
    for folder, folders, names in os.walk(root):
        relative = Path(folder).relative_to(root)
        skipped = _SKIPPED_FOLDERS if relative == Path() else frozenset()
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in skipped)
        for name in sorted(names):
            # Hidden files are checksums and unfinished temporary files of Hadoop's local file system; Spark makes them again.
            if not is_carried(name):
                continue
            try:
                status = (root / relative / name).stat()
            except FileNotFoundError:
                continue
            yield (relative / name).as_posix(), (status.st_size, status.st_mtime_ns)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None  # Spark purges old entries at any time.


def _belongs(path: str, *, planned: int, committed: int) -> bool:
    folder, _, name = path.partition("/")
    if folder not in _NUMBERED_LOGS or not name.isdecimal():
        return True
    return int(name) <= (planned if folder == "offsets" else committed)
