"""How much warmer or colder it is than at the same hour of yesterday, at each airport."""

from typing import Any

from statefulspark import KeyedProcessFunction, MapStateDescriptor, RuntimeContext, Types

DAY_MS = 24 * 60 * 60 * 1000


class SinceYesterday(KeyedProcessFunction):
    """Compare each observation with that of 24 hours before. A timer forgets an observation once it is of no more use."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.temperatures = runtime_context.get_map_state(MapStateDescriptor("temperatures", Types.LONG(), Types.DOUBLE()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        now = ctx.timestamp()
        self.temperatures.put(now, value.temp)
        # An observation of the next day needs this one. After the watermark has passed that day, none can come.
        ctx.timer_service().register_event_time_timer(now + DAY_MS)
        yesterday = self.temperatures.get(now - DAY_MS)
        if yesterday is not None:
            yield value.origin, value.at, value.temp, value.temp - yesterday

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> None:
        self.temperatures.remove(timestamp - DAY_MS)


def pipeline(job: Any) -> Any:
    """Observations in, differences out."""
    weather = job.spark.readStream.schema("origin STRING, at TIMESTAMP, temp DOUBLE").option("maxFilesPerTrigger", 1)
    differences = job.key_by(weather.parquet("out/weather/input"), "origin").process(
        SinceYesterday(),
        "origin STRING, at TIMESTAMP, temp DOUBLE, difference DOUBLE",
        uid="since-yesterday",
        event_time="at",
        watermark="1 hour",
    )
    return differences.writeStream.format("parquet").option("path", "out/weather/output")
