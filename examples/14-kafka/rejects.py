"""Payments as in payments.py; records that are no payment go to a dead-letter topic, or stop the job."""

from importlib import import_module
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from statefulspark.kafka import KafkaSink

MAX_BYTES = 1_000_000
KEPT_BYTES = 1_000
HEADERS = "array<struct<key string, value binary>>"


def checked(records: DataFrame) -> DataFrame:
    """Add the payment of each record, and the problem of a record that has none."""
    small = F.when(F.length("value") <= MAX_BYTES, F.col("value").cast("string"))
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "broken"}
    parsed = records.withColumn("payment", F.from_json(small, "account STRING, cents BIGINT, broken STRING", options))
    problem = (
        F.when(F.length("value") > MAX_BYTES, F.concat(F.length("value").cast("string"), F.lit(" bytes")))
        .when(F.col("payment.broken").isNotNull(), "not JSON of a payment")
        .when(F.col("payment.account").isNull() | F.col("payment.cents").isNull(), "no account or no cents")
    )
    return parsed.withColumn("problem", problem)


def place() -> Column:
    """Name the record by topic, partition and offset, never by its contents."""
    return F.format_string("topic %s, partition %d, offset %d: %s", "topic", "partition", "offset", "problem")


def good(records: DataFrame, *, strict: bool) -> DataFrame:
    """Keep the payments. If strict, a record that is none stops the job with its place."""
    payments = checked(records)
    if strict:
        ends = F.when(F.col("problem").isNotNull(), F.raise_error(place())).otherwise(F.col("payment"))
        return payments.select(ends.alias("payment")).select("payment.account", "payment.cents")
    return payments.where("problem IS NULL").select("payment.account", "payment.cents")


def dead_letters(records: DataFrame, topic: str) -> DataFrame:
    """Keep the other records, as rows of the sink: the first bytes, and why and where they were rejected in a header."""
    return (
        checked(records)
        .where("problem IS NOT NULL")
        .select(
            "key",
            F.substring("value", 1, KEPT_BYTES).alias("value"),
            F.lit(topic).alias("topic"),
            F.array(F.struct(F.lit("problem").alias("key"), place().cast("binary").alias("value"))).cast(HEADERS).alias("headers"),
        )
    )


def pipeline(job: Any) -> Any:
    """Arguments: addresses of brokers, topic of payments, topic of balances, topic of dead letters or "" to stop at the first one."""
    servers, source, target, rejects = job.args
    records = (
        job.spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
    )
    balance = import_module("payments").Balance()
    balances = job.key_by(good(records, strict=not rejects), "account").process(
        balance, "account STRING, count BIGINT, cents BIGINT", uid="balances"
    )
    rows = balances.selectExpr(
        "CAST(account AS binary) AS key",
        "CAST(to_json(struct(*)) AS binary) AS value",
        f"'{target}' AS topic",
        f"CAST(NULL AS {HEADERS}) AS headers",
    )
    if rejects:
        rows = rows.unionByName(dead_letters(records, rejects))
    return rows.writeStream.foreachBatch(KafkaSink(job, uid="balances", bootstrap_servers=servers, topic=target))
