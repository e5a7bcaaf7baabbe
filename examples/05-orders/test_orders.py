"""The states of an order, by hand."""

from orders import DAY_MS, ILLEGAL, Orders

from statefulspark.testing import KeyedProcessHarness

COLUMNS = ("order STRING, at TIMESTAMP, event STRING", "order STRING, at_ms BIGINT, was STRING, became STRING")


def test_an_order_cannot_be_shipped_twice() -> None:
    """The second event goes to the side output, and the state stays."""
    with KeyedProcessHarness(Orders(), *COLUMNS, key="order", event_time="at", side_outputs=[ILLEGAL]) as harness:
        for at_ms, event in enumerate(["created", "paid", "shipped", "shipped", "delivered"]):
            harness.process_element(("a", event), timestamp=at_ms)
        assert [row.became for row in harness.get_output()] == ["created", "paid", "shipped", "delivered"]
        assert [(row.was, row.event) for row in harness.get_side_output(ILLEGAL)] == [("shipped", "shipped")]


def test_an_order_that_is_not_paid_expires() -> None:
    """A day after it was created, without another row."""
    with KeyedProcessHarness(Orders(), *COLUMNS, key="order", event_time="at", side_outputs=[ILLEGAL]) as harness:
        harness.process_element(("a", "created"), timestamp=5)
        harness.process_watermark(DAY_MS + 5)
        assert harness.get_output()[-1] == ("a", DAY_MS + 5, "created", "expired")
