"""The job of the end-to-end tests: numbers come at a steady pace, each key counts its own.

The source gives 0, 1, 2, ... and the key of number n is n modulo the number of keys, so the count that goes out with n must be
n // keys + 1, whatever was killed meanwhile. The sink writes one object for each time a batch is run and never overwrites one.
"""

from __future__ import annotations

import argparse
import json
import random
import time
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from statefulspark import KeyedProcessFunction, RuntimeContext, Types, ValueStateDescriptor

CODE = 1
"""Version of this program; the images of upgrades have others here."""

HOARDED = Path("/tmp/hoarded")  # noqa: S108  of the pod
HOARD_BYTES = 4 << 30


def pad_of(key: int, size_bytes: int) -> bytes:
    """Bytes that do not compress and that follow from the key alone."""
    return random.Random(key).randbytes(size_bytes)


class Count(KeyedProcessFunction):
    """Count the rows of a key; the first leaves ``pad_bytes`` of state, which the others find again."""

    def __init__(self, pad_bytes: int, fail_from: int | None, hoard_at: int | None) -> None:
        self.pad_bytes = pad_bytes
        self.fail_from = fail_from
        self.hoard_at = hoard_at

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get the states."""
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.pad = runtime_context.get_state(ValueStateDescriptor("pad", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        """Give out the number, how many of its key there were, and a checksum of what was kept."""
        if self.fail_from is not None and value.value >= self.fail_from:
            raise ValueError("told to fail")
        if self.hoard_at == value.value and not HOARDED.exists():
            HOARDED.touch()  # once in the life of a pod
            self.hoard = bytearray(HOARD_BYTES)
            self.hoard[:: 1 << 12] = b"x" * (HOARD_BYTES >> 12)  # takes every page
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        if count == 1:
            self.pad.update(pad_of(value.key, self.pad_bytes))
        yield value.value, count, zlib.crc32(self.pad.value() or b""), CODE


def pipeline(job: Any) -> Any:
    """Numbers in, counts out."""
    options = arguments().parse_args(job.args)
    store = boto3.client("s3", endpoint_url=options.endpoint, region_name="us-east-1")
    numbers = (
        job.spark.readStream.format("rate-micro-batch")
        .options(rowsPerBatch=options.rows, numPartitions=1, startTimestamp=0, advanceMillisPerBatch=1000)
        .load()
        .withColumn("key", F.expr(f"value % {options.keys}"))
    )
    counts = job.key_by(numbers, "key").process(
        Count(options.pad_bytes, options.fail_from, options.hoard_at), "value BIGINT, count BIGINT, pad BIGINT, code INT", uid="count"
    )

    def write(rows: DataFrame, batch: int) -> None:
        if options.closed_while and store.list_objects_v2(Bucket=options.bucket, Prefix=options.closed_while)["KeyCount"]:
            raise ConnectionError("the sink is closed")
        body = json.dumps({"batch": batch, "rows": [tuple(row) for row in rows.collect()]})
        key = f"{options.prefix}/{batch:09d}-{time.time_ns() // 1_000_000}-{uuid.uuid4().hex}.json"
        store.put_object(Bucket=options.bucket, Key=key, Body=body.encode())

    return counts.writeStream.foreachBatch(write).trigger(processingTime=options.every)


def arguments() -> argparse.ArgumentParser:
    """What the manifest's ``job.args`` may say."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--bucket", required=True)
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--rows", type=int, required=True, help="of each batch")
    parser.add_argument("--every", default="1 second", help="time between two batches")
    parser.add_argument("--pad-bytes", type=int, default=0, help="state of each key")
    parser.add_argument("--fail-from", type=int, help="number at which the program fails")
    parser.add_argument("--closed-while", help="object in the store, while which is there the sink raises")
    parser.add_argument("--hoard-at", type=int, help="number at which a slot takes more memory than its pod has")
    return parser
