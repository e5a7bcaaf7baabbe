"""The job around the ported function: payments in, reports out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from card_guard import CardGuard

if TYPE_CHECKING:
    from pyspark.sql.streaming import DataStreamWriter

    from statefulspark import Job


def pipeline(job: Job) -> DataStreamWriter:
    """Read JSON lines, guard each card, write Parquet."""
    payments = job.spark.readStream.schema("card STRING, at TIMESTAMP, cents BIGINT").json("examples/03-pyflink-port/payments")
    reports = job.key_by(payments, "card").process(
        CardGuard(),
        "card STRING, at_ms BIGINT, spent_cents BIGINT, largest_cents BIGINT, report INT",
        uid="card-guard",
        event_time="at",
        watermark="10 minutes",
    )
    return reports.writeStream.format("parquet").option("path", "out/card-guard/output")
