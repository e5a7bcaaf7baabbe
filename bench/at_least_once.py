"""Checkpointing modes ``exactly-once`` and ``at-least-once``, side by side in one run, to files and to an S3 service over HTTP.

Each run is a job in a process of its own, in turns. It counts the rows of keys in small batches and then in large ones, and takes a checkpoint every
10 s. The service is moto in the process of the benchmark, which answers in a few milliseconds; with a delay it takes as long as a bucket in a region
does. What a run leaves in storage must be what Arrow counts.

    .venv/bin/python bench/at_least_once.py [--small 1000] [--large 50000] [--delays 0,25] [--rounds 3]
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import boto3
from count_contenders import RESULT, expected_counts
from count_per_key import write_events
from machine import Clock, load
from moto.moto_server.werkzeug_app import DomainDispatcherApplication
from moto.server import ThreadedMotoServer
from our_job import run_job
from results import Load, Result, Table, Target, arguments_of, keep, spread

MODES = ("exactly-once", "at-least-once")
KEYS = 20_000
WARM_UP = 3
_BUCKET = "bucket"
_REGION = "us-east-1"
_ACCESS_KEY = "test"
"""Both halves of the credentials; moto takes any."""
_LIMIT_S = 240


@dataclass
class Requests:
    """Counts and delays what the service is asked."""

    delay_ms: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the requests of all services of this process."""
        answer = DomainDispatcherApplication.__call__

        def delayed(app: Any, environ: Any, start_response: Any) -> Any:
            with self._lock:
                self.counts[environ["REQUEST_METHOD"]] += 1
            time.sleep(self.delay_ms / 1000)
            return answer(app, environ, start_response)

        with patch.object(DomainDispatcherApplication, "__call__", delayed):
            yield


@contextmanager
def s3_service() -> Iterator[str]:
    """Serve a bucket until the end of the block; the URL of the service. All services of a process have the same objects."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # a line per request
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    try:
        client = boto3.client(
            "s3", endpoint_url=endpoint, region_name=_REGION, aws_access_key_id=_ACCESS_KEY, aws_secret_access_key=_ACCESS_KEY
        )
        client.create_bucket(Bucket=_BUCKET)
        yield endpoint
    finally:
        server.stop()


@dataclass
class Figures:
    """Of the runs of one mode on one store."""

    small_ms: list[float] = field(default_factory=list)
    large_ms: list[float] = field(default_factory=list)
    puts: list[float] = field(default_factory=list)
    requests: list[float] = field(default_factory=list)

    def add(self, batches: list[dict[str, Any]], sizes: tuple[int, int], asked: Counter[str]) -> None:
        """Take one run."""
        for size, found in zip(sizes, (self.small_ms, self.large_ms), strict=True):
            found.append(statistics.median([entry["ms"] for entry in batches if entry["rows"] == size][WARM_UP:]))
        self.puts.append(asked["PUT"] / len(batches))
        self.requests.append(asked.total() / len(batches))


def write_input(folder: Path, sizes: list[int]) -> None:
    """A file per batch, in order."""
    folder.mkdir()
    for number, size in enumerate(sizes):
        part = folder.with_name("part")
        write_events(part, batches=1, batch=size, keys=KEYS)
        path = folder / f"events-{number:04d}.parquet"
        (part / "events-0000.parquet").rename(path)
        os.utime(path, (1_700_000_000 + number,) * 2)
        part.rmdir()


def run_child(mode: str, url: str, endpoint: str, source: Path) -> None:
    """Run the job."""
    storage = {"endpoint": endpoint, "region": _REGION} if endpoint else {}
    with tempfile.TemporaryDirectory(prefix="bench-run-") as folder:
        batches = run_job("count", "count_job.py", [source], Path(folder), {"dir": url, "mode": mode, "storage": storage})
    print(RESULT + json.dumps(batches))


def check(url: str, endpoint: str, source: Path) -> None:
    """Raise RuntimeError unless the newest checkpoint of the job holds what Arrow counts."""
    from statefulspark.checkpoint.inspect.reader import read_state
    from statefulspark.storage.open import open_store
    from statefulspark.storage.storage_settings import StorageSettings

    settings = StorageSettings()
    if endpoint:
        settings = StorageSettings(endpoint=endpoint, region=_REGION, access_key_id=_ACCESS_KEY, secret_access_key=_ACCESS_KEY)
    held = {
        entry.key: entry.value for entry in read_state(f"{url}/count", "count", "count", open_store=lambda at: open_store(at, settings))
    }
    if held != expected_counts(source):
        raise RuntimeError(f"the job at {url} counted wrongly")


def run_one(mode: str, url: str, endpoint: str, source: Path) -> list[dict[str, Any]]:
    """Run a job in a process of its own; what its batches took."""
    command = [sys.executable, __file__, "--child", mode, url, endpoint, str(source)]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "AWS_ACCESS_KEY_ID": _ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": _ACCESS_KEY}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=_LIMIT_S)
    line = next((line for line in done.stdout.splitlines() if line.startswith(RESULT)), None)
    if line is None:
        raise RuntimeError(f"{mode} on {url} failed:\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}")
    found: list[dict[str, Any]] = json.loads(line.removeprefix(RESULT))
    return found


def main() -> None:
    """Run both modes in turns on each store."""
    parser = arguments_of(__doc__)
    parser.add_argument("--small", type=int, default=1_000, help="rows of a small batch")
    parser.add_argument("--large", type=int, default=50_000, help="rows of a large batch")
    parser.add_argument("--batches", type=int, default=40, help="small batches; a quarter as many are large")
    parser.add_argument("--delays", default="0,25", help="milliseconds by which the S3 service answers later")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", nargs=4, help="(internal)")
    options = parser.parse_args()
    if options.child:
        mode, url, endpoint, source = options.child
        run_child(mode, url, endpoint, Path(source))
        return
    clock, loads = Clock(), list[Load]()
    sizes = (options.small, options.large)
    stores: dict[str, float | None] = {"file://": None}
    stores |= {_name(float(delay)): float(delay) for delay in options.delays.split(",") if delay}
    figures = {(store, mode): Figures() for store in stores for mode in MODES}
    folder = Path(tempfile.mkdtemp(prefix="bench-modes-"))
    try:
        write_input(folder / "events", [options.small] * options.batches + [options.large] * max(options.batches // 4, WARM_UP + 1))
        for turn in range(options.rounds):
            for number, (store, delay_ms) in enumerate(stores.items()):
                for mode in MODES if turn % 2 == 0 else reversed(MODES):
                    loads.append(load(f"{store} {mode} {turn + 1}"))
                    requests = Requests(delay_ms=delay_ms or 0.0)
                    with requests.counted(), s3_service() if delay_ms is not None else nullcontext("") as endpoint:
                        # A job that finds state of its name resumes from it.
                        url = f"{f's3://{_BUCKET}' if endpoint else f'file://{folder}'}/{mode}-{number}-{turn}"
                        batches = run_one(mode, url, endpoint, folder / "events")
                        asked = Counter(requests.counts)
                        check(url, endpoint, folder / "events")
                    figures[store, mode].add(batches, sizes, asked)
    finally:
        shutil.rmtree(folder)
    keep(_result(clock, loads, figures, list(stores), sizes), options.result)


def _name(delay_ms: float) -> str:
    return f"S3 + {delay_ms:g} ms" if delay_ms else "S3"


def _result(clock: Clock, loads: list[Load], figures: dict[tuple[str, str], Figures], stores: list[str], sizes: tuple[int, int]) -> Result:
    rows, targets = [], []
    for store in stores:
        once, least = (figures[store, mode] for mode in MODES)
        for mode, found in zip(MODES, (once, least), strict=True):
            asked = (f"{statistics.median(found.puts):.1f}", f"{statistics.median(found.requests):.1f}") if store != "file://" else ("", "")
            rows.append((store, mode, *(_times(found, which, sizes) for which in (0, 1)), *asked))
        gains = [[a / b for a, b in zip(*pair, strict=True)] for pair in ((once.small_ms, least.small_ms), (once.large_ms, least.large_ms))]
        rows.append((store, "gain", *(f"{statistics.median(gain):.2f} x ({spread(gain, 2)})" for gain in gains), "", ""))
        if store.endswith("ms"):
            targets.append(
                Target(
                    what=f"time of a small batch, at-least-once, {store}",
                    wanted=90,
                    measured=100 * statistics.median([b / a for a, b in zip(once.small_ms, least.small_ms, strict=True)]),
                    unit="% of exactly-once",
                    at_least=False,
                )
            )
    columns = (
        "store",
        "mode",
        f"ms per batch of {sizes[0]:,} rows",
        f"ms per batch of {sizes[1]:,} rows",
        "PUTs per batch",
        "requests per batch",
    )
    return Result(
        **clock.header(__file__),
        title="Checkpointing mode at-least-once",
        about=(
            "Time of a batch in both checkpointing modes, in turns in one run: count per key over "
            f"{KEYS:,} keys, 2 slots on RocksDB, a checkpoint every 10 s, nothing done with the results. Medians of the rounds, with rows/s; gains are "
            "medians of pairs. S3 is moto on the same machine, which takes CPU time from the job; `+ 25 ms` delays each answer, as a bucket would. "
            "Requests are all of a run, with start, checkpoints and end, divided by its batches."
        ),
        loads=tuple(loads),
        targets=tuple(targets),
        tables=(Table(columns=columns, rows=tuple(rows)),),
        figures={f"{store} {mode}": vars(found) for (store, mode), found in figures.items()},
    )


def _times(found: Figures, which: int, sizes: tuple[int, int]) -> str:
    ms = statistics.median((found.small_ms, found.large_ms)[which])
    return f"{ms:,.0f} ({sizes[which] / ms * 1000:,.0f} rows/s)"


if __name__ == "__main__":
    main()
