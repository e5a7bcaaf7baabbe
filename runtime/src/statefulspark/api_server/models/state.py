"""States of the running job as the API shows them: models with the descriptions of its OpenAPI document."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from statefulspark.checkpoint.inspect.decoding import type_text
from statefulspark.coordinator.query.queried_state import BYTES_MAX, QueriedEntry, QueriedState
from statefulspark.state.encoding.layout import StateInfo


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class StateModel(_Answer):
    """A state of the job."""

    uid: str = Field(description="The keyed step.", examples=["orders"])
    state: str = Field(description="Name of the state.", examples=["cart"])
    kind: str = Field(
        description="`value`, `list`, `map`, `reducing`, `aggregating`, or a kind that only checkpoints show.", examples=["map"]
    )
    key_type: str = Field(description="Types of the key columns.", examples=["STRING, LONG"])
    type: str = Field(description="As it is declared; empty for timers and raw state.", examples=["MAP(STRING, LONG)"])
    ttl_ms: int | None = Field(description="Time to live in milliseconds; null if values do not expire.", examples=[60000])

    @classmethod
    def of(cls, info: StateInfo) -> Self:
        """Convert from the inside."""
        key_type = ", ".join(type_text(each) for each in info.key_type)
        return cls(uid=info.uid, state=info.name, kind=info.kind, key_type=key_type, type=type_text(info.type), ttl_ms=info.ttl_ms)


class StateListModel(_Answer):
    """The states of the job."""

    states: list[StateModel]


class StateEntryModel(_Answer):
    """One value, list, accumulator or entry of a map."""

    value: Any = Field(description="Bytes, also of pickled objects, are base64.", examples=[3])
    map_key: Any = Field(default=None, description="Of a map.", examples=["/index.html"])
    window: dict[str, int] = Field(
        default_factory=dict, description="Of a state of windows.", examples=[{"window_start_ms": 0, "window_end_ms": 60000}]
    )
    expires_ms: int | None = Field(default=None, description="When it expires; milliseconds since the epoch.")

    @classmethod
    def of(cls, entry: QueriedEntry) -> Self:
        """Convert from the inside."""
        return cls(value=entry.value, map_key=entry.map_key, window=dict(entry.window), expires_ms=entry.expires_ms)


class StateEntriesModel(_Answer):
    """The state of one key, as committed batches have left it."""

    state: StateModel
    key_group: int
    slot: int = Field(description="The slot that owns the key group.")
    committed: int = Field(
        description="The last committed batch that reached the slot: the state has its changes, and may have those of batches committed meanwhile."
    )
    entries: list[StateEntryModel] = Field(description="Empty if the key has no state, or if it has expired.")
    next: str | None = Field(default=None, description="Set if the map has further entries: pass it as `after`.")
    remarks: list[str] = Field(
        default_factory=list, description=f"What is left out, such as elements of long lists and values over {BYTES_MAX} bytes."
    )

    @classmethod
    def of(cls, found: QueriedState) -> Self:
        """Convert from the inside."""
        return cls(
            state=StateModel.of(found.state),
            key_group=found.key_group,
            slot=found.slot,
            committed=found.committed,
            entries=[StateEntryModel.of(entry) for entry in found.entries],
            next=found.next,
            remarks=list(found.remarks),
        )
