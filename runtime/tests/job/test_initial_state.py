"""Where a job that runs for the first time takes its state from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.documents import encode_document
from statefulspark.checkpoint.formats.records import AttemptStart
from statefulspark.checkpoint.lineage.fencing import claim_attempt
from statefulspark.checkpoint.write.removal import remove_state
from statefulspark.config.job import StatefulSparkJob
from statefulspark.config.manifest import validate_job
from statefulspark.errors import InvalidInputError
from statefulspark.job.start.start_job import _initial_savepoint
from statefulspark.storage.local.store import LocalStore


def job(**spec: Any) -> StatefulSparkJob:
    """A job with this in its spec."""
    document = {"job": {"script": "x.py"}, "checkpointing": {"dir": "file:///data"}, **spec}
    return validate_job(
        {"apiVersion": "statefulspark.io/v1alpha1", "kind": "StatefulSparkJob", "metadata": {"name": "x"}, "spec": document}
    )


def test_an_object_of_kubernetes_is_not_silently_an_empty_start(tmp_path: Path) -> None:
    """On this machine a fork needs the path; without state of its own the job must not start empty, with it the fork is over."""
    store = LocalStore(tmp_path)
    assert _initial_savepoint(job(), store) is None
    assert _initial_savepoint(job(initialSavepointPath="file:///s"), store) == "file:///s"
    with pytest.raises(InvalidInputError, match=r"spec.initialSnapshot: refers to a Kubernetes object.*--from"):
        _initial_savepoint(job(initialSnapshot={"name": "before"}), store)
    start = AttemptStart(attempt=1, created_ms=0, origin="file:///s")
    store.put(paths.attempt_start_key(1), encode_document("attempt-start", start))
    assert _initial_savepoint(job(initialSnapshot={"name": "before"}), store) is None


def test_a_job_whose_state_was_removed_starts_from_its_initial_savepoint_again(tmp_path: Path) -> None:
    """What cancelling leaves is a claim and a start from nothing."""
    store = LocalStore(tmp_path)
    claim = claim_attempt(store, now_ms=0)
    start = AttemptStart(attempt=1, created_ms=0, origin="file:///s")
    store.put(paths.attempt_start_key(1), encode_document("attempt-start", start))
    assert _initial_savepoint(job(initialSavepointPath="file:///s"), store) is None
    remove_state(store, claim, now_ms=0)
    assert _initial_savepoint(job(initialSavepointPath="file:///s"), store) == "file:///s"
