# ruff: noqa: ANN201, D100, D103 - a test as a newcomer writes it
from card_guard import HOUR_MS, CardGuard

from statefulspark.testing import KeyedProcessHarness

COLUMNS = (
    "card STRING, at TIMESTAMP, cents BIGINT",
    "card STRING, at_ms BIGINT, spent_cents BIGINT, largest_cents BIGINT, report INT",
)


def test_a_payment_that_exceeds_the_limit_of_an_hour_is_reported():
    with KeyedProcessHarness(CardGuard(), *COLUMNS, key="card", event_time="at") as harness:
        harness.process_element({"card": "4711", "cents": 60_000}, timestamp=HOUR_MS)
        harness.process_element({"card": "4711", "cents": 50_000}, timestamp=HOUR_MS + 1)
        assert harness.get_output() == [("4711", HOUR_MS + 1, 110_000, 60_000, 1)]


def test_a_payment_is_forgotten_after_an_hour():
    with KeyedProcessHarness(CardGuard(), *COLUMNS, key="card", event_time="at") as harness:
        harness.process_element({"card": "4711", "cents": 60_000}, timestamp=HOUR_MS)
        harness.process_element({"card": "4711", "cents": 50_000}, timestamp=2 * HOUR_MS)
        assert harness.get_output() == []
