"""One process of `large_state.py`: restores a slot (``restore URL FIRST LAST FOLDER``), or fetches its files and nothing else (``get …``).

It prints ``ready``, starts on a line of input, and prints its seconds.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3

from statefulspark.checkpoint.catalog import StoredCheckpoint, open_checkpoint
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.restore.slot import RestorePlan, restore_slot
from statefulspark.checkpoint.restore.sources import sources_of
from statefulspark.keygroups import KeyGroupRange
from statefulspark.state.store.base import KeyValueStore
from statefulspark.state.store.rocksdb_memory import RocksDBMemory
from statefulspark.state.store.rocksdb_store import RocksDBOptions, RocksDBStore
from statefulspark.storage.open import open_store

_MANAGED_BYTES = 512 << 20
_THREADS = 8
_PIECE_BYTES = 64 << 10  # a larger one would cost it time in the kernel, with the allocator set as in a slot


def main() -> None:
    """Be one of the processes that work at the same time."""
    way, url, first, last, folder = sys.argv[1:]
    base = open_checkpoint(url, open_store)
    groups = KeyGroupRange(int(first), int(last))
    work: Callable[[], None] = {"restore": _restoring, "get": _getting}[way](base, groups, Path(folder))
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.perf_counter()
    work()
    print(time.perf_counter() - began, flush=True)


def _restoring(base: StoredCheckpoint, groups: KeyGroupRange, folder: Path) -> Callable[[], None]:
    memory = RocksDBMemory.managed(_MANAGED_BYTES)

    def open_state(path: Path) -> KeyValueStore:
        return RocksDBStore(path, RocksDBOptions(memory=memory))

    plan = RestorePlan(
        store=open_store(base.store.url),
        base=base,
        changelogs=(),
        batch=base.metadata.batch,
        key_groups=groups,
        max_parallelism=base.metadata.max_parallelism,
        backend="rocksdb",
    )

    def restore() -> None:
        restore_slot(plan, folder, open_state, threads=_THREADS).store.close()

    return restore


def _getting(base: StoredCheckpoint, groups: KeyGroupRange, folder: Path) -> Callable[[], None]:
    """Fetch the same files with nothing but the client of the service, many at a time."""
    keys = [paths.resolve_reference(base.key, file.path) for source in sources_of(base.metadata, groups).all for file in source.slot.files]
    bucket, _, prefix = base.store.url.removeprefix("s3://").partition("/")
    client = boto3.client("s3")
    folder.mkdir(parents=True)

    def get(key: str) -> None:
        body = client.get_object(Bucket=bucket, Key=f"{prefix}/{key}")["Body"]
        with (folder / Path(key).name).open("wb") as file:
            shutil.copyfileobj(body, file, _PIECE_BYTES)

    def all_of_them() -> None:
        with ThreadPoolExecutor(_THREADS) as pool:
            for done in [pool.submit(get, key) for key in keys]:
                done.result()

    return all_of_them


if __name__ == "__main__":
    main()
