"""A rule that begins and ends, by hand."""

from alert_rules import RULES, Alerts

from statefulspark.testing import BroadcastInput, KeyedBroadcastProcessHarness

WEATHER = "origin STRING, at TIMESTAMP, temp DOUBLE"
ALERTS = "origin STRING, at TIMESTAMP, rule STRING, alert STRING, temp DOUBLE"


def test_an_alert_is_raised_once_and_cleared() -> None:
    """By the rule that the slot knows at the time of the observation."""
    rules = BroadcastInput("rule STRING, condition STRING, limit DOUBLE", RULES)
    with KeyedBroadcastProcessHarness(Alerts(), WEATHER, rules, ALERTS, key="origin", event_time="at") as harness:
        temperatures = iter(enumerate([20.0, 20.0, 19.0, 33.0, 10.0]))
        harness.process_element({"origin": "JFK", "temp": next(temperatures)[1]}, timestamp=0)
        harness.process_broadcast_element(("frost", "below", 32.0))
        for at_ms, temp in temperatures:
            if at_ms == 4:
                harness.process_broadcast_element(("frost", None, None))
            harness.process_element({"origin": "JFK", "temp": temp}, timestamp=at_ms)
        assert [(row.alert, row.temp) for row in harness.get_output()] == [("raised", 20.0), ("cleared", 33.0)]
