# ruff: noqa: ANN001, ANN201, D100, D103 - a script as a newcomer writes it
from statefulspark import AggregateFunction, EventTimeSessionWindows, Time, Types, WindowFunction

GAP = Time.minutes(30)


class Count(AggregateFunction):
    """Count rows."""

    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + 1

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


class Session(WindowFunction):
    """Add the user, and the end of the session."""

    def apply(self, key, window, inputs):
        yield key, inputs[0], window.end


def sessions_of(windows):
    schema = "user STRING, clicks BIGINT, end_ms BIGINT"
    return windows.aggregate(Count(), Session(), Types.LONG(), schema, uid="sessions", event_time="at", watermark="5 minutes")


def pipeline(job):
    clicks = job.spark.readStream.schema("user STRING, at TIMESTAMP").json("examples/02-sessions/clicks")
    windows = job.key_by(clicks, "user").window(EventTimeSessionWindows.with_gap(GAP))
    return sessions_of(windows).writeStream.format("parquet").option("path", "out/session-windows/output")
