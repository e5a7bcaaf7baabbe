"""Alerts on temperatures at airports, by rules that change while the job runs: every slot gets each rule, and keeps it as broadcast state."""

from typing import Any

from statefulspark import KeyedBroadcastProcessFunction, MapStateDescriptor, RuntimeContext, Types

RULES = MapStateDescriptor("rules", Types.STRING(), Types.TUPLE([Types.STRING(), Types.DOUBLE()]))
"""Name of a rule to ``below`` or ``above``, and its limit in degrees Fahrenheit."""
RAISED = MapStateDescriptor("raised", Types.STRING(), Types.LONG())
"""Of an airport: the rules whose alert is raised, and since when."""


class Alerts(KeyedBroadcastProcessFunction):
    """Raise an alert when an observation breaks a rule, and clear it when a later one no longer does."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.raised = runtime_context.get_map_state(RAISED)

    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> None:
        rules = ctx.get_broadcast_state(RULES)
        if value.condition is not None:
            rules.put(value.rule, (value.condition, value.limit))
        else:
            rules.remove(value.rule)
            ctx.apply_to_keyed_state(RAISED, lambda _, raised: raised.remove(value.rule))

    def process_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> Any:
        for rule, (condition, limit) in ctx.get_broadcast_state(RULES).items():
            broken = value.temp < limit if condition == "below" else value.temp > limit
            if broken and not self.raised.contains(rule):
                self.raised.put(rule, ctx.timestamp())
                yield value.origin, value.at, rule, "raised", value.temp
            elif not broken and self.raised.contains(rule):
                self.raised.remove(rule)
                yield value.origin, value.at, rule, "cleared", value.temp


def pipeline(job: Any) -> Any:
    """Observations of a week and the rules that begin with it at a time in, alerts out."""
    files = job.spark.readStream.option("maxFilesPerTrigger", 1)
    weather = files.schema("origin STRING, at TIMESTAMP, temp DOUBLE").parquet("out/alert-rules/weather")
    rules = files.schema("rule STRING, condition STRING, limit DOUBLE").json("out/alert-rules/rules")
    alerts = (
        job.key_by(weather, "origin")
        .connect(job.broadcast(rules, RULES))
        .process(Alerts(), "origin STRING, at TIMESTAMP, rule STRING, alert STRING, temp DOUBLE", uid="alerts", event_time="at")
    )
    return alerts.writeStream.format("parquet").option("path", "out/alert-rules/output")
