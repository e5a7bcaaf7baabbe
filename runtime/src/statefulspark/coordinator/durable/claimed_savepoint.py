"""ClaimedSavepoint: deletes the savepoint that the job has claimed once a checkpoint of the job's own replaces it."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from statefulspark.checkpoint.catalog import OpenStore
from statefulspark.checkpoint.lineage.lineage import Lineage
from statefulspark.checkpoint.write.claiming import delete_claimed
from statefulspark.errors import CorruptDataError, InvalidInputError, UnavailableError

_log = structlog.get_logger("statefulspark.checkpoints")


class ClaimedSavepoint:
    """The savepoint that the attempt's lineage has claimed, if there is one.

    Args:
        lineage: Of the running attempt.
        job_url: URL of the job's folder.
        open_store: Opens the store of a URL.
        check_fence: Raises if a newer attempt runs the job.
    """

    def __init__(self, lineage: Lineage, job_url: str, open_store: OpenStore, check_fence: Callable[[], None]) -> None:
        self._url = lineage.claimed
        self._restored = lineage.base.metadata.checkpoint_id if lineage.base is not None else 0
        self._job_url = job_url
        self._open_store = open_store
        self._check_fence = check_fence
        self._told = False

    def replaced_by(self, checkpoint_id: int | None) -> None:
        """Delete the savepoint if this driver has completed the checkpoint. If storage refuses, the next checkpoint tries again.

        Args:
            checkpoint_id: The newest complete checkpoint of the job; None if there is none.

        Raises:
            FencedError: A newer attempt runs the job; it deletes the savepoint.
        """
        if self._url is None or checkpoint_id is None or checkpoint_id <= self._restored:
            return
        try:
            if delete_claimed(self._url, self._job_url, self._open_store, self._check_fence):
                _log.info("deleted the claimed savepoint", path=self._url)
            self._url = None
        except (UnavailableError, CorruptDataError, InvalidInputError) as error:
            if not self._told:
                _log.warning(
                    "cannot delete the claimed savepoint; trying again after each checkpoint", path=self._url, error=str(error)[:300]
                )
            self._told = True
