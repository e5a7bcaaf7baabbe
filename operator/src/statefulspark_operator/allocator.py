"""Makes the C library's malloc return large buffers to the system when they are freed.

Every TLS connection of asyncio has a read buffer of 256 KiB, of which a response touches a few pages. glibc first maps such a block on its own. When the
first one is freed, it raises its threshold and takes later ones from the heap, where they are filled with zeros, lie between small objects that
stay, and are never returned: with many jobs, most of the operator's memory. A fixed threshold prevents this.
"""

from __future__ import annotations

import ctypes
from typing import Final

# glibc's malloc.h
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8

_ARENAS_MAX: Final = 1
_THRESHOLD_BYTES: Final = 128 << 10
"""glibc's initial value. Setting it turns off its adjustment."""


def limit_free_memory() -> None:
    """Configure glibc's malloc; call this before the process starts its second thread. Does nothing with another C library."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):
        return
    libc.mallopt(_M_ARENA_MAX, _ARENAS_MAX)
    libc.mallopt(_M_MMAP_THRESHOLD, _THRESHOLD_BYTES)
    libc.mallopt(_M_TRIM_THRESHOLD, _THRESHOLD_BYTES)
