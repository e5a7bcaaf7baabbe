"""The allocator gives back what is freed. Each test asks a fresh process, whose heap nobody has used."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from statefulspark.slot.allocator import AllocatorWatch, allocator_environment, allocator_kind

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the C library's malloc is controlled on Linux only")

_FRAGMENTS = """
import gc
from statefulspark.slot.allocator import AllocatorWatch, resident_bytes
watch = AllocatorWatch({step})
watch.close()
before = resident_bytes()
blocks = [bytes(range(256)) * 80 for _ in range(5000)]
full = resident_bytes() - before
kept = blocks[::50]
del blocks
gc.collect()
freed = resident_bytes() - before
watch.look()
print(full >> 20, freed >> 20, (resident_bytes() - before) >> 20, watch.trims)
"""

_FAR = """
import gc
from statefulspark.slot.allocator import AllocatorWatch
watch = AllocatorWatch(1)
watch.close()
def block():
    return bytes(range(256)) * 80
large = [block() for _ in range(5000)]
watch.look()
trims = [watch.trims]
del large[::2]
gc.collect()
del large[100:]
gc.collect()
watch._trim(0)
watch.look()
few = [block() for _ in range(100)]
watch.look()
trims.append(watch.trims)
more = [block() for _ in range(200)]
watch.look()
trims.append(watch.trims)
few += [block() for _ in range(4500)]
watch.look()
trims.append(watch.trims)
few += [block() for _ in range(100)]
watch.look()
trims.append(watch.trims)
print(*trims)
"""

_HEAPS = """
import ctypes, tempfile, threading
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
libc.malloc.restype = ctypes.c_void_p
barrier = threading.Barrier(6)
def allocate():
    barrier.wait()
    for _ in range(2000):
        libc.malloc(20000)
threads = [threading.Thread(target=allocate) for _ in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
with tempfile.NamedTemporaryFile() as file:
    stream = ctypes.c_void_p(libc.fopen(file.name.encode(), b"w"))
    libc.malloc_info(0, stream)
    libc.fclose(stream)
    print(file.read().count(b"<heap nr="))
"""


def _run(code: str, environment: dict[str, str]) -> list[int]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run([sys.executable, "-c", code], env=clean | environment, capture_output=True, text=True, check=True, timeout=60)
    return [int(word) for word in done.stdout.splitlines()[-1].split()]


def test_free_pages_between_used_ones_go_back() -> None:
    """100 MiB in blocks of 20 KiB, of which every fiftieth stays: freeing alone gives nothing back, looking gives nearly all."""
    full, freed, after, trims = _run(_FRAGMENTS.format(step=4 << 20), {})
    assert full > 90
    assert freed > 80
    assert after < 15
    assert trims == 1


def test_a_process_far_below_its_peak_may_grow_by_more() -> None:
    """Steps of 1 MiB: 2 MiB are left alone at 2 MiB of formerly 100, 6 are not; near 100 again, 2 MiB are a step."""
    assert _run(_FAR, {}) == [1, 1, 2, 3, 4]


def test_nothing_is_done_below_the_step() -> None:
    """A process that has not grown by a step is left in peace: walking the heap takes time."""
    _, freed, after, trims = _run(_FRAGMENTS.format(step=1 << 30), {})
    assert trims == 0
    assert after == freed


def test_the_environment_makes_one_heap() -> None:
    """Six threads allocate from one heap with the variables that executors get, and from several without."""
    assert _run(_HEAPS, allocator_environment()) == [1]
    assert _run(_HEAPS, {})[0] > 1


def test_the_callers_environment_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has set a variable of malloc keeps it."""
    monkeypatch.setenv("MALLOC_ARENA_MAX", "4")
    assert allocator_environment()["MALLOC_ARENA_MAX"] == "4"


def test_other_allocators_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where malloc is not glibc's nothing is called that is not there."""
    assert allocator_kind(SimpleNamespace(mallctl=1, gnu_get_libc_version=1)) == "jemalloc"
    monkeypatch.setattr("ctypes.CDLL", lambda _: SimpleNamespace())
    watch = AllocatorWatch(1)
    watch.look()
    watch.close()
    assert (watch.kind, watch.trims) == ("other", 0)
