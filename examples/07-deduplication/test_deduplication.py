"""Repeated deliveries, by hand, and four days of history that are read at once."""

import random

from deduplication import REMEMBERED, FirstDelivery

from statefulspark.testing import KeyedProcessHarness

COLUMNS = "id STRING, at TIMESTAMP, value DOUBLE"
HOUR_MS = REMEMBERED.to_milliseconds()


def test_a_repeated_delivery_is_dropped_while_its_id_is_remembered() -> None:
    """An hour of event time later the id is forgotten."""
    with KeyedProcessHarness(FirstDelivery(), COLUMNS, COLUMNS, key="id", event_time="at") as harness:
        for timestamp, row in enumerate([("a", 1.0), ("a", 1.0), ("b", 2.0)]):
            harness.process_element(row, timestamp=timestamp)
        assert [row.id for row in harness.get_output()] == ["a", "b"]
        harness.process_watermark(HOUR_MS + 3)
        harness.process_element(("a", 1.0), timestamp=HOUR_MS + 3)
        assert [row.id for row in harness.get_output()] == ["a", "b", "a"]


def test_history_gives_what_it_would_have_given_live() -> None:
    """Four days are processed within a second, and ids come back each day: time to live, which goes by processing time, would drop them."""
    chance = random.Random(7)
    deliveries = []
    for day in range(4):
        for number in range(50):
            at = day * 24 * HOUR_MS + chance.randrange(20 * HOUR_MS)
            copies = 1 + chance.randrange(3)
            deliveries += [(at + chance.randrange(10 * 60_000) * (copy > 0), f"id-{number}") for copy in range(copies)]
    with KeyedProcessHarness(FirstDelivery(), COLUMNS, COLUMNS, key="id", event_time="at") as harness:
        for number, (at, delivered) in enumerate(sorted(deliveries)):
            harness.process_element((delivered, 1.0), timestamp=at)
            if number % 10 == 9:
                harness.process_watermark(at - 15 * 60_000)
        assert len(harness.get_output()) == 4 * 50
