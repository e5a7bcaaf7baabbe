"""Repeated deliveries, by hand."""

from deduplication import REMEMBERED, FirstDelivery

from statefulspark.testing import KeyedProcessHarness

COLUMNS = "id STRING, value DOUBLE"


def test_a_repeated_delivery_is_dropped_while_its_id_is_remembered() -> None:
    """An hour of processing time later the id is forgotten."""
    with KeyedProcessHarness(FirstDelivery(), COLUMNS, COLUMNS, key="id") as harness:
        for row in [("a", 1.0), ("a", 1.0), ("b", 2.0)]:
            harness.process_element(row)
        assert harness.get_output() == [("a", 1.0), ("b", 2.0)]
        harness.set_processing_time(REMEMBERED.to_milliseconds() + 1)
        harness.process_element(("a", 1.0))
        assert harness.get_output()[2:] == [("a", 1.0)]
