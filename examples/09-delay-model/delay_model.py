"""A model per airline that predicts how late a flight arrives from how late it left, and learns from each flight."""

from typing import Any

from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from statefulspark import KeyedProcessFunction, RuntimeContext, Types, ValueStateDescriptor

RATE = 0.05
"""How far a model moves towards each flight."""
SCALE = 60.0
"""Delays are learned in hours."""


class DelayModel(KeyedProcessFunction):
    """Linear regression by normalized stochastic gradient descent. The state of an airline is its model: intercept and slope."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.model = runtime_context.get_state(ValueStateDescriptor("model", Types.PRIMITIVE_ARRAY(Types.DOUBLE())))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        intercept, slope = self.model.value() or (0.0, 0.0)
        departed, arrived = value.dep_delay / SCALE, value.arr_delay / SCALE
        predicted = intercept + slope * departed
        # First the prediction, then the lesson: so every prediction is about a flight that the model has not seen.
        yield value.flight_id, value.carrier, predicted * SCALE, float(value.arr_delay)
        step = RATE * (arrived - predicted) / (1.0 + departed * departed)
        self.model.update([intercept + step, slope + step * departed])


def pipeline(job: Any) -> Any:
    """Flights in, predictions out. ``event_time`` makes a model learn in the order of the flights, however they fall into batches."""
    schema = "flight_id INT, scheduled TIMESTAMP, flight STRING, dep_delay INT, arr_delay INT"
    flights = job.spark.readStream.schema(schema).option("maxFilesPerTrigger", 10).parquet("out/delay-model/input")
    flown = flights.where("dep_delay is not null and arr_delay is not null")
    # The flights of one minute are rows of one file, and keep its order.
    flown = flown.select("flight_id", "scheduled", "dep_delay", "arr_delay", F.substring("flight", 1, 2).alias("carrier"))
    predictions = job.key_by(flown, "carrier").process(
        DelayModel(), "flight_id INT, carrier STRING, predicted DOUBLE, arrived DOUBLE", uid="delay-model", event_time="scheduled"
    )
    return predictions.writeStream.format("parquet").option("path", "out/delay-model/output")
