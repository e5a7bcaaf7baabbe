"""Requests and bytes per URL, counted from a web server's access log."""

from collections.abc import Callable
from typing import Any

from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from statefulspark import ReduceFunction, Row

LINE = r'^(\S+) \S+ \S+ \[([^\]]+)\] "([A-Z]+) (\S+) HTTP/[0-9.]+" (\d{3}) (\d+|-)$'
"""Common Log Format: host, identity, user, [time], "request", status, bytes ("-" for none)."""


class Totals(ReduceFunction):
    """Add a request to what its URL has had so far."""

    def reduce(self, value1: Row, value2: Row) -> Row:
        return Row(url=value1.url, requests=value1.requests + value2.requests, sent_bytes=value1.sent_bytes + value2.sent_bytes)


def latest_to(folder: str) -> Callable[[Any, int], None]:
    """Write the latest totals of each URL in a batch. A batch that runs again replaces what it has written."""

    def write(df: Any, batch_id: int) -> None:
        latest = df.groupBy("url").agg(F.max("requests").alias("requests"), F.max("sent_bytes").alias("sent_bytes"))
        latest.write.mode("overwrite").json(f"{folder}/batch={batch_id}")

    return write


def pipeline(job: Any) -> Any:
    """Log files in, one folder of totals per batch out. Lines that are no requests are left out."""
    lines = job.spark.readStream.option("maxFilesPerTrigger", 1).text("examples/06-access-log/log")
    fields = [F.regexp_extract("value", LINE, group).alias(name) for group, name in ((4, "url"), (6, "sent"))]
    requests = lines.where(F.col("value").rlike(LINE)).select(*fields)
    sent_bytes = F.when(F.col("sent") == "-", 0).otherwise(F.col("sent")).cast("bigint")
    requests = requests.select("url", F.lit(1).cast("bigint").alias("requests"), sent_bytes.alias("sent_bytes"))
    totals = job.key_by(requests, "url").reduce(Totals(), uid="totals")
    return totals.writeStream.foreachBatch(latest_to("out/access-log"))
