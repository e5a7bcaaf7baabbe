"""Two days of temperatures, by hand."""

from weather import DAY_MS, SinceYesterday

from statefulspark.testing import KeyedProcessHarness

COLUMNS = ("origin STRING, at TIMESTAMP, temp DOUBLE", "origin STRING, at TIMESTAMP, temp DOUBLE, difference DOUBLE")


def test_an_observation_is_compared_with_the_same_hour_of_yesterday() -> None:
    """An hour without an observation yesterday gives no row."""
    with KeyedProcessHarness(SinceYesterday(), *COLUMNS, key="origin", event_time="at") as harness:
        harness.process_element({"origin": "JFK", "temp": 40.0}, timestamp=0)
        harness.process_element({"origin": "JFK", "temp": 46.5}, timestamp=DAY_MS)
        harness.process_element({"origin": "JFK", "temp": 48.0}, timestamp=DAY_MS + 3_600_000)
        assert [(row.temp, row.difference) for row in harness.get_output()] == [(46.5, 6.5)]
