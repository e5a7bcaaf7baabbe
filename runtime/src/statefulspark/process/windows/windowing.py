"""Windowing: how a keyed stream is cut into windows, checked before anything starts."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Final

from statefulspark.errors import InvalidInputError
from statefulspark.process.api.output_tag import OutputTag
from statefulspark.process.windows.assigners import (
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    MergingWindowAssigner,
    WindowAssigner,
)
from statefulspark.process.windows.evictors import Evictor
from statefulspark.process.windows.triggers import EventTimeTrigger, NeverTrigger, ProcessingTimeTrigger, PurgingTrigger, Trigger
from statefulspark.process.windows.windows import CountWindowSerializer, GlobalWindowSerializer, TimeWindowSerializer, WindowSerializer

__all__ = ["Windowing"]

_WINDOWS_PER_ROW_MAX: Final = 100


@dataclass(frozen=True)
class Windowing:
    """Assigner, trigger, evictor and lateness of a windowed stream; travels to the slots with its step.

    Args:
        assigner: Gives each row its windows.
        given_trigger: None for the assigner's own.
        evictor: None to keep all rows.
        allowed_lateness_ms: How long windows by event time are kept after their end.
        late_tag: The side output of late rows; None to drop them.
    """

    assigner: WindowAssigner
    given_trigger: Trigger | None = None
    evictor: Evictor | None = None
    allowed_lateness_ms: int = 0
    late_tag: OutputTag | None = None

    @property
    def trigger(self) -> Trigger:
        """The trigger of the windows."""
        return self.given_trigger if self.given_trigger is not None else self.assigner.get_default_trigger()

    @property
    def serializer(self) -> WindowSerializer:
        """Serializer of the windows."""
        return self.assigner.get_window_serializer()

    @property
    def merges(self) -> bool:
        """True if windows merge."""
        return isinstance(self.assigner, MergingWindowAssigner)

    @property
    def kind(self) -> str:
        """Part of the names of states, so that state of one kind of windows is never read as another's."""
        kind = type(self.serializer).__name__.removesuffix("Serializer")
        if isinstance(self.assigner, CountTumblingWindowAssigner | CountSlidingWindowAssigner):
            kind = f"{kind} {self.assigner.numbering}"
        return f"Merging{kind}" if self.merges else kind

    def check(self, event_time: str | None, *, keeps_rows: bool) -> None:
        """Raise unless the parts fit together.

        Args:
            event_time: The event-time column of the step.
            keeps_rows: Whether windows keep all their rows, not only what they are combined to or what an evictor leaves.

        Raises:
            InvalidInputError: Names the part and the remedy.
        """
        assigner, trigger = self.assigner, self.trigger
        serializer: object = self.serializer
        if not isinstance(serializer, TimeWindowSerializer if self.merges else WindowSerializer):
            raise InvalidInputError(
                f"{type(assigner).__name__} has windows of another kind",
                field="window",
                remedy="Return a TimeWindowSerializer, a CountWindowSerializer or a GlobalWindowSerializer; windows that merge are TimeWindows",
            )
        if assigner.is_event_time() and event_time is None:
            raise InvalidInputError(
                "event-time windows need the time of each row", field="window", remedy="Pass event_time=<column> and watermark=<delay>"
            )
        is_global, inner = isinstance(serializer, GlobalWindowSerializer), _without_purging(trigger)
        if isinstance(inner, NeverTrigger) or (is_global and isinstance(inner, ProcessingTimeTrigger)):
            raise InvalidInputError(
                f"{type(assigner).__name__} never fire {'by themselves' if isinstance(inner, NeverTrigger) else 'by ' + type(inner).__name__}",
                field="trigger",
                remedy="Call trigger(), for example with CountTrigger.of(100)",
            )
        if self.merges and not trigger.can_merge():
            raise InvalidInputError(
                f"{type(trigger).__name__} cannot merge windows, and session windows merge",
                field="trigger",
                remedy="Use a trigger whose can_merge() is True",
            )
        if self.allowed_lateness_ms and not assigner.is_event_time():
            raise InvalidInputError(
                "only event-time windows have late rows", field="allowed_lateness", remedy="Leave it out, or use event-time windows"
            )
        self._warn(keeps_rows=keeps_rows)

    def _warn(self, *, keeps_rows: bool) -> None:
        per_row = getattr(self.assigner, "windows_per_row", 1)
        if per_row > _WINDOWS_PER_ROW_MAX:
            warnings.warn(f"window: each row belongs to {per_row:,} windows and is added to each of them; use a longer slide", stacklevel=4)
        gap_ms = getattr(self.assigner, "dropped_ms", 0)
        if gap_ms:
            warnings.warn(
                f"window: windows leave gaps of {gap_ms:,} ms, and rows in them are dropped; use a slide of at most the size", stacklevel=4
            )
        inner = _without_purging(self.trigger)
        if isinstance(self.serializer, GlobalWindowSerializer) and isinstance(inner, EventTimeTrigger):
            warnings.warn(
                "trigger: EventTimeTrigger fires a GlobalWindow only when the job is drained; use CountTrigger.of(...)", stacklevel=4
            )
        if self.assigner.is_event_time() and isinstance(inner, ProcessingTimeTrigger):
            warnings.warn(
                "trigger: an event-time window that the watermark passes first is removed, and ProcessingTimeTrigger does not fire it; "
                "use EventTimeTrigger, or windows by processing time",
                stacklevel=4,
            )
        name = type(self.trigger).__name__
        if isinstance(self.serializer, CountWindowSerializer) and self.given_trigger is not None:
            warnings.warn(
                f"trigger: count windows are removed when their own trigger purges them, and {name} may leave some forever; leave trigger() out",
                stacklevel=4,
            )
        elif isinstance(self.serializer, GlobalWindowSerializer) and keeps_rows and not isinstance(self.trigger, PurgingTrigger):
            warnings.warn(
                f"trigger: {name} never removes rows from a GlobalWindow, so state grows with every row; use PurgingTrigger.of(...)",
                stacklevel=4,
            )


def _without_purging(trigger: Trigger) -> Trigger:
    """Return the trigger that decides when windows fire."""
    while isinstance(trigger, PurgingTrigger):
        trigger = trigger.nested_trigger
    return trigger
