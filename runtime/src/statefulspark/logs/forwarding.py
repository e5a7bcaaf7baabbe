"""Records of slots on other machines on their way to the driver: few, short, of WARNING and above. The executors' own log has them all."""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from statefulspark.logs.json_lines import record_of
from statefulspark.logs.tail import LogTail

LEVEL: Final = logging.WARNING
RECORDS_MAX: Final = 20
"""Records in one heartbeat."""
KEPT_MAX: Final = 100
"""Records that wait for a heartbeat; later ones replace the oldest."""
TEXT_MAX: Final = 1_000
"""Characters of a text in a record; of a traceback, the last ones."""
FACTS_MAX: Final = 20


class ForwardedRecords:
    """Keeps what a slot sends with its next heartbeats. Thread-safe; loses records rather than wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: deque[str] = deque(maxlen=KEPT_MAX)

    def add(self, level: int, line: str) -> None:
        """Keep a record if its level suffices.

        Args:
            level: As in `logging`.
            line: What `json_formatter` makes of it.
        """
        if level < LEVEL:
            return
        short = json.dumps(_shortened(json.loads(line)))
        with self._lock:
            self._lines.append(short)

    def take(self) -> tuple[str, ...]:
        """Return the oldest records, and forget them: one that does not arrive is in the executor's log."""
        with self._lock:
            return tuple(self._lines.popleft() for _ in range(min(RECORDS_MAX, len(self._lines))))


def _shortened(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the first facts, with texts and everything nested cut; message and origin come first."""
    named = ("timestamp", "level", "logger", "event", "uid", "key_group", "exception")
    ordered = [name for name in named if name in facts] + [name for name in facts if name not in named]
    return {name[:TEXT_MAX]: _short(name, facts[name]) for name in ordered[:FACTS_MAX]}


def _short(name: str, value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else json.dumps(value)
    if len(text) <= TEXT_MAX:
        return text
    return f"... {text[-TEXT_MAX:]}" if name == "exception" else f"{text[:TEXT_MAX]} ..."


def show_forwarded(slot: int, lines: Iterable[str]) -> None:
    """Keep the records that a slot has sent with those of this process. They are not written: the executor has written them.

    Args:
        slot: The slot, by its heartbeat.
        lines: From `ForwardedRecords.take`; what is no record is ignored.
    """
    tails = [handler for handler in logging.getLogger().handlers if isinstance(handler, LogTail)]
    for line in lines:
        record = record_of(line)
        if record is None:
            continue
        record.slot = slot
        for tail in tails:
            tail.handle(record)
