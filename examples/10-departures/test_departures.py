"""An hour of departures, by hand."""

from departures import COLUMNS, HOUR_MS, LATE, Delays, PerHour

from statefulspark import Time, TumblingEventTimeWindows, Types
from statefulspark.testing import WindowHarness


def test_a_report_that_comes_late_corrects_its_hour_until_it_is_too_late() -> None:
    """The hour is emitted when it ends and again with the late report; a report after the allowed lateness goes to the side output."""
    windows = WindowHarness(TumblingEventTimeWindows.of(Time.hours(1)), COLUMNS, key="origin")
    hours = windows.allowed_lateness(Time.hours(2)).side_output_late_data(LATE)
    state, output = Types.TUPLE([Types.LONG(), Types.LONG()]), "origin STRING, hour_ms BIGINT, departures BIGINT, mean_delay DOUBLE"
    with hours.aggregate(Delays(), PerHour(), state, output, uid="hours", event_time="scheduled") as harness:
        harness.process_element({"flight_id": 1, "origin": "JFK", "delay": 10}, timestamp=5)
        harness.process_watermark(HOUR_MS)
        harness.process_element({"flight_id": 2, "origin": "JFK", "delay": 20}, timestamp=6)
        harness.process_watermark(3 * HOUR_MS)
        harness.process_element({"flight_id": 3, "origin": "JFK", "delay": 30}, timestamp=7)
        assert harness.get_output() == [("JFK", 0, 1, 10.0), ("JFK", 0, 2, 15.0)]
        assert [row.flight_id for row in harness.get_side_output(LATE)] == [3]
