"""LogLevels: from which level on a process writes log records, for the job's own code and for everything else."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_LIBRARIES: Final = ("uvicorn", "py4j", "pyspark", "botocore", "boto3", "s3transfer", "urllib3", "asyncio", "httpx", "httpcore")
_OURS: Final = "statefulspark"
SLOTS_LOGGER: Final = "statefulspark.slots"
"""Logger of what a user must know of slots: one that is lost, and one that is restored."""
PRINT_LOGGER: Final = "stdout"
"""Logger of the lines that functions print."""


class LogLevel(StrEnum):
    """The levels that a user can choose."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def number(self) -> int:
        """The number that `logging` uses."""
        return logging.getLevelNamesMapping()[self.name]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLevels:
    """Minimum levels of the log records that are written.

    Attributes:
        user: Of the job's own code.
        internal: Of statefulspark. It never writes more than the job's code does, and the libraries that it uses write warnings at most.
    """

    user: int = logging.INFO
    internal: int = logging.INFO

    def apply(self) -> None:
        """Set the levels of this process's loggers."""
        set_levels(self._by_logger())

    def _by_logger(self) -> dict[str, int]:
        return {
            "": self.user,
            _OURS: max(self.user, self.internal),
            SLOTS_LOGGER: max(self.user, logging.INFO),
            **dict.fromkeys(_LIBRARIES, max(self.user, logging.WARNING)),
        }


def present_levels() -> dict[str, int]:
    """Return the levels that `LogLevels.apply` changes, by the loggers' names."""
    return {name: logging.getLogger(name).level for name in ("", _OURS, SLOTS_LOGGER, *_LIBRARIES)}


def set_levels(levels: Mapping[str, int]) -> None:
    """Set the levels of loggers by their names; the root logger's is empty."""
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
