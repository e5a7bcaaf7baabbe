"""The files of Spark's own state stores: parses their names, and selects those that a version needs. Pure.

Spark's stateful steps (aggregations, joins of streams, deduplication, limits) keep their state below ``state/`` of the checkpoint
location, one folder per step, partition and store. Batch b writes version b + 1. A folder contains full versions and the changes from
one version to the next:

* HDFS-backed stores: ``7.snapshot`` and ``7.delta``;
* RocksDB: ``7.zip``, which names table files in ``SSTs/`` and log files in ``logs/``, and, if enabled, ``7.changelog``.
  With Spark's second checkpoint format each name contains an id (``7_<uuid>.zip``), because several attempts may write a version 7.

Everything else, such as schemas and the steps' metadata, is small and written once.

Source: the layout is described at the top of Spark's ``HDFSBackedStateStoreProvider`` and ``RocksDBFileManager``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

STATE_FOLDER = "state"
"""Folder of Spark's state in a checkpoint location."""

_VERSIONED = re.compile(r"^(?P<version>\d+)(?:_(?P<id>[0-9a-fA-F-]+))?\.(?P<kind>snapshot|delta|zip|changelog)$")
_WHOLE = frozenset({"snapshot", "zip"})
_REFERENCED_FOLDERS = frozenset({"SSTs", "logs"})


@dataclass(frozen=True, slots=True)
class VersionedFile:
    """Parsed name of a state store file."""

    path: str
    version: int
    whole: bool
    """True for a complete version, false for the changes that lead to it."""
    identified: bool
    """True if the name carries an id, so that files of one version may belong to different attempts."""

    @property
    def names_others(self) -> bool:
        """True if it lists files of ``SSTs/`` and ``logs/``."""
        return self.path.endswith(".zip")


References = Callable[[str], Iterable[str]]
"""Paths of the files that a ``.zip`` names."""


def is_carried(name: str) -> bool:
    """True if a file name is one of content: no hidden, temporary or checksum file, which Spark makes again or can do without."""
    return not name.startswith(".") and not name.endswith((".crc", ".tmp"))


def versioned(path: str) -> VersionedFile | None:
    """Read a file's version off its name; None for other files."""
    found = _VERSIONED.match(path.rpartition("/")[2])
    if found is None:
        return None
    return VersionedFile(path, int(found["version"]), found["kind"] in _WHOLE, found["id"] is not None)


def needed_files(paths: Iterable[str], version: int, references: References) -> set[str]:
    """The files from which Spark rebuilds ``version`` of every store.

    Per store: the newest whole version up to ``version``, what it names, and the changes after it. Where names carry ids, the
    file that belongs to the job's history cannot be told from the names, so all files up to ``version`` are taken.

    Args:
        paths: Every file below ``state/``, relative to the checkpoint location.
        version: Version to rebuild: that before batch ``version``; nothing is needed for 0.
        references: Asked for each needed ``.zip``.

    Returns:
        Paths; those that ``references`` named need not be among ``paths``.
    """
    if version <= 0:
        return set()
    stores: dict[str, list[VersionedFile]] = {}
    needed: set[str] = set()
    for path in paths:
        folder, _, name = path.rpartition("/")
        if not is_carried(name) or folder.rpartition("/")[2] in _REFERENCED_FOLDERS:
            continue
        file = versioned(path)
        if file is None:
            needed.add(path)
        elif file.version <= version:
            stores.setdefault(folder, []).append(file)
    for files in stores.values():
        chosen = files if any(file.identified for file in files) else _history(files)
        needed.update(file.path for file in chosen)
        for file in chosen:
            if file.names_others:
                needed.update(references(file.path))
    return needed


def _history(files: list[VersionedFile]) -> list[VersionedFile]:
    """The newest whole version and the changes after it; all changes when there is no whole one."""
    base = max((file.version for file in files if file.whole), default=0)
    return [file for file in files if (file.version == base if file.whole else file.version > base)]


def has_version(paths: Iterable[str], version: int) -> bool:
    """True if some store has a file of ``version``: a batch that ran left one in each store, one that did not run in none."""
    return any((file := versioned(path)) is not None and file.version == version for path in paths if is_carried(path.rpartition("/")[2]))


def wasteful(packs: Mapping[str, int], live: Mapping[str, int]) -> set[str]:
    """Packs of which less than half is still needed, so that keeping their rest elsewhere frees more than it costs.

    Args:
        packs: Bytes of content by pack.
        live: Bytes still needed by pack.
    """
    return {pack for pack, size_bytes in packs.items() if 2 * live.get(pack, 0) < size_bytes}


def grouped(sizes: Mapping[str, int], *, alone_bytes: int, pack_bytes: int) -> list[list[str]]:
    """Share files out over packs: small ones together, each large one alone, so that it can be kept or dropped alone.

    Args:
        sizes: Bytes by path.
        alone_bytes: Files of at least this size get a separate pack.
        pack_bytes: Most bytes of a pack with several files.
    """
    groups: list[list[str]] = []
    together: list[str] = []
    room = pack_bytes
    for path in sorted(sizes):
        if sizes[path] >= alone_bytes:
            groups.append([path])
            continue
        if together and sizes[path] > room:
            groups.append(together)
            together, room = [], pack_bytes
        together.append(path)
        room -= sizes[path]
    return [*groups, together] if together else groups
