"""Flink's rules for windows in plain dicts and lists, one key at a time, without any of the code under test.

Windows are (start, end) pairs, count windows (id, None), the global window (None, None). All times are milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

FOREVER = (1 << 63) - 1
Window = tuple[int | None, int | None]


@dataclass(frozen=True)
class Rules:
    """What the oracle is to do.

    ``assigner`` is ("tumbling", size, offset), ("sliding", size, slide, offset), ("session", gap), ("count", size),
    ("sliding count", size, slide) or ("global",). ``trigger`` is ("event",), ("processing",), ("count", n), ("every", ms) or
    ("purging", trigger). ``evictor`` is None, ("count", n) or ("time", ms).
    """

    assigner: tuple[Any, ...]
    trigger: tuple[Any, ...]
    event_time: bool
    lateness: int = 0
    evictor: tuple[Any, ...] | None = None


@dataclass
class Open:
    """A window in flight."""

    rows: list[tuple[int, int]] = field(default_factory=list)
    """(value, event time)"""
    count: int = 0
    next_fire: int | None = None


@dataclass
class KeyOracle:
    """The windows of one key."""

    rules: Rules
    watermark: int = -(1 << 63)
    now: int = 0
    seen: int = 0
    open: dict[Window, Open] = field(default_factory=dict)
    timers: set[tuple[str, int, Window]] = field(default_factory=set)
    emitted: list[tuple[Window, list[int]]] = field(default_factory=list)
    late: list[int] = field(default_factory=list)

    def batch(self, rows: Iterable[tuple[int, int]], watermark: int, now: int) -> None:
        """Timers that are due, rows in event-time order, timers that became due."""
        self.watermark, self.now = watermark, now
        self._fire()
        for value, at in sorted(rows, key=lambda row: row[1]):
            self._row(value, at)
        self._fire()

    def _row(self, value: int, at: int) -> None:
        late = True
        for assigned in self._assigned(at):
            window = self._merged(assigned) if self.rules.assigner[0] == "session" else assigned
            if self.rules.event_time and self._cleanup(window) <= self.watermark:
                self.open.pop(window, None)
                continue
            late = False
            state = self.open.setdefault(window, Open())
            state.rows.append((value, at))
            self._act(self._on_row(self.rules.trigger, window, state, at), window)
            self._timer(window, self._cleanup(window))
        if late and self.rules.event_time and at + self.rules.lateness <= self.watermark:
            self.late.append(value)

    def _assigned(self, at: int) -> list[Window]:
        kind, *numbers = self.rules.assigner
        time = at if self.rules.event_time else self.now
        if kind == "tumbling":
            size, offset = numbers
            start = (time - offset) // size * size + offset
            return [(start, start + size)]
        if kind == "sliding":
            size, slide, offset = numbers
            starts = [
                start for start in range(time - size - slide, time + 1) if (start - offset) % slide == 0 and start <= time < start + size
            ]
            return [(start, start + size) for start in reversed(starts)]
        if kind == "session":
            return [(time, time + numbers[0])]
        if kind == "global":
            return [(None, None)]
        number = self.seen
        self.seen += 1
        size, slide = numbers if len(numbers) == 2 else (numbers[0], numbers[0])
        return [(each, None) for each in range(number + 1) if each * slide <= number < each * slide + size]

    def _merged(self, new: Window) -> Window:
        """Sessions that the new one touches become one with it."""
        touched = sorted(each for each in self.open if each[0] <= new[1] and new[0] <= each[1])  # type: ignore[operator]  # sessions have times
        result = min([new[0], *(each[0] for each in touched)]), max([new[1], *(each[1] for each in touched)])  # type: ignore[type-var]
        if not touched or touched == [result]:
            return result
        together = Open()
        for each in touched:
            state = self.open.pop(each)
            together.rows += state.rows
            together.count += state.count
            times = [time for time in (together.next_fire, state.next_fire) if time is not None]
            together.next_fire = min(times) if times else None
            if each != result:
                self.timers = {timer for timer in self.timers if timer[2] != each}
        self.open[result] = together
        end = _latest(result)
        if _base(self.rules.trigger)[0] in {"event", "every"} and end > self.watermark:
            self.timers.add(("event", end, result))
        if _base(self.rules.trigger)[0] == "processing" and end > self.now:
            self.timers.add(("processing", end, result))
        if together.next_fire is not None:
            self.timers.add(("event", together.next_fire, result))
        return result

    def _on_row(self, trigger: tuple[Any, ...], window: Window, state: Open, at: int) -> tuple[bool, bool]:
        kind = trigger[0]
        if kind == "purging":
            fire, purge = self._on_row(trigger[1], window, state, at)
            return fire, fire or purge
        if kind == "count":
            state.count += 1
            fire = state.count >= trigger[1]
            state.count = 0 if fire else state.count
            return fire, False
        if kind == "processing":
            self.timers.add(("processing", _latest(window), window))
            return False, False
        if _latest(window) <= self.watermark:
            return True, False
        self.timers.add(("event", _latest(window), window))
        if kind == "every" and state.next_fire is None:
            self._next(window, state, at // trigger[1] * trigger[1], trigger[1])
        return False, False

    def _next(self, window: Window, state: Open, time: int, interval: int) -> None:
        state.next_fire = min(time + interval, _latest(window))
        self.timers.add(("event", state.next_fire, window))

    def _on_time(self, trigger: tuple[Any, ...], domain: str, time: int, window: Window, state: Open) -> tuple[bool, bool]:
        if trigger[0] == "purging":
            fire, purge = self._on_time(trigger[1], domain, time, window, state)
            return fire, fire or purge
        if trigger[0] == "every" and domain == "event" and time != _latest(window):
            if state.next_fire != time:
                return False, False
            self._next(window, state, time, trigger[1])
            return True, False
        return time == _latest(window) and (trigger[0], domain) in {
            ("event", "event"),
            ("processing", "processing"),
            ("every", "event"),
        }, False

    def _fire(self) -> None:
        while due := [timer for timer in self.timers if timer[1] <= (self.watermark if timer[0] == "event" else self.now)]:
            # The timers of event time come first; then by time, and by window.
            domain, time, window = min(due, key=lambda timer: (timer[0] != "event", timer[1], timer[2][0] or 0, timer[2][1] or 0))
            self.timers.discard((domain, time, window))
            if window not in self.open:
                continue
            self._act(self._on_time(self.rules.trigger, domain, time, window, self.open[window]), window)
            if (domain == "event") is self.rules.event_time and time >= self._cleanup(window):
                self._remove(window)

    def _act(self, result: tuple[bool, bool], window: Window) -> None:
        fire, purge = result
        state = self.open[window]
        if fire and state.rows:
            seen = self._evicted(state)
            if seen:
                self.emitted.append((window, [value for value, _ in seen]))
        if purge:
            state.rows = []
            if self.rules.assigner[0] in {"count", "sliding count"}:
                self._remove(window)

    def _evicted(self, state: Open) -> list[tuple[int, int]]:
        if self.rules.evictor is not None:
            kind, number = self.rules.evictor
            latest = max(at for _, at in state.rows)
            state.rows = state.rows[-number:] if kind == "count" else [row for row in state.rows if row[1] > latest - number]
        return state.rows

    def _remove(self, window: Window) -> None:
        del self.open[window]
        self.timers = {timer for timer in self.timers if timer[2] != window}

    def _timer(self, window: Window, time: int) -> None:
        if time != FOREVER and window in self.open:
            self.timers.add(("event" if self.rules.event_time else "processing", time, window))

    def _cleanup(self, window: Window) -> int:
        return min(_latest(window) + self.rules.lateness, FOREVER) if self.rules.event_time else _latest(window)


def _latest(window: Window) -> int:
    return FOREVER if window[1] is None else window[1] - 1


def _base(trigger: tuple[Any, ...]) -> tuple[Any, ...]:
    return _base(trigger[1]) if trigger[0] == "purging" else trigger
