"""Large buffers go back to the system. Each test runs in a new process, whose heap nothing has used."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from statefulspark_operator import allocator

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc can be configured on Linux only")

_BUFFERS = """
import os, sys
import statefulspark_operator.allocator
if sys.argv[1] == "limited":
    statefulspark_operator.allocator.limit_free_memory()
def resident_kib():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 10
bytearray(256 << 10)
before, buffers, kept = resident_kib(), [], []
for _ in range(200):
    buffers.append(bytearray(256 << 10))
    kept.append(bytes(2000))
buffers.clear()
print((resident_kib() - before) // 200)
"""


def _kept_kib(how: str) -> int:
    """KiB that the process keeps of each of 200 freed buffers of 256 KiB."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run([sys.executable, "-c", _BUFFERS, how], env=clean, capture_output=True, text=True, check=True, timeout=60)
    return int(done.stdout)


def test_a_freed_read_buffer_goes_back_to_the_system() -> None:
    """Although small objects were allocated between the buffers; with glibc's own settings, nearly all of it stays."""
    assert _kept_kib("limited") < 8
    assert _kept_kib("as it comes") > 200


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A C library without `mallopt`, such as musl."""
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    allocator.limit_free_memory()
