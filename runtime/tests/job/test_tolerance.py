"""How many failed checkpoints a job bears: exactly as many as Flink would."""

from __future__ import annotations

from typing import cast

import pytest

from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.coordinator.snapshots.pending import SlotLostError
from statefulspark.errors import FencedError, UnavailableError
from statefulspark.job.failures.restarts import FixedDelay, NoRestart
from statefulspark.job.failures.tolerance import FailureTolerance
from statefulspark.job.history.recorder import HistoryRecorder
from statefulspark.job.history.storing import StoredHistory

_FAILED = UnavailableError("storage does not answer")
_COMPLETE = CheckpointInfo(
    id=1, kind="checkpoint", path="p", batch=0, completed_ms=0, duration_ms=0, sync_ms=0, size_bytes=0, uploaded_bytes=0
)


def unheard() -> HistoryRecorder:
    """A history that nobody stores."""
    return HistoryRecorder(cast("StoredHistory", None))


def tolerance(number: int) -> FailureTolerance:
    return FailureTolerance(FixedDelay(attempts=1, delay_s=2.0), restart_user_errors=True, failed_checkpoints=number, history=unheard())


@pytest.mark.parametrize("number", [0, 1, 3])
def test_one_more_than_tolerated_fails_the_query_once(number: int) -> None:
    """Then the count begins anew, as after any restart."""
    job = tolerance(number)
    for _ in range(2):
        for _ in range(number):
            job.checkpoint_ended(_FAILED, False)
        assert job.query_failure is None
        job.checkpoint_ended(_FAILED, False)
        failure = job.take_query_failure()
        assert f"{number + 1} consecutive checkpoints failed ({number} are tolerated)" in str(failure)
        assert job.take_query_failure() is None
    assert job.fatal is None, "what follows is the restart strategy's"


def test_only_failures_in_a_row_count() -> None:
    """A complete checkpoint forgives those before it."""
    job = tolerance(1)
    for _ in range(5):
        job.checkpoint_ended(_FAILED, False)
        job.checkpoint_ended(_COMPLETE, False)
    assert job.query_failure is None


def test_savepoints_lost_slots_and_the_end_of_the_job_do_not_count() -> None:
    """None of them says that checkpoints cannot be taken."""
    job = tolerance(0)
    for _ in range(5):
        job.checkpoint_ended(_FAILED, True)
        job.checkpoint_ended(SlotLostError("slot 1 is gone"), False)
        job.checkpoint_ended(FencedError("the job is stopping"), False)
    assert job.query_failure is None


def test_the_restart_strategy_decides_how_often() -> None:
    """The failure is handed to it like any other of the query."""
    job = tolerance(0)
    job.checkpoint_ended(_FAILED, False)
    failure = job.take_query_failure()
    assert failure is not None
    assert job.query_pause_s(failure) == 2.0
    assert job.query_pause_s(failure) is None
    assert FailureTolerance(NoRestart(), restart_user_errors=True, failed_checkpoints=0, history=unheard()).query_pause_s(failure) is None
