"""Log records as the API shows them: models with the descriptions of its OpenAPI document."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from statefulspark.logs.tail import TailRecord


class LogRecordModel(BaseModel):
    """One log record."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    number: int = Field(description="Counts the records of this driver, from 1 on.", examples=[4711])
    timestamp: str = Field(description="Time of the record, UTC.", examples=["2026-11-24T12:00:00.250000Z"])
    level: str = Field(examples=["info"])
    logger: str = Field(examples=["flights"])
    event: str = Field(description="The message.")
    facts: dict[str, Any] = Field(
        description="Everything else, such as `slot`, `uid`, `key_group` and `exception`.", examples=[{"slot": 0, "uid": "turnaround"}]
    )

    @classmethod
    def of(cls, record: TailRecord) -> LogRecordModel:
        """Convert from the inside."""
        rest = dict(record.facts)
        named = {name: str(rest.pop(name, "")) for name in ("timestamp", "level", "logger", "event")}
        return cls(number=record.number, facts=rest, **named)


class LogsModel(BaseModel):
    """Log records, the oldest first."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    records: list[LogRecordModel]
    elsewhere: str | None = Field(
        default=None, description="Where the records are that the driver does not get, as on Kubernetes those of slots below `warning`."
    )
    last: int = Field(description="Number of the newest record of all; as `after`, it asks for what comes later.", examples=[4711])
