"""Writes entries to table files of RocksDB, outside an instance."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from rocksdict import Options, SstFileWriter

_PIECE_ENTRIES: Final = 256
"""Written before the size of the file is asked for."""


def write_table_files(options: Options, folder: Path, entries: Iterator[tuple[bytes, bytes]], file_bytes: int) -> list[str]:
    """Write entries to new files; return their paths.

    Args:
        options: Of the column family that will take the files in.
        folder: For the files.
        entries: In the order of their keys.
        file_bytes: About the size of a file.

    Raises:
        Exception: With RocksDB's text, as rocksdict raises it.
    """
    files: list[str] = []
    while (first := next(entries, None)) is not None:
        files.append(str(folder / f"{len(files)}.sst"))
        table: Any = SstFileWriter(options)
        table.open(files[-1])
        key, value = first
        table[key] = value
        while piece := list(islice(entries, _PIECE_ENTRIES)):
            for key, value in piece:
                table[key] = value
            if table.file_size() >= file_bytes:
                break
        table.finish()
    return files
