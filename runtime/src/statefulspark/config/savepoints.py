"""Savepoints taken on a schedule and how long they are kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from statefulspark.config.base import IGNORE, CelRule, Model, WholeNumber
from statefulspark.config.cron import Cron
from statefulspark.config.durations import Duration, at_least
from statefulspark.config.problems import Problem


class SavepointScheduleSpec(Model):
    """When savepoints are taken without being asked for: an interval or a cron line."""

    cel_rules = (
        CelRule(
            "has(self.interval) != has(self.cron)",
            "interval: give exactly one of interval and cron. Write for example interval: 6h, or cron: '0 3 * * *'",
        ),
    )

    interval: Annotated[Duration, at_least("1s")] | None = Field(default=None, json_schema_extra=IGNORE)
    """Time between two savepoints, at least 1s."""

    cron: Cron | None = Field(default=None, json_schema_extra=IGNORE)
    """Cron line of five fields in UTC: minute, hour, day of month, month, day of week."""

    def conflicts(self) -> Iterator[Problem]:
        """Exactly one of the two."""
        if (self.interval is None) == (self.cron is None):
            yield Problem("interval", "give exactly one of interval and cron", "Write for example interval: 6h, or cron: '0 3 * * *'")


class SavepointHistorySpec(Model):
    """Which scheduled savepoints are kept, and how many of those of stops are listed; files of the latter and what a person made stay."""

    count: Annotated[WholeNumber, Field(ge=1, le=10_000)] = Field(default=10, json_schema_extra=IGNORE)
    """Number of savepoints kept, newest first, 1 .. 10000."""

    age: Annotated[Duration, at_least("1min")] = Field(default=86_400_000, json_schema_extra=IGNORE)
    """Savepoints older than this are removed, at least 1min; the newest always stays."""


class SavepointsSpec(Model):
    """Savepoints of the job."""

    schedule: SavepointScheduleSpec | None = Field(default=None, json_schema_extra=IGNORE)
    """When savepoints are taken without being asked for; never when not given."""

    timeout: Annotated[Duration, at_least("1s")] = Field(default=600_000, json_schema_extra=IGNORE)
    """A savepoint that takes longer is given up, at least 1s; also the longest that deleting the job waits for its last savepoint."""

    history: SavepointHistorySpec = Field(default=SavepointHistorySpec(), json_schema_extra=IGNORE)
    """Which scheduled savepoints are kept, and how long those of stops are listed."""
