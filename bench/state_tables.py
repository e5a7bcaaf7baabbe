"""How fast the state of a savepoint becomes an Arrow table and a Spark DataFrame, beside Spark's own reader of state stores.

    python bench/state_tables.py [--entries 2000000] [--rounds 3]

Both have one count per key: ours a value state of LONG in a savepoint of two slots, Spark's that of ``groupBy("user").count()`` with two
partitions. The table of a canonical savepoint is read both by our data source and by Spark alone. Every read goes through a DataFrame to Spark's sink ``noop``, or to Arrow in this process.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from machine import Clock, load
from results import Result, Table, Target, arguments_of, keep
from state_snapshots import UID, write_savepoint

from statefulspark import state_tables
from statefulspark.job.spark.java import find_java_home
from statefulspark.state.encoding.layout import StateInfo, store_key
from statefulspark.state.types.types import Types
from statefulspark.state_tables.canonical.conversion import convert_to_canonical
from statefulspark.storage.open import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WANTED = 5
SLOTS = 2
GROUPS = 128
PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
OURS = {"filesystem": "ours, backend filesystem", "rocksdb": "ours, backend rocksdb"}
CANONICAL = "ours, canonical, DataFrame"
CANONICAL_PARQUET = "ours, canonical, DataFrame of its Parquet"
THEIRS = "Spark's statestore, RocksDB"


def main() -> None:
    """Write both states once, then read them in turn."""
    parser = arguments_of(__doc__)
    parser.add_argument("--entries", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    clock = Clock()
    with tempfile.TemporaryDirectory(prefix="state-tables-") as scratch, session() as spark:
        folder = Path(scratch)
        urls = {backend: our_state(folder / backend, options.entries, backend) for backend in OURS}
        readers: dict[str, Callable[[], int]] = {}
        for backend, url in urls.items():
            readers[f"{OURS[backend]}, Arrow"] = lambda url=url: into_arrow(url)  # type: ignore[misc]  # its default
            readers[f"{OURS[backend]}, DataFrame"] = lambda url=url: into_noop(our_frame(spark, url))  # type: ignore[misc]
        canonical = convert_to_canonical(urls["rocksdb"], (folder / "canonical").as_uri(), open_store=open_store).url
        readers[CANONICAL] = lambda: into_noop(our_frame(spark, canonical))
        readers[CANONICAL_PARQUET] = lambda: into_noop(spark.read.parquet(f"{canonical}/tables/uid={UID}/state=count"))
        theirs = spark_state(spark, folder, options.entries)
        readers[f"{THEIRS}, DataFrame"] = lambda: into_noop(spark.read.format("statestore").load(theirs))
        measured, loads = measure(readers, options.rounds, options.entries)
    best = {name: max(rates) for name, rates in measured.items()}
    result = Result(
        **clock.header(__file__),
        title="Reading state as tables",
        about=(
            f"Rows per second of {options.entries:,} entries (text key, `LONG` value) in {SLOTS} slots or partitions on two cores, into Arrow in one process "
            f"or through a Spark DataFrame into the sink `noop`. The canonical savepoint is that of `rocksdb`; Spark also reads its Parquet itself. Best of {options.rounds}."
        ),
        loads=loads,
        targets=tuple(
            Target(
                what=f"{what}, beside Spark's reader",
                wanted=WANTED,
                measured=best[ours] / best[f"{THEIRS}, DataFrame"],
                unit="times",
                at_least=True,
            )
            for what, ours in (
                ("The Parquet of a canonical savepoint", CANONICAL_PARQUET),
                ("A DataFrame of a canonical savepoint", CANONICAL),
                ("A DataFrame of our state, backend rocksdb", f"{OURS['rocksdb']}, DataFrame"),
            )
        ),
        tables=(
            Table(
                columns=("reader", "best rows/s", "median rows/s"),
                rows=tuple((name, f"{max(rates):,.0f}", f"{statistics.median(rates):,.0f}") for name, rates in measured.items()),
            ),
        ),
        figures=measured,
    )
    keep(result, options.result)


def measure(readers: dict[str, Callable[[], int]], rounds: int, entries: int) -> tuple[dict[str, list[float]], tuple[Any, ...]]:
    """Rows per second of each reader, round by round; the first round of each warms up and does not count."""
    measured: dict[str, list[float]] = {name: [] for name in readers}
    loads = []
    for number in range(rounds + 1):
        for name, read in readers.items():
            if number == 1:
                loads.append(load(name))
            began = time.perf_counter()
            rows = read()
            seconds = time.perf_counter() - began
            if rows != entries:
                raise SystemExit(f"{name} read {rows} rows, not {entries}")
            if number:
                measured[name].append(entries / seconds)
    return measured, tuple(loads)


def our_state(folder: Path, entries: int, backend: str) -> str:
    """A savepoint with a count per user."""
    key_type = [Types.STRING().to_json()]
    info = StateInfo(state_id=1, uid=UID, name="count", kind="value", key_type=key_type, type=Types.LONG().to_json())
    encode = Types.LONG().encode
    stored = ((store_key(number % GROUPS, 1, b"user-%09d" % number), b"\1" + encode(number)) for number in range(entries))
    return write_savepoint(folder, [info], stored, backend=backend, parallelism=SLOTS, max_parallelism=GROUPS)


def our_frame(spark: SparkSession, url: str) -> Any:
    """The state as a DataFrame."""
    return spark.read.format("statefulspark").option("uid", UID).option("state", "count").load(url)


def into_arrow(url: str) -> int:
    """Read the state into one Arrow table, and return its rows."""
    return int(state_tables.read_arrow(url, UID, "count").num_rows)


def into_noop(frame: Any) -> int:
    """Read a DataFrame to its end, and return its rows, which Spark counts on the way."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

    counted = Observation()
    frame.observe(counted, F.count(F.lit(1)).alias("rows")).write.format("noop").mode("overwrite").save()
    return int(counted.get["rows"])


def spark_state(spark: SparkSession, folder: Path, entries: int) -> str:
    """The checkpoint of a query that counted as many users once."""
    users = spark.range(entries).selectExpr("format_string('user-%09d', id) AS user")
    users.write.parquet(str(folder / "users"))
    counts = spark.readStream.schema("user string").parquet(str(folder / "users")).groupBy("user").count()
    location = str(folder / "spark-checkpoint")
    writer = counts.writeStream.format("noop").outputMode("update").option("checkpointLocation", location)
    writer.trigger(availableNow=True).start().awaitTermination()
    return location


@contextmanager
def session() -> Iterator[SparkSession]:
    """Two cores, two partitions of state."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("JAVA_HOME", find_java_home() or "")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(SLOTS),
        "spark.sql.streaming.stateStore.providerClass": PROVIDER,
        "spark.driver.memory": "2g",
    }
    builder = SparkSession.builder.master(f"local[{SLOTS}]").appName("state tables")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    state_tables.register(spark)
    try:
        yield spark
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
