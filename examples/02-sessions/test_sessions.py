# ruff: noqa: ANN201, D100, D103 - a test as a newcomer writes it
from sessions import GAP_MS, Sessions

from statefulspark.testing import KeyedProcessHarness

MINUTE_MS = 60_000


def test_a_session_ends_half_an_hour_after_its_last_click():
    columns = ("user STRING, at TIMESTAMP", "user STRING, clicks BIGINT, end_ms BIGINT")
    with KeyedProcessHarness(Sessions(), *columns, key="user", event_time="at") as harness:
        harness.process_element(("ada",), timestamp=0)
        harness.process_element(("ada",), timestamp=10 * MINUTE_MS)
        harness.process_watermark(10 * MINUTE_MS + GAP_MS)
        assert harness.get_output() == [("ada", 2, 10 * MINUTE_MS + GAP_MS)]
