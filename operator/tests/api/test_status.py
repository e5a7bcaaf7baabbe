"""Status models: what is written can be read, texts stay within bounds, words are those of the runtime and of Kubernetes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from pydantic import ValidationError

from statefulspark.config.job import API_VERSION, KIND
from statefulspark.config.kubernetes.pods import JOB_LABEL
from statefulspark.config.snapshot import SNAPSHOT_KIND
from statefulspark.coordinator.controls import JobState
from statefulspark_operator.api import names
from statefulspark_operator.api.conditions import Condition, ConditionStatus, ConditionType
from statefulspark_operator.api.jobs import ErrorInfo, JobStateName, StatefulSparkJobStatus
from statefulspark_operator.api.snapshots import SnapshotState, StateSnapshotStatus

NOON = datetime(2026, 11, 20, 12, 0, 0, 999_999, tzinfo=timezone(timedelta(hours=1)))


def test_names_are_those_of_the_runtime() -> None:
    """Operator and runtime do not import each other's constants; this keeps them equal."""
    assert [each.value for each in JobStateName] == [each.value for each in JobState]
    assert (names.API_VERSION, names.JOB_KIND, names.SNAPSHOT_KIND) == (API_VERSION, KIND, SNAPSHOT_KIND)
    assert names.LABEL_JOB == JOB_LABEL


def test_a_moment_is_written_in_utc_and_whole_seconds() -> None:
    """As Kubernetes does; a moment without a zone could mean anything."""
    condition = Condition(
        type=ConditionType.READY, status=ConditionStatus.TRUE, reason="Running", message="Batches run", last_transition_time=NOON
    )
    assert condition.to_status() == {
        "type": "Ready",
        "status": "True",
        "reason": "Running",
        "message": "Batches run",
        "lastTransitionTime": "2026-11-20T11:00:00Z",
    }
    assert Condition.model_validate(condition.to_status()).last_transition_time == datetime(2026, 11, 20, 11, tzinfo=UTC)
    with pytest.raises(ValidationError):
        Condition.model_validate({**condition.to_status(), "lastTransitionTime": "2026-11-20T11:00:00"})


def test_long_texts_are_cut_not_refused() -> None:
    """An error's text may be a page of Java; the status must be written all the same."""
    error = ErrorInfo(reason="UserFunction", message="x" * 10_000, since=NOON)
    assert len(error.message) == 4096
    assert error.message.endswith("...")
    with pytest.raises(ValidationError):
        ErrorInfo(reason="two words", message="m", since=NOON)


def test_what_is_not_known_is_not_written() -> None:
    """An empty status is an empty object, so that server-side apply gives up fields that are gone."""
    assert StatefulSparkJobStatus().to_status() == {
        "lifecycleHistory": [],
        "conditions": [],
        "restarts": 0,
        "keyGroups": [],
        "memoryKills": [],
    }
    assert StateSnapshotStatus().to_status() == {"state": "TRIGGER_PENDING", "failures": 0}


def test_a_newer_operators_status_can_be_read() -> None:
    """After a downgrade of the operator, fields it does not know are left alone."""
    status = StateSnapshotStatus.model_validate({"state": "COMPLETED", "somethingNew": {"x": 1}})
    assert status.state is SnapshotState.COMPLETED
