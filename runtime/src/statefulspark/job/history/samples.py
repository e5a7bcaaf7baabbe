"""Samples of a job's history: joins neighbors so that their number is bounded, recent ones fine and old ones coarse. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from statefulspark.coordinator.history import HistorySample
from statefulspark.job.history.texts import name

SAMPLES_MAX: Final = 600
"""Samples that a job's history has at most, whatever its age."""
UIDS_MAX: Final = 16
"""Keyed steps whose state is told apart in one sample; the smallest ones count together as `OTHER_UIDS`."""
OTHER_UIDS: Final = "(other keyed steps)"
UID_BYTES_MAX: Final = 100
"""Longer names of keyed steps are cut."""
SERIES_MAX: Final = 16
"""Numbers of functions' metrics in one sample, of counters and gauges each; the first ones by name."""
SERIES_BYTES_MAX: Final = 40
"""Of the uid and of the name of such a metric."""


def joined(first: HistorySample, second: HistorySample) -> HistorySample:
    """Return one sample of two intervals of which ``second`` comes later."""
    return HistorySample(
        from_ms=first.from_ms,
        to_ms=second.to_ms,
        active_ms=first.active_ms + second.active_ms,
        rows_in=first.rows_in + second.rows_in,
        rows_out=first.rows_out + second.rows_out,
        batches=first.batches + second.batches,
        step_batches=first.step_batches + second.step_batches,
        parts={part: first.parts.get(part, 0.0) + second.parts.get(part, 0.0) for part in (*first.parts, *second.parts)},
        slot_wait_s=first.slot_wait_s + second.slot_wait_s,
        send_wait_s=first.send_wait_s + second.send_wait_s,
        watermark_lag_ms=_most(first.watermark_lag_ms, second.watermark_lag_ms),
        states=bounded_states({uid: max(first.states.get(uid, 0), second.states.get(uid, 0)) for uid in (*first.states, *second.states)}),
        slots=max(first.slots, second.slots),
        memory_bytes=max(first.memory_bytes, second.memory_bytes),
        memory_budget_bytes=max(first.memory_budget_bytes, second.memory_budget_bytes),
        counts=bounded_series(
            {name: first.counts.get(name, 0.0) + second.counts.get(name, 0.0) for name in (*first.counts, *second.counts)}
        ),
        gauges=bounded_series(
            {
                name: max(sample.gauges[name] for sample in (first, second) if name in sample.gauges)
                for name in (*first.gauges, *second.gauges)
            }
        ),
        backlog_rows=_most(first.backlog_rows, second.backlog_rows),
        backlog_files=_most(first.backlog_files, second.backlog_files),
        skew=max(first.skew, second.skew),
        checkpoints=first.checkpoints + second.checkpoints,
        failed_checkpoints=first.failed_checkpoints + second.failed_checkpoints,
        failures=first.failures + second.failures,
    )


def _most(*values: int | None) -> int | None:
    return max((value for value in values if value is not None), default=None)


def series_name(uid: str, metric: str) -> str:
    """Return the bounded name under which a history has a metric of a function."""
    return f"{name(uid, SERIES_BYTES_MAX)}: {name(metric, SERIES_BYTES_MAX)}"


def bounded_series(values: Mapping[str, float]) -> dict[str, float]:
    """Return the first series by name, so that the same ones stay."""
    return {each: values[each] for each in sorted(values)[:SERIES_MAX]}


def bounded_states(sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of the largest steps under names of bounded length, and the sum of all others."""
    cut: dict[str, int] = {}
    for uid, size in sizes.items():
        short = name(uid, UID_BYTES_MAX)
        cut[short] = cut.get(short, 0) + size
    if len(cut) <= UIDS_MAX:
        return cut
    others = cut.pop(OTHER_UIDS, 0)
    largest = sorted(cut, key=lambda uid: (-cut[uid], uid))[: UIDS_MAX - 1]
    return {uid: cut[uid] for uid in largest} | {OTHER_UIDS: others + sum(size for uid, size in cut.items() if uid not in largest)}


def thinned(samples: Sequence[HistorySample], most: int) -> list[HistorySample]:
    """Join neighbors until at most ``most`` samples are left.

    Each time, the two are joined whose common interval is shortest by its age. So the width of every interval is about the same fraction of
    its age: a chart of the last hour has as many points as one of the last year.
    """
    left = list(samples)
    while len(left) > max(1, most):
        now_ms = left[-1].to_ms
        at = min(range(len(left) - 1), key=lambda i: (left[i + 1].to_ms - left[i].from_ms) / (now_ms - left[i].from_ms + 1))
        left[at : at + 2] = [joined(left[at], left[at + 1])]
    return left


class Timeline:
    """The samples of a job, oldest first and without overlap. Used by one thread at a time.

    Args:
        samples: Those of earlier drivers.
        most: Number of samples that are kept.
    """

    def __init__(self, samples: Iterable[HistorySample] = (), *, most: int = SAMPLES_MAX) -> None:
        self._most = most
        self._samples = thinned(sorted(samples, key=lambda sample: sample.from_ms), most)

    @property
    def end_ms(self) -> int:
        """End of the last interval, 0 before the first."""
        return self._samples[-1].to_ms if self._samples else 0

    def add(self, sample: HistorySample) -> None:
        """Add the newest sample."""
        self._samples = thinned([*self._samples, sample], self._most)

    def all(self) -> tuple[HistorySample, ...]:
        """Return the samples, oldest first."""
        return tuple(self._samples)


def selected(samples: Sequence[HistorySample], *, since_ms: int, most: int) -> list[HistorySample]:
    """Return the samples that end after a time, joined to at most ``most`` of even width, for a chart."""
    wanted = [sample for sample in samples if sample.to_ms > since_ms]
    if len(wanted) <= most:
        return wanted
    start_ms = wanted[0].from_ms
    width_ms = max(1, wanted[-1].to_ms - start_ms) / most
    found: dict[int, HistorySample] = {}
    for sample in wanted:
        column = min(most - 1, int((sample.from_ms - start_ms) / width_ms))
        found[column] = joined(found[column], sample) if column in found else sample
    return [found[column] for column in sorted(found)]
