"""TwoWatermarksHarness: the watermarks of a function with two inputs, in a unit test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from statefulspark.errors import InvalidInputError
from statefulspark.process.rows.step_spec import StepSpec
from statefulspark.testing.process_harness import HarnessSnapshot, ProcessHarness

__all__ = ["TwoWatermarksHarness"]


class TwoWatermarksHarness(ProcessHarness):
    """A harness with a watermark for each input. The function sees the smaller one, and none until both inputs have one."""

    def __init__(self, step: StepSpec, job_parameters: Mapping[str, str] | None) -> None:
        super().__init__(step, job_parameters)
        self._watermarks: list[int | None] = [None, None]

    def restore(self, snapshot: HarnessSnapshot, *, allow_non_restored_state: bool = False) -> None:
        """Start from a snapshot, as `KeyedProcessHarness.restore`; each input has the watermark that it had.

        That of a harness with one input is the first input's. The second input has none yet, and the function's does not go back.
        """
        super().restore(snapshot, allow_non_restored_state=allow_non_restored_state)
        self._watermarks = list(snapshot.input_watermarks_ms) or [snapshot.watermark_ms, None]

    def snapshot(self) -> HarnessSnapshot:
        """Return state and clocks, as `KeyedProcessHarness.snapshot`, with the watermark of each input."""
        return replace(super().snapshot(), input_watermarks_ms=tuple(self._watermarks))

    def process_watermark(self, watermark: int) -> None:
        """Move the watermarks of both inputs to ``watermark`` (milliseconds since the epoch), and fire the timers that are due."""
        self._reached(*(watermark if each.event_time is not None else None for each in self._step.inputs))

    def _reached(self, *watermarks: int | None) -> None:
        for number, (watermark, spec) in enumerate(zip(watermarks, self._step.inputs, strict=True)):
            before = self._watermarks[number]
            if watermark is None:
                continue
            if spec.event_time is None:
                raise InvalidInputError(
                    f"input {number + 1} has no event time", field="watermark", remedy="Move the watermark of the other input"
                )
            if before is not None and watermark < before:
                raise InvalidInputError("a watermark never goes back", field="watermark", remedy=f"Give at least {before}")
            self._watermarks[number] = watermark
        pairs = zip(self._watermarks, self._step.inputs, strict=True)
        counting = [watermark for watermark, spec in pairs if spec.event_time is not None]
        known = [each for each in counting if each is not None]
        if counting and len(known) == len(counting):
            self._advance(max(min(known), self._watermark_ms if self._watermark_ms is not None else min(known)))
