"""A bad disk, which returns other bytes than were written and says nothing."""

from __future__ import annotations

import os
from pathlib import Path


def flip_keeping_times(path: Path, share: float = 0.5) -> None:
    """Change a byte of every block in the first part of a file of RocksDB, and leave inode, size and times as they were.

    The first half has entries; the end is read when the file is opened.
    """
    status = path.stat()
    data = bytearray(path.read_bytes())
    for at in range(64, int(len(data) * share), 512):
        data[at] ^= 1
    with path.open("r+b") as file:
        file.write(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
