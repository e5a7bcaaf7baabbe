"""Two legs of an aircraft, by hand."""

from flights import FLIGHT_SCHEMA, IDLE_AFTER_MS, MINUTE_MS, ROTATION_SCHEMA, AircraftRotation

from statefulspark.testing import KeyedProcessHarness


def leg(at_ms: int, dep_delay: int | None, arr_delay: int | None) -> dict[str, object]:
    """One flight of the aircraft N1."""
    return {
        "flight_id": 1, "scheduled_ms": at_ms, "tailnum": "N1", "flight": "UA1", "origin": "EWR", "dest": "IAH",
        "dep_delay": dep_delay, "arr_delay": arr_delay,
    }  # fmt: skip


def test_delay_is_carried_to_the_next_leg_and_idle_aircraft_are_reported() -> None:
    """A late arrival before a late departure; a day later the aircraft has not left again."""
    second = 600 * MINUTE_MS
    with KeyedProcessHarness(AircraftRotation(), FLIGHT_SCHEMA, ROTATION_SCHEMA, key="tailnum", event_time="scheduled") as harness:
        harness.process_element(leg(0, 20, 30), timestamp=0)
        harness.process_element(leg(second, 25, 10), timestamp=second)
        harness.process_watermark(second + IDLE_AFTER_MS)
        output = harness.get_output()
    assert [(row.kind, row.leg, row.carried_delay) for row in output] == [("leg", 1, None), ("leg", 2, 25), ("idle", 2, None)]
