"""Two flights of an airline, by hand."""

from delay_model import RATE, DelayModel

from statefulspark.testing import KeyedProcessHarness

INPUT = "flight_id INT, scheduled TIMESTAMP, dep_delay INT, arr_delay INT, carrier STRING"
OUTPUT = "flight_id INT, carrier STRING, predicted DOUBLE, arrived DOUBLE"


def test_a_flight_is_predicted_before_it_is_learned() -> None:
    """The first prediction of each airline is 0; the second one has learned from the first flight only."""
    with KeyedProcessHarness(DelayModel(), INPUT, OUTPUT, key="carrier", event_time="scheduled") as harness:
        for flight_id, carrier in enumerate(["UA", "UA", "AA"]):
            row = {"flight_id": flight_id, "dep_delay": 0, "arr_delay": 60, "carrier": carrier}
            harness.process_element(row, timestamp=flight_id)
        assert [(row.carrier, row.predicted) for row in harness.get_output()] == [("UA", 0.0), ("UA", RATE * 60), ("AA", 0.0)]
