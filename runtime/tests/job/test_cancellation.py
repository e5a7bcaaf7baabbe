"""What becomes of the state of a canceled job; integration/test_snapshots.py cancels real ones."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from statefulspark.coordinator.controls import Cancellation, JobState
from statefulspark.errors import FencedError, UnavailableError
from statefulspark.job.ending.cancellation import CanceledState
from statefulspark.job.failures.restarts import NoRestart
from statefulspark.job.run.running import RunningJob
from statefulspark.job.start.run_settings import RunSettings


def test_retain_deletes_nothing() -> None:
    state = CanceledState(lambda: pytest.fail("deleted"), retain=True)
    assert state.outcome is None
    state.settle()
    assert state.outcome == Cancellation(deleted=False)


def test_delete() -> None:
    calls: list[str] = []
    state = CanceledState(lambda: calls.append("deleted"), retain=False)
    assert (calls, state.outcome) == ([], None), "not before the job is canceled"
    state.settle()
    assert (calls, state.outcome) == (["deleted"], Cancellation(deleted=True))


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (UnavailableError("s3://bucket does not answer"), "s3://bucket does not answer"),
        (FencedError("7"), "another driver"),
        (RuntimeError("a bug"), "internal error (RuntimeError)"),
    ],
)
def test_no_error_keeps_the_job_from_ending(error: Exception, says: str) -> None:
    def delete() -> None:
        raise error

    state = CanceledState(delete, retain=False)
    state.settle()
    assert state.outcome is not None
    assert not state.outcome.deleted
    assert says in (state.outcome.problem or "")


def running(calls: list[str], *, retain: bool, delete: Callable[[], None]) -> RunningJob:
    """A RunningJob whose Spark and coordinator only note what is asked of them; no query was started."""
    coordinator = SimpleNamespace(
        query=SimpleNamespace(idle=lambda: True), slots=SimpleNamespace(on_restored=lambda _: None), snapshots=SimpleNamespace(), going_back=SimpleNamespace(), queries=SimpleNamespace(),
        report_to=lambda **_: None, view=lambda: None,
        close=lambda: calls.append("coordinator closed"), delete_state=delete,
    )  # fmt: skip
    settings = RunSettings(
        name="job", max_parallelism=128, parallelism_max=2, slots_per_executor=None, local_checkpoint="/nowhere", restart_user_errors=False,
        until_idle=False, tolerable_failures=0, retain_on_cancellation=retain, executors_for=lambda _: 1,
    )  # fmt: skip
    return RunningJob(
        spark=cast("Any", SimpleNamespace(stop=lambda: calls.append("spark stopped"))),
        coordinator=cast("Any", coordinator),
        build=lambda _: pytest.fail("built"),
        slot_config=lambda _: pytest.fail("configured"),
        restart=NoRestart(),
        settings=settings,
        history=cast(
            "Any",
            SimpleNamespace(
                close=lambda state, error, *, keep: calls.append("history kept" if keep else "history closed"),
                returned=lambda *_: None,
                slot_restored=lambda *_: None,
            ),
        ),
    )


def test_state_is_deleted_after_the_job_was_stopped_and_before_its_end_is_known() -> None:
    """The process ends as soon as the job has ended, and what still writes must not write after the deletion."""
    calls: list[str] = []
    job = running(calls, retain=False, delete=lambda: calls.append(f"deleted while {job.wait(0)}"))
    job.cancel()
    assert calls == ["coordinator closed", "history closed", "spark stopped", "deleted while CREATED"]
    assert job.wait(0) is JobState.CANCELED
    job.cancel()
    assert len(calls) == 4, "repeating it is fine"


def test_state_that_must_stay_whatever_the_manifest_says() -> None:
    """A stateless upgrade may be rolled back to it."""
    job = running([], retain=False, delete=lambda: pytest.fail("deleted"))
    job.cancel(retain=True)
    assert job._canceled.outcome == Cancellation(deleted=False)


def test_a_job_that_has_failed_keeps_its_state_when_it_is_canceled() -> None:
    """The first one decides how the job ended."""
    calls: list[str] = []
    job = running(calls, retain=False, delete=lambda: pytest.fail("deleted"))
    job._close(JobState.FAILED)
    job.cancel()
    assert job.wait(0) is JobState.FAILED
