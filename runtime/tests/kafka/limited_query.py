"""Reads a topic 30 records at a time, and writes Spark's report of the third batch, and the records per partition until then, to a file.

Arguments: addresses of brokers, topic, jars, file.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from statefulspark.job.spark.last_progress import LastProgress

STOPS_AT = 3


def main(servers: str, topic: str, jars: str, target: str) -> None:
    """Run the query until its fourth batch."""
    spark = SparkSession.builder.master("local[1]").config("spark.jars", jars).config("spark.ui.enabled", "false").getOrCreate()
    read: Counter[int] = Counter()
    done = threading.Event()

    def take(rows: DataFrame, batch: int) -> None:
        if batch < STOPS_AT:
            read.update({row["partition"]: row["count"] for row in rows.groupBy("partition").count().collect()})
        elif not done.is_set():
            progress = LastProgress(lambda: spark.streams.active[0]).read()
            Path(target).write_text(json.dumps({"read": read, "progress": progress}), encoding="utf-8")
            done.set()

    records = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    records = records.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 30)
    query = records.load().writeStream.foreachBatch(take).start()
    while query.isActive and not done.is_set():
        done.wait(0.1)
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
