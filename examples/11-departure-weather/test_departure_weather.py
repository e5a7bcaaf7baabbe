"""Departures and observations of an hour, by hand."""

from datetime import UTC, datetime

from departure_weather import HOUR_MS, WithTemperature

from statefulspark.testing import KeyedTwoInputProcessHarness, SecondInput

FLIGHTS = "flight_id INT, scheduled TIMESTAMP, origin STRING, hour TIMESTAMP"
OBSERVATIONS = SecondInput("airport STRING, at TIMESTAMP, temp DOUBLE", key=["airport", "at"], event_time="at")
OUTPUT = "flight_id INT, origin STRING, temp DOUBLE"
EPOCH = datetime.fromtimestamp(0, UTC)


def harness() -> KeyedTwoInputProcessHarness:
    """Both inputs keyed by airport and hour."""
    return KeyedTwoInputProcessHarness(WithTemperature(), FLIGHTS, OBSERVATIONS, OUTPUT, key=["origin", "hour"], event_time="scheduled")


def test_a_departure_waits_for_the_temperature_of_its_hour() -> None:
    """Whichever comes first."""
    with harness() as test:
        test.process_element1({"flight_id": 1, "origin": "JFK", "hour": EPOCH}, timestamp=60_000)
        assert test.get_output() == []
        test.process_element2(("JFK", EPOCH, 41.0))
        test.process_element1({"flight_id": 2, "origin": "JFK", "hour": EPOCH}, timestamp=120_000)
        assert test.get_output() == [(1, "JFK", 41.0), (2, "JFK", 41.0)]


def test_a_departure_without_a_temperature_is_emitted_when_its_hour_is_over() -> None:
    """On both streams, because the watermark is the smaller one."""
    with harness() as test:
        test.process_element1({"flight_id": 1, "origin": "JFK", "hour": EPOCH}, timestamp=60_000)
        test.process_watermark1(HOUR_MS)
        assert test.get_output() == []
        test.process_watermark2(HOUR_MS)
        assert test.get_output() == [(1, "JFK", None)]
