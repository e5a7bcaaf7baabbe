"""Balances, by hand."""

from payments import Balance

from statefulspark.testing import KeyedProcessHarness


def test_payments_add_up_per_account() -> None:
    """Each payment emits the balance after it."""
    schema = "account STRING, count BIGINT, cents BIGINT"
    with KeyedProcessHarness(Balance(), "account STRING, cents BIGINT", schema, key="account") as harness:
        for row in [("a", 100), ("b", 7), ("a", -30)]:
            harness.process_element(row)
        assert harness.get_output() == [("a", 1, 100), ("b", 1, 7), ("a", 2, 70)]
