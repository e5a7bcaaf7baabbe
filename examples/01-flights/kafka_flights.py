"""The flights of ``flights.py`` from one Kafka topic to another, exactly once. ``make demo-kafka`` runs it.

The records of a topic are in order within a partition only, and one partition may be days ahead of another. So the watermark follows the partition that
is furthest behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flights import FLIGHT_SCHEMA, ROTATION_SCHEMA, AircraftRotation
from pyspark.sql import functions as sf

from statefulspark.kafka import KafkaSink

if TYPE_CHECKING:
    from pyspark.sql.streaming import DataStreamWriter

    from statefulspark import Job

WATERMARK = "1 hour"


def pipeline(job: Job) -> DataStreamWriter:
    """Arguments: addresses of brokers, topic of flights, topic of legs, records per batch."""
    servers, source, target, per_batch = job.args
    records = (
        job.spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", per_batch)
        .load()
    )
    flight = sf.from_json(sf.col("value").cast("string"), FLIGHT_SCHEMA).alias("flight")
    flights = records.select(flight, "partition").select("flight.*", "partition").where("tailnum IS NOT NULL")
    flights = flights.withColumn("scheduled", sf.timestamp_millis("scheduled_ms"))
    rotation = job.key_by(flights, "tailnum").process(
        AircraftRotation(), ROTATION_SCHEMA, uid="rotation", event_time="scheduled", watermark=WATERMARK, watermark_by="partition"
    )
    sink = KafkaSink(job, uid="legs", bootstrap_servers=servers, topic=target)
    return rotation.selectExpr("tailnum AS key", "to_json(struct(*)) AS value").writeStream.foreachBatch(sink)
