"""Throughput of gs:// and abfss:// on the emulators of the tests: small conditional writes, reads, one large file. Needs `make emulators`.

    python bench/more_stores.py

The figures compare our clients on one machine; emulators say nothing of the services' own speed.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

from runtime.tests.storage.remote_stores import SERVICES

from statefulspark.storage.base import ObjectStore
from statefulspark.storage.limits import StoreLimits
from statefulspark.storage.local.store import LocalStore
from statefulspark.storage.transfers import each

_OBJECTS = 200
_SMALL = b"x" * 4096
_LARGE_MIB = 64


def measure(store: ObjectStore, folder: Path) -> list[str]:
    """One line of the table: rates of small objects a second, and MiB a second of a large file."""
    keys = [f"small/{number:04d}" for number in range(_OBJECTS)]
    source, target = folder / "source", folder / "target"
    source.write_bytes(os.urandom(_LARGE_MIB << 20))
    create = _seconds(lambda: each(_creator(store), keys, 1))
    read = _seconds(lambda: [store.get(key) for key in keys])
    read_at_once = _seconds(lambda: each(_reader(store), keys, 8))
    listed = _seconds(lambda: store.list("small/"))
    deleted = _seconds(lambda: store.delete(keys))
    up = _seconds(lambda: store.put_file("large", source))
    down = _seconds(lambda: store.get_file("large", target))
    rates = [_OBJECTS / each_s for each_s in (create, read, read_at_once, listed, deleted)] + [_LARGE_MIB / each_s for each_s in (up, down)]
    return [f"{rate:.0f}" for rate in rates]


def _creator(store: ObjectStore) -> Callable[[str], None]:
    def create(key: str) -> None:
        store.put_if_absent(key, _SMALL)

    return create


def _reader(store: ObjectStore) -> Callable[[str], None]:
    def read(key: str) -> None:
        store.get(key)

    return read


def _seconds(action: Callable[[], object]) -> float:
    start_s = time.perf_counter()
    action()
    return time.perf_counter() - start_s


def main() -> None:
    """Print the table."""
    print("| store | creates/s | reads/s | reads/s, 8 threads | listed/s | deletes/s | upload MiB/s | download MiB/s |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(f"| file | {' | '.join(measure(LocalStore(folder / 'store'), folder))} |")
        for scheme, serve in SERVICES.items():
            with serve(folder) as service, patch.dict(os.environ, service.environment):
                print(f"| {scheme} | {' | '.join(measure(service.store(StoreLimits()), folder))} |", flush=True)


if __name__ == "__main__":
    main()
