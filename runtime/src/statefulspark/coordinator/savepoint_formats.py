"""Formats of savepoints, and what a canonical one lacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SavepointFormat = Literal["canonical", "native"]
"""Canonical: Parquet files, which jobs with any state backend restore. Native: the files of the state backend that took it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingTable:
    """A state that a canonical savepoint has as entries only; a restore has it nevertheless."""

    uid: str
    state: str
    reason: str
    """Which value no column holds."""
