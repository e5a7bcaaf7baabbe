"""The process's memory allocator, held to give back what is freed.

RocksDB's blocks and buffers come from the C library's malloc, in sizes that change all the time. Left alone glibc keeps a heap per
thread, moves ever larger blocks into these heaps, and returns only what lies at their ends: measured, a slot with 128 MiB of managed
memory took 360 MiB above Python's part after 1.5 GiB of updates, and went on growing. Three things hold it:

* one heap for all threads, so that what one thread freed the next one uses,
* blocks from 128 KiB on (write buffers, values of that size, buffers of compactions) straight from the system and straight back to it,
* free pages inside the heap go back (``malloc_trim``) whenever the process has grown by a step.

jemalloc, when it is preloaded, gives pages back by itself. On other systems (macOS, musl) nothing is changed, and the log says so.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import structlog

_log = structlog.get_logger("statefulspark.allocator")

# glibc's malloc.h
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8

HEAPS_MAX: Final = 1
MMAP_THRESHOLD_BYTES: Final = 128 << 10
"""glibc's first value. Setting it keeps glibc from raising it to the size of each such block that is freed, up to 32 MiB."""

_STATM: Final = "/proc/self/statm"
_WATCH_S: Final = 0.05
_STEP_BYTES_MIN: Final = 1 << 20
_NEAR_STEPS: Final = 6
_FAR_STEPS: Final = 4
"""Fewer than `_NEAR_STEPS`, so that growth from far below is looked into before it reaches what the process has needed before."""


def allocator_environment() -> dict[str, str]:
    """Return environment variables for processes that will run slots.

    The number of heaps is settled when a process starts its second thread, which may be long before a slot starts in it, so glibc must
    know from the start. What this process's environment says about these variables wins.
    """
    wanted = {
        "MALLOC_ARENA_MAX": HEAPS_MAX,
        "MALLOC_MMAP_THRESHOLD_": MMAP_THRESHOLD_BYTES,
        "MALLOC_TRIM_THRESHOLD_": MMAP_THRESHOLD_BYTES,
    }
    return {name: os.environ.get(name, str(value)) for name, value in wanted.items()}


class AllocatorWatch:
    """Sets the allocator of this process up, and gives free memory back from then on, in a thread of its own, until closed.

    Args:
        step_bytes: Growth of the process's resident memory after which it is looked into, at least 1 MiB; a smaller step holds tighter
            and costs more time.

    Attributes:
        kind: ``glibc``, ``jemalloc``, or ``other``, where nothing is done.
        trims: How often free memory was given back.
    """

    def __init__(self, step_bytes: int) -> None:
        libc = ctypes.CDLL(None)
        self.kind = allocator_kind(libc)
        self.trims = 0
        self._step_bytes = max(_STEP_BYTES_MIN, step_bytes)
        self._low_bytes = 0
        self._high_bytes = 0
        self._stop = threading.Event()
        self._trim: Callable[[int], int] | None = None
        if self.kind == "glibc":
            libc.mallopt(_M_ARENA_MAX, HEAPS_MAX)
            libc.mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)
            libc.mallopt(_M_TRIM_THRESHOLD, MMAP_THRESHOLD_BYTES)
            self._trim = libc.malloc_trim
            # Kept open: each call to the system gives the interpreter lock away, and getting it back from a busy thread takes 5 ms.
            self._statm = os.open(_STATM, os.O_RDONLY)
            weakref.finalize(self, os.close, self._statm)
            self._low_bytes = _resident(self._statm)
            threading.Thread(target=self._run, name="allocator", daemon=True).start()
        _log.debug("allocator", kind=self.kind, controlled=self.kind != "other")
        if self.kind == "other":
            _log.info("the memory of this process may exceed its budget: this allocator cannot be made to release free memory")

    def close(self) -> None:
        """End the thread."""
        self._stop.set()

    def look(self) -> None:
        """Give free memory back if the process has grown by a step since that was last done. From any thread.

        By more than a step while the process is much smaller than it has been without its free memory: that cannot raise its peak, and
        pages that go back cost time, most of all when they are needed again.
        """
        # No lock: a thread that waits for the interpreter would keep those that allocate meanwhile from giving anything back.
        if self._trim is None:
            return
        resident = _resident(self._statm)
        if resident < self._low_bytes:
            self._low_bytes = resident
            return
        near = resident > self._high_bytes - _NEAR_STEPS * self._step_bytes
        if resident >= self._low_bytes + self._step_bytes * (1 if near else _FAR_STEPS):
            self._low_bytes = resident
            pa.default_memory_pool().release_unused()
            self._trim(0)
            self.trims += 1
            self._low_bytes = _resident(self._statm)
            self._high_bytes = max(self._high_bytes, self._low_bytes)

    def _run(self) -> None:
        while not self._stop.wait(_WATCH_S):
            self.look()


def allocator_kind(libc: Any) -> str:
    """Tell the allocator by the symbols that the process has."""
    if hasattr(libc, "mallctl"):
        return "jemalloc"
    return "glibc" if hasattr(libc, "gnu_get_libc_version") else "other"


def resident_bytes() -> int:
    """Return the resident memory of this process; Linux only."""
    statm = os.open(_STATM, os.O_RDONLY)
    try:
        return _resident(statm)
    finally:
        os.close(statm)


def _resident(statm: int) -> int:
    return int(os.pread(statm, 128, 0).split()[1]) * os.sysconf("SC_PAGE_SIZE")
