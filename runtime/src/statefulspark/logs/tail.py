"""LogTail: the last log records of this process and of slots on its machine, in memory and, if wanted, in a file."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from statefulspark.logs.json_lines import json_formatter
from statefulspark.logs.log_file import LogFile
from statefulspark.logs.redaction import Redaction

RECORDS_MAX: Final = 5_000
BYTES_MAX: Final = 8 << 20
"""Of the records as JSON."""


@dataclass(frozen=True, slots=True)
class TailRecord:
    """One record."""

    number: int
    """Counts from 1 on; numbers of one driver are never used again."""
    level: int
    """As in `logging`."""
    line: str
    """What `json_formatter` writes, without secrets."""

    @property
    def facts(self) -> dict[str, Any]:
        """The line as an object. Records are many and readers few, so each reader parses what it reads."""
        found: dict[str, Any] = json.loads(self.line)
        return found


class LogTail(logging.Handler):
    """Keeps the last records, at most 5000 and at most 8 MiB of them.

    Args:
        redaction: Hides secrets.
        records_max: Records that are kept.
        bytes_max: Bytes that are kept.
        file: Takes every record too, so that it can be read after the end of this process.
        elsewhere: Says where the records are that this process does not get; None if it gets all.
    """

    def __init__(
        self,
        redaction: Redaction | None = None,
        *,
        records_max: int = RECORDS_MAX,
        bytes_max: int = BYTES_MAX,
        elsewhere: str | None = None,
        file: LogFile | None = None,
    ) -> None:
        super().__init__()
        self.elsewhere = elsewhere
        self.setFormatter(json_formatter())
        self._redaction = redaction or Redaction()
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._file = file
        self._changing = threading.Lock()
        self._records: deque[TailRecord] = deque()
        self._bytes = 0
        self._last = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record, and forget the oldest ones that are too many."""
        try:
            line = self.format(record)
            if self._redaction.may_change(line):
                line = json.dumps(self._redaction.facts(json.loads(line)))
        except Exception:  # noqa: BLE001  a record that cannot be kept must not fail the code that logs
            self.handleError(record)
            return
        self._keep(record.levelno, line)
        if self._file is not None:
            self._file.write(line)
            self._file.cut()

    @classmethod
    def stored(cls, path: Path, since: str) -> LogTail:
        """Read the last records that another process has kept in a file.

        Args:
            path: The file; one that is absent or damaged has no records.
            since: Only records from this time on, in the form of their timestamps.
        """
        tail, levels = cls(), logging.getLevelNamesMapping()
        for each in (path.with_name(f"{path.name}.1"), path):
            with suppress(OSError), each.open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - 2 * BYTES_MAX))
                for line in file.read(2 * BYTES_MAX).decode(errors="replace").splitlines():
                    with suppress(ValueError, KeyError, TypeError):
                        facts = json.loads(line)
                        if facts["timestamp"] >= since:
                            tail._keep(levels.get(str(facts["level"]).upper(), logging.INFO), line)
        return tail

    def _keep(self, level: int, line: str) -> None:
        with self._changing:
            self._last += 1
            self._records.append(TailRecord(self._last, level, line))
            self._bytes += len(line)
            while len(self._records) > self._records_max or self._bytes > self._bytes_max:
                self._bytes -= len(self._records.popleft().line)

    def read(self, *, after: int, most: int, level: int, slot: int | None, uid: str | None) -> tuple[list[TailRecord], int]:
        """Return the last records that fit, the oldest first, and the number of the newest record of all.

        Args:
            after: Only records with a greater number.
            most: How many at most.
            level: Minimum level.
            slot: Only records of this slot.
            uid: Only records of this keyed step.
        """
        with self._changing:
            records, last = list(self._records), self._last
        found = [
            one
            for one in records
            if one.number > after
            and one.level >= level
            and (slot is None or one.facts.get("slot") == slot)
            and (uid is None or one.facts.get("uid") == uid)
        ]
        return found[-most:], last
