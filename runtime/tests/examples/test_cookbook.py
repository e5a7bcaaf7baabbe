"""The functions of the cookbook do what the page says of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from statefulspark import EventTimeSessionWindows, Time, Types
from statefulspark.testing import KeyedBroadcastProcessHarness, KeyedProcessHarness, KeyedTwoInputProcessHarness, WindowHarness
from statefulspark.testing.inputs import BroadcastInput, SecondInput

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def recipes(examples: Path) -> dict[str, Any]:
    """All names that the page's blocks define."""
    names: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", (examples.parent / "docs/how-to/cookbook.md").read_text(), flags=re.DOTALL)
    for block in blocks:
        exec(compile(block, "cookbook.md", "exec"), names)
    assert len(blocks) == 9
    return names


def test_an_id_comes_out_once_an_hour_whenever_its_rows_are_read(recipes: dict[str, Any]) -> None:
    columns = "id STRING, at TIMESTAMP, n INT"
    with KeyedProcessHarness(recipes["FirstOfId"](), columns, columns, key="id", event_time="at") as harness:
        for n, at_ms in enumerate((0, 1000, HOUR_MS - 1)):
            harness.process_element({"id": "a", "n": n}, timestamp=at_ms)
        harness.process_watermark(HOUR_MS)
        harness.process_element({"id": "a", "n": 3}, timestamp=HOUR_MS + 1)
        assert [row.n for row in harness.get_output()] == [0, 3]


def test_silence_is_counted_from_the_last_row(recipes: dict[str, Any]) -> None:
    with KeyedProcessHarness(
        recipes["Silent"](), "device STRING, at TIMESTAMP", "device STRING, last_ms BIGINT", key="device", event_time="at"
    ) as harness:
        harness.process_element(("d",), timestamp=0)
        harness.process_element(("d",), timestamp=500_000)
        harness.process_element(("d",), timestamp=400_000)
        harness.process_watermark(1_099_999)
        assert harness.get_output() == []
        harness.process_watermark(1_100_000)
        assert harness.get_output() == [("d", 500_000)]


def test_the_top_three(recipes: dict[str, Any]) -> None:
    with KeyedProcessHarness(
        recipes["TopThree"](), "player STRING, score BIGINT", "player STRING, best ARRAY<BIGINT>", key="player"
    ) as harness:
        for score in (5, 1, 7, 1, 6):
            harness.process_element(("p", score))
        assert [row.best for row in harness.get_output()] == [[5], [5, 1], [7, 5, 1], [7, 6, 5]]


def test_a_funnel_is_left_in_order_and_within_a_day(recipes: dict[str, Any]) -> None:
    columns = ("user STRING, action STRING, at TIMESTAMP", "user STRING, began_ms BIGINT, bought_ms BIGINT")
    with KeyedProcessHarness(recipes["Funnel"](), *columns, key="user", event_time="at") as harness:
        day_ms = 24 * HOUR_MS
        for hour, action in ((0, "view"), (1, "buy"), (2, "cart"), (30, "buy"), (31, "view"), (32, "cart"), (33, "buy")):
            harness.process_element({"user": "u", "action": action}, timestamp=hour * HOUR_MS)
        assert harness.get_output() == [("u", 31 * HOUR_MS, 33 * HOUR_MS)]
        assert recipes["DAY_MS"] == day_ms


def test_late_rows_have_their_own_output(recipes: dict[str, Any]) -> None:
    columns = "user STRING, at TIMESTAMP"
    with KeyedProcessHarness(recipes["OnTime"](), columns, columns, key="user", event_time="at", side_outputs=[recipes["LATE"]]) as harness:
        harness.process_watermark(1000)
        harness.process_element(("late",), timestamp=1000)
        harness.process_element(("right",), timestamp=1001)
        assert [row.user for row in harness.get_output()] == ["right"]
        assert [row.user for row in harness.get_side_output(recipes["LATE"])] == ["late"]


def test_clicks_wait_for_the_name(recipes: dict[str, Any]) -> None:
    second = SecondInput("user STRING, name STRING", key="user")
    with KeyedTwoInputProcessHarness(
        recipes["WithName"](), "user STRING, page STRING", second, "user STRING, page STRING, name STRING", key="user"
    ) as harness:
        harness.process_element1(("u", "/a"))
        harness.process_element2(("u", "Ada"))
        harness.process_element1(("u", "/b"))
        assert harness.get_output() == [("u", "/a", "Ada"), ("u", "/b", "Ada")]


def test_rules_hold_from_the_moment_they_come(recipes: dict[str, Any]) -> None:
    rules = BroadcastInput("currency STRING, limit DOUBLE", recipes["LIMITS"])
    columns = ("card STRING, currency STRING, amount DOUBLE", "card STRING, amount DOUBLE, limit DOUBLE")
    with KeyedBroadcastProcessHarness(recipes["OverLimit"](), columns[0], rules, columns[1], key="card") as harness:
        harness.process_element(("c", "EUR", 110.0))
        harness.process_broadcast_element(("EUR", 100.0))
        harness.process_element(("c", "EUR", 110.0))
        harness.process_broadcast_element(("EUR", 200.0))
        harness.process_element(("c", "EUR", 110.0))
        assert harness.get_output() == [("c", 110.0, 100.0)]


def test_a_session_is_counted_with_its_bounds(recipes: dict[str, Any]) -> None:
    gap = WindowHarness(EventTimeSessionWindows.with_gap(Time.minutes(30)), "user STRING, at TIMESTAMP", key="user")
    output = "user STRING, clicks BIGINT, start_ms BIGINT, end_ms BIGINT"
    with gap.aggregate(
        recipes["Count"](), recipes["Bounds"](), accumulator_type=Types.LONG(), output_type=output, uid="visits", event_time="at"
    ) as harness:
        for minute in (0, 20, 40, 90):
            harness.process_element(("ada",), timestamp=minute * 60_000)
        harness.process_watermark(2 * HOUR_MS)
        assert harness.get_output() == [("ada", 3, 0, 70 * 60_000), ("ada", 1, 90 * 60_000, 120 * 60_000)]


def test_a_model_gets_what_a_card_spent_before(recipes: dict[str, Any]) -> None:
    with KeyedProcessHarness(recipes["Score"](), "card STRING, amount DOUBLE", "card STRING, score DOUBLE", key="card") as harness:
        harness.process_element(("c", 10.0))
        harness.process_element(("c", 100.0))
        assert harness.get_output() == [("c", 8.0), ("c", 82.0)]


def test_the_function_of_the_home_page_does_what_it_says(examples: Path) -> None:
    page = (examples.parent / "docs/index.md").read_text()
    names: dict[str, Any] = {}
    (block,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    exec(compile(block, "index.md", "exec"), names)
    columns = "id STRING, at TIMESTAMP, n INT"
    with KeyedProcessHarness(names["FirstOfId"](), columns, columns, key="id", event_time="at") as harness:
        harness.process_element({"id": "a", "n": 1}, timestamp=0)
        harness.process_element({"id": "a", "n": 2}, timestamp=1)
        assert [row.n for row in harness.get_output()] == [1]
