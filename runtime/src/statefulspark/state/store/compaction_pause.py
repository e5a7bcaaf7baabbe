"""CompactionPause: lets RocksDB merge no files for a while after a store with files was opened."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

PAUSE_S: Final = 30.0
_NEW_FILES_MAX: Final = 16
"""Files of flushes; with more, look-ups would become slow."""


class CompactionPause:
    """A slot that has restored its state catches up with its input, or is about to be rescaled again: merges would take its cores and its disk.

    RocksDB starts them when a store is opened that is not in the form it prefers, which is so for most checkpoints of a large state.

    Args:
        files: Table files of the store, 0 for an empty one, which needs no pause.
        pause_s: Length of the pause in seconds; it ends earlier when many files have been flushed.
    """

    def __init__(self, files: int, pause_s: float | None = None) -> None:
        self._ends_s = time.monotonic() + (PAUSE_S if pause_s is None else pause_s)
        self._files_max: int | None = None
        self.active = files > 0

    def ends(self, first_level_files: Callable[[], int]) -> bool:
        """Return True once, when the pause is over. ``first_level_files`` counts the files of flushes."""
        if not self.active:
            return False
        files = first_level_files()
        if self._files_max is None:
            self._files_max = files + _NEW_FILES_MAX
        self.active = time.monotonic() < self._ends_s and files < self._files_max
        return not self.active
