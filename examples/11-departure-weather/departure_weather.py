"""Each departure with the temperature at its airport in the hour of its departure: two keyed streams, joined by airport and hour."""

from typing import Any

from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from statefulspark import KeyedCoProcessFunction, ListStateDescriptor, RuntimeContext, Types, ValueStateDescriptor

HOUR_MS = 60 * 60 * 1000


class WithTemperature(KeyedCoProcessFunction):
    """A departure waits for the observation of its hour; when the hour is over on both streams, there is none."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.temperature = runtime_context.get_state(ValueStateDescriptor("temperature", Types.DOUBLE()))
        self.waiting = runtime_context.get_list_state(ListStateDescriptor("waiting", Types.LONG()))

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any:
        temperature = self.temperature.value()
        if temperature is not None:
            yield value.flight_id, value.origin, temperature
        else:
            self.waiting.add(value.flight_id)
        self._forget_later(ctx)

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any:
        self.temperature.update(value.temp)
        for flight_id in self.waiting.get():
            yield flight_id, value.airport, value.temp
        self.waiting.clear()
        self._forget_later(ctx)

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Any:
        origin, _ = ctx.get_current_key()
        for flight_id in self.waiting.get():
            yield flight_id, origin, None
        self.waiting.clear()
        self.temperature.clear()

    def _forget_later(self, ctx: KeyedCoProcessFunction.Context) -> None:
        # The watermark of the slower stream passes the end of the hour once neither can have another row of it.
        ctx.timer_service().register_event_time_timer(ctx.timestamp() // HOUR_MS * HOUR_MS + HOUR_MS)


def pipeline(job: Any) -> Any:
    """Flights of a day and observations of a week at a time in, departures with temperatures out."""
    files = job.spark.readStream.option("maxFilesPerTrigger", 1)
    flights = files.schema("flight_id INT, scheduled TIMESTAMP, origin STRING").parquet("out/departure-weather/flights")
    weather = files.schema("origin STRING, at TIMESTAMP, temp DOUBLE").parquet("out/departure-weather/weather")
    departures = job.key_by(flights.withColumn("hour", F.date_trunc("hour", "scheduled")), "origin", "hour")
    observations = job.key_by(weather.withColumnRenamed("origin", "airport"), "airport", "at")
    enriched = departures.connect(observations).process(
        WithTemperature(), "flight_id INT, origin STRING, temp DOUBLE", uid="with-temperature", event_time1="scheduled", event_time2="at"
    )
    return enriched.writeStream.format("parquet").option("path", "out/departure-weather/output")
