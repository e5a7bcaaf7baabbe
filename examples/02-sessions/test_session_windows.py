# ruff: noqa: ANN201, D100, D103 - a test as a newcomer writes it
from session_windows import GAP, sessions_of

from statefulspark import EventTimeSessionWindows
from statefulspark.testing import WindowHarness

MINUTE_MS = 60_000


def test_a_late_click_joins_two_sessions():
    windows = WindowHarness(EventTimeSessionWindows.with_gap(GAP), "user STRING, at TIMESTAMP", key="user")
    with sessions_of(windows) as harness:
        harness.process_element(("ada",), timestamp=0)
        harness.process_element(("ada",), timestamp=50 * MINUTE_MS)
        harness.process_element(("ada",), timestamp=25 * MINUTE_MS)
        harness.process_watermark(80 * MINUTE_MS)
        assert harness.get_output() == [("ada", 3, 80 * MINUTE_MS)]
