"""Timers of one keyed step: registers, deletes and fires them in order, in memory that does not grow with their number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from statefulspark.errors import InvalidInputError
from statefulspark.state.encoding.keys import KeyCodec
from statefulspark.state.timer_front import AFTER_ALL
from statefulspark.state.timer_queue import SIGN, DueTimer, TimerQueue

EVENT_TIMERS: Final = "event-timers"
PROCESSING_TIMERS: Final = "processing-timers"
TIMER_KINDS: Final = (EVENT_TIMERS, PROCESSING_TIMERS)

TIMESTAMP_MS_MIN: Final = -(1 << 63)
TIMESTAMP_MS_MAX: Final = (1 << 63) - 1


class TimerTable:
    """The timers of both kinds.

    Args:
        kinds: By kind, its queue.
        key_codec: Of the step's keys.
    """

    __slots__ = ("_key_codec", "_kinds")

    def __init__(self, kinds: dict[str, TimerQueue], key_codec: KeyCodec) -> None:
        self._kinds = kinds
        self._key_codec = key_codec

    @property
    def registered(self) -> int:
        """Timers registered so far, including those that changed nothing or were rolled back."""
        return sum(queue.registered for queue in self._kinds.values())

    def queue(self, kind: str) -> TimerQueue:
        """Return the timers of one kind; InvalidInputError if there is no such kind."""
        try:
            return self._kinds[kind]
        except KeyError:
            raise InvalidInputError(f"unknown kind of timers {kind!r}", field="kind", remedy=f"Use {' or '.join(self._kinds)}.") from None

    def register(self, kind: str, timestamp_ms: int) -> None:
        """Register a timer of the current key; see `TimerQueue.register`."""
        self.queue(kind).register(timestamp_ms)

    def delete(self, kind: str, timestamp_ms: int) -> None:
        """Delete a timer of the current key; see `TimerQueue.delete`."""
        self.queue(kind).delete(timestamp_ms)

    def due(self, kind: str, up_to_ms: int) -> Iterator[DueTimer]:
        """Yield and remove the timers with a timestamp of at most ``up_to_ms`` in the order of (timestamp, key group, key bytes).

        Timers may be registered and deleted meanwhile: a new one that is due too comes in its place, or next when that is past.
        """
        return self.queue(kind).due(_end(up_to_ms), self._key_codec.decode)

    def due_together(self, kind: str, up_to_ms: int, count_max: int, *, distinct: bool = False) -> Iterator[tuple[list[int], list[bytes]]]:
        """Yield times, and idents of keys, of timers as `due` does, up to ``count_max`` at a time, whose states are not read ahead.

        The caller changes no timer that is due. With ``distinct`` it may, and of a key there is one timer at a time.
        """
        from_bytes = int.from_bytes
        for timers in self.queue(kind).due_together(_end(up_to_ms), count_max, distinct=distinct):
            yield [from_bytes(timer[:8], "big") - SIGN for timer in timers], [timer[8:] for timer in timers]

    def read_ahead(self, watermark_ms: int | None, processing_time_ms: int) -> None:
        """Read the timers that the next batch fires first, and the states of their keys, so that it need not. No batch runs, and none is pending.

        Args:
            watermark_ms: Of that batch; None before the first event.
            processing_time_ms: Of that batch.
        """
        if watermark_ms is not None:
            self.queue(EVENT_TIMERS).read_ahead(_end(watermark_ms))
        self.queue(PROCESSING_TIMERS).read_ahead(_end(processing_time_ms))

    def min_timestamp(self, kind: str) -> int | None:
        """Return the earliest timestamp, None without timers. After `finish_batch` it counts that batch's changes."""
        timer = self.queue(kind).first()
        return None if timer is None else int.from_bytes(timer[:8], "big") - SIGN


def _end(up_to_ms: int) -> bytes:
    """Return a bound above the timers of this time and below those of the next millisecond: every timer is longer than 8 bytes."""
    return max(0, up_to_ms + 1 + SIGN).to_bytes(8, "big") if up_to_ms < TIMESTAMP_MS_MAX else AFTER_ALL
