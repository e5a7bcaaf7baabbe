"""Savepoints taken on a schedule and how long they are kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from statefulspark.config.base import IGNORE, CelRule, Model, WholeNumber
from statefulspark.config.problems import Problem
from statefulspark.config.values.cron import Cron
from statefulspark.config.values.durations import Duration, at_least

SavepointFormat = Literal["canonical", "native"]
"""Canonical: Parquet files, which jobs with any state backend restore. Native: the files of the state backend that took it."""


class SavepointScheduleSpec(Model):
    """Schedule of periodic savepoints: an interval or a cron expression."""

    cel_rules = (
        CelRule(
            "has(self.interval) != has(self.cron)",
            "interval: set exactly one of interval and cron. Write for example interval: 6h, or cron: '0 3 * * *'",
        ),
    )

    interval: Annotated[Duration, at_least("1s")] | None = Field(default=None, json_schema_extra=IGNORE)
    """Time between two savepoints (minimum 1s)."""

    cron: Cron | None = Field(default=None, json_schema_extra=IGNORE)
    """Cron expression in UTC with five fields: minute, hour, day of month, month, day of week."""

    format: SavepointFormat = Field(default="native", json_schema_extra=IGNORE)
    """Format of these savepoints: native, or canonical (Parquet files that every state backend restores; takes longer and needs 384Mi more in
    the driver)."""

    def conflicts(self) -> Iterator[Problem]:
        """Exactly one of the two."""
        if (self.interval is None) == (self.cron is None):
            yield Problem("interval", "set exactly one of interval and cron", "Write for example interval: 6h, or cron: '0 3 * * *'")


class SavepointHistorySpec(Model):
    """Retention of scheduled savepoints, and of the objects (not the files) of those taken when a job stops."""

    count: Annotated[WholeNumber, Field(ge=1, le=10_000)] = Field(default=10, json_schema_extra=IGNORE)
    """Number of savepoints to retain (1 to 10000). The oldest are deleted first."""

    age: Annotated[Duration, at_least("1min")] = Field(default=86_400_000, json_schema_extra=IGNORE)
    """Maximum age of savepoints (minimum 1min). Older savepoints are deleted, except the newest one."""


class SavepointsSpec(Model):
    """Savepoints of the job."""

    schedule: SavepointScheduleSpec | None = Field(default=None, json_schema_extra=IGNORE)
    """Schedule of periodic savepoints. Defaults to none."""

    timeout: Annotated[Duration, at_least("1s")] = Field(default=600_000, json_schema_extra=IGNORE)
    """Savepoint timeout (minimum 1s). Also limits how long deletion waits for the final savepoint."""

    history: SavepointHistorySpec = Field(default=SavepointHistorySpec(), json_schema_extra=IGNORE)
    """Retention of scheduled savepoints, and of the objects for savepoints taken when the job stops."""
