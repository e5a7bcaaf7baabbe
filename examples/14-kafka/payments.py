"""Payments from one Kafka topic; each account's running balance to another, exactly once."""

import json
import os
from pathlib import Path
from typing import Any

from statefulspark import KeyedProcessFunction, Types, ValueStateDescriptor
from statefulspark.kafka import KafkaSink


class Balance(KeyedProcessFunction):
    """Number each account's payments and add them up."""

    def open(self, runtime_context: Any) -> None:
        """Two states per account."""
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.cents = runtime_context.get_state(ValueStateDescriptor("cents", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        """Emit the balance after this payment."""
        count, cents = (self.count.value() or 0) + 1, (self.cents.value() or 0) + value.cents
        self.count.update(count)
        self.cents.update(cents)
        yield value.account, count, cents


def security() -> tuple[dict[str, str], dict[str, str]]:
    """TLS and SCRAM as Spark's source and the sink want them, by the files in the folder KAFKA_SECRET; neither if it is not set."""
    if "KAFKA_SECRET" not in os.environ:
        return {}, {}
    secret = Path(os.environ["KAFKA_SECRET"])
    user, password, authority = ((secret / name).read_text().strip() for name in ("username", "password", "ca.crt"))
    name, word = (json.dumps(text, ensure_ascii=False) for text in (user, password))  # JAAS escapes quotes and backslashes in the same way
    source = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f"org.apache.kafka.common.security.scram.ScramLoginModule required username={name} password={word};",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": authority,
    }
    sink = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": password,
        "ssl.ca.pem": authority,
    }
    return source, sink


def pipeline(job: Any) -> Any:
    """Arguments: addresses of brokers, topic of payments, topic of balances."""
    servers, source, target = job.args
    source_security, sink_security = security()
    records = (
        job.spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 1000)
        .options(**source_security)
        .load()
    )
    payments = records.selectExpr("from_json(string(value), 'account STRING, cents BIGINT') AS payment").select("payment.*")
    payments = payments.where("account IS NOT NULL AND cents IS NOT NULL")
    balances = job.key_by(payments, "account").process(Balance(), "account STRING, count BIGINT, cents BIGINT", uid="balances")
    sink = KafkaSink(job, uid="balances", bootstrap_servers=servers, topic=target, options=sink_security)
    return balances.selectExpr("account AS key", "to_json(struct(*)) AS value").writeStream.foreachBatch(sink)
