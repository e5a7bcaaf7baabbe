"""Measurements that a queue delivers at least once, each passed on exactly once."""

from typing import Any

from statefulspark import FilterFunction, RuntimeContext, StateTtlConfig, Time, Types, ValueStateDescriptor

REMEMBERED = Time.hours(1)
"""How long an id is remembered. The queue delivers again within minutes, so state stays as small as the traffic of an hour."""


class FirstDelivery(FilterFunction):
    """True for the first delivery of an id within an hour."""

    def open(self, runtime_context: RuntimeContext) -> None:
        seen = ValueStateDescriptor("seen", Types.BOOLEAN())
        seen.enable_time_to_live(StateTtlConfig.new_builder(REMEMBERED).build())
        self.seen = runtime_context.get_state(seen)

    def filter(self, value: Any) -> bool:
        if self.seen.value():
            return False
        self.seen.update(True)
        return True


def pipeline(job: Any) -> Any:
    """Deliveries in, measurements out."""
    schema = "id STRING, at TIMESTAMP, device STRING, value DOUBLE"
    deliveries = job.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json("examples/07-deduplication/deliveries")
    measurements = job.key_by(deliveries, "id").filter(FirstDelivery(), uid="first-delivery")
    return measurements.writeStream.format("parquet").option("path", "out/deduplication")
