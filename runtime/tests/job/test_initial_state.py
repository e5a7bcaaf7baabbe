"""Where a job that runs for the first time takes its state from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statefulspark.checkpoint import paths
from statefulspark.config import StatefulSparkJob, validate_job
from statefulspark.errors import InvalidInputError
from statefulspark.job.start import _initial_savepoint
from statefulspark.storage.local import LocalStore


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
    with pytest.raises(InvalidInputError, match=r"spec.initialSnapshot: names an object of Kubernetes.*--from"):
        _initial_savepoint(job(initialSnapshot={"name": "before"}), store)
    store.put(f"{paths.ATTEMPTS_PREFIX}1", b"{}")
    assert _initial_savepoint(job(initialSnapshot={"name": "before"}), store) is None
