"""Payments from one Kafka topic; each account's running balance to another, exactly once."""

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


def pipeline(job: Any) -> Any:
    """Arguments: addresses of brokers, topic of payments, topic of balances."""
    servers, source, target = job.args
    records = (
        job.spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 1000)
        .load()
    )
    payments = records.selectExpr("from_json(string(value), 'account STRING, cents BIGINT') AS payment").select("payment.*")
    payments = payments.where("account IS NOT NULL AND cents IS NOT NULL")
    balances = job.key_by(payments, "account").process(Balance(), "account STRING, count BIGINT, cents BIGINT", uid="balances")
    sink = KafkaSink(job, uid="balances", bootstrap_servers=servers, topic=target)
    return balances.selectExpr("account AS key", "to_json(struct(*)) AS value").writeStream.foreachBatch(sink)
