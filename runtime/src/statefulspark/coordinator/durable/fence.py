"""Fencing: checks that no newer driver has taken over the job."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from statefulspark.checkpoint.formats.records import AttemptClaim
from statefulspark.checkpoint.lineage.fencing import is_fenced
from statefulspark.errors import FencedError
from statefulspark.storage.base import ObjectStore

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")

_STALE_S = 2.0
"""A driver that checked within this time goes on without another request: replacing a driver takes longer."""


class Fence:
    """Asks storage whether the driver's claim still counts; used from any thread.

    Args:
        store: Opened at the job folder.
        claim: The driver's.

    Attributes:
        fenced: True once a check has found that the claim does not count.
    """

    def __init__(self, store: ObjectStore, claim: AttemptClaim) -> None:
        self.fenced = False
        self._claim = claim
        self._store = store
        self._checked = _clocks()

    def check(self) -> None:
        """Ask storage.

        Raises:
            FencedError: The claim does not count any more.
            UnavailableError: Storage does not answer.
        """
        asked = _clocks()
        if self.fenced or is_fenced(self._store, self._claim):
            self.fenced = True
            raise FencedError("another driver has taken over the job, or the job was cancelled; this driver has stopped")
        self._checked = asked

    def check_if_stale(self) -> None:
        """Ask storage unless the last answer is recent; after a pause of the process it never is.

        Raises:
            FencedError: The claim does not count any more.
            UnavailableError: Storage does not answer.
        """
        # Neither clock alone will do: one may stand still while the machine is suspended, the other may be set.
        ages_s = (abs(now - then) for now, then in zip(_clocks(), self._checked, strict=True))
        if self.fenced or max(ages_s) > _STALE_S:
            self.check()

    def guarded(self, action: Callable[[Asked], Answered], lost: Callable[[FencedError], None]) -> Callable[[Asked], Answered]:
        """Return ``action``, refused once the claim does not count any more; ``lost`` is then called first."""

        def act(request: Asked) -> Answered:
            try:
                self.check_if_stale()
            except FencedError as error:
                lost(error)
                raise
            return action(request)

        return act


def _clocks() -> tuple[float, float]:
    return time.monotonic(), time.time()
