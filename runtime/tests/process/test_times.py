"""Times in rows, timers and output, as docs/concepts/timers-and-watermarks.md tells them: UTC, whatever the zone of the machine."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from statefulspark import KeyedProcessFunction
from statefulspark.testing import KeyedProcessHarness

PAGE = Path(__file__).parents[3] / "docs" / "concepts" / "timers-and-watermarks.md"
AT = datetime(2026, 7, 1, 12, 0, 0, 1000, tzinfo=UTC)
AT_MS = 1_782_907_200_001


@pytest.fixture(params=["UTC", "America/New_York"])
def machine_zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Slots run where the machine's clock has this zone."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


class Times(KeyedProcessFunction):
    """Emits the time of a row in each form, and that of its timer."""

    def __init__(self, to_ms: Any, to_datetime: Any) -> None:
        self._to_ms = to_ms
        self._to_datetime = to_datetime

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        assert (self._to_ms(value.at), self._to_datetime(ctx.timestamp())) == (ctx.timestamp(), value.at)
        ctx.timer_service().register_event_time_timer(self._to_ms(value.at) + 1)
        yield value.at, value.local, ctx.timestamp()
        yield value.at.replace(tzinfo=UTC).astimezone(timezone(timedelta(hours=2))), value.local, ctx.timestamp()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield self._to_datetime(timestamp), None, ctx.timestamp()


def test_every_time_is_in_utc(machine_zone: None) -> None:
    """With the two functions of the page, which the machine's zone must not change."""
    names: dict[str, Any] = {}
    (code,) = (each for each in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "def to_ms" in each)
    exec(compile(code, str(PAGE), "exec"), names)
    local = datetime(2026, 7, 1, 8, 0)  # noqa: DTZ001  # a timestamp_ntz has no zone
    columns = "user STRING, at TIMESTAMP, local TIMESTAMP_NTZ", "at TIMESTAMP, local TIMESTAMP_NTZ, ms BIGINT"
    with KeyedProcessHarness(Times(names["to_ms"], names["to_datetime"]), *columns, key="user", event_time="at") as harness:
        harness.process_element(("ada", AT, local))
        harness.process_watermark(AT_MS + 1)
        row, same, fired = (tuple(each) for each in harness.get_output())
    found = [(at if at.tzinfo is None else at.astimezone(UTC).replace(tzinfo=None), *others) for at, *others in (row, same, fired)]
    naive = AT.replace(tzinfo=None)
    assert found == [(naive, local, AT_MS), (naive, local, AT_MS), (naive + timedelta(milliseconds=1), None, AT_MS + 1)]
