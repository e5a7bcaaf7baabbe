"""Totals per URL, by hand."""

from access_log import Totals

from statefulspark.testing import KeyedProcessHarness

COLUMNS = "url STRING, requests BIGINT, sent_bytes BIGINT"


def test_requests_and_bytes_add_up_per_url() -> None:
    """Each request emits the totals so far."""
    with KeyedProcessHarness(Totals(), COLUMNS, COLUMNS, key="url") as harness:
        for row in [("/", 1, 100), ("/a", 1, 7), ("/", 1, 50)]:
            harness.process_element(row)
        assert harness.get_output() == [("/", 1, 100), ("/a", 1, 7), ("/", 2, 150)]
