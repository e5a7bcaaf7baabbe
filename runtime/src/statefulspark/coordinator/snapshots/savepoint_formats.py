"""Formats of savepoints, and what a canonical one lacks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingTable:
    """A state that a canonical savepoint has as entries only; a restore has it nevertheless."""

    uid: str
    state: str
    reason: str
    """The value that no column can hold."""
