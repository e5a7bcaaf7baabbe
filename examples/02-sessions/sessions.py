# ruff: noqa: ANN001, ANN201, D100, D103 - a script as a newcomer writes it; the README shows it from here on
from statefulspark import KeyedProcessFunction, Types, ValueStateDescriptor

GAP_MS = 30 * 60 * 1000


class Sessions(KeyedProcessFunction):
    """Count a user's clicks until half an hour goes by without one."""

    def open(self, runtime_context):
        self.clicks = runtime_context.get_state(ValueStateDescriptor("clicks", Types.LONG()))
        self.end_ms = runtime_context.get_state(ValueStateDescriptor("end_ms", Types.LONG()))

    def process_element(self, value, ctx):
        if (end_ms := self.end_ms.value()) is not None:
            ctx.timer_service().delete_event_time_timer(end_ms)
            if ctx.timestamp() >= end_ms:
                yield from self.on_timer(end_ms, ctx)
        self.clicks.update((self.clicks.value() or 0) + 1)
        self.end_ms.update(ctx.timestamp() + GAP_MS)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + GAP_MS)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), self.clicks.value(), timestamp
        self.clicks.clear()
        self.end_ms.clear()


def pipeline(job):
    clicks = job.spark.readStream.schema("user STRING, at TIMESTAMP").json("examples/02-sessions/clicks")
    schema = "user STRING, clicks BIGINT, end_ms BIGINT"
    sessions = job.key_by(clicks, "user").process(Sessions(), schema, uid="sessions", event_time="at", watermark="5 minutes")
    return sessions.writeStream.format("parquet").option("path", "out/sessions/output")
