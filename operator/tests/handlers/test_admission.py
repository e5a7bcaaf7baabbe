"""Admission: bad objects are refused with a sentence, good ones and everything that must not be held up are let through."""

from __future__ import annotations

from typing import Any

import pytest

from statefulspark_operator.handlers.admission import review
from tests.manifests import manifest


def ask(new: dict[str, Any] | None, old: dict[str, Any] | None = None, operation: str = "CREATE", **request: Any) -> dict[str, Any]:
    body = {"request": {"uid": "r-1", "operation": operation, "object": new, "oldObject": old, **request}}
    answer = review(body)
    assert answer["response"]["uid"] == "r-1"
    response: dict[str, Any] = answer["response"]
    return response


def job(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "statefulspark.io/v1alpha1",
        "kind": "StatefulSparkJob",
        "metadata": {"name": "counts", "namespace": "shop"},
        "spec": manifest(**spec),
    }


def test_a_good_job_is_let_through() -> None:
    assert ask(job())["allowed"]


@pytest.mark.parametrize(("volume", "warned"), [({"hostPath": {"path": "/nfs"}}, False), ({"emptyDir": {}}, True), (None, True)])
def test_state_in_a_folder_of_single_pods_is_warned_of(volume: dict[str, Any] | None, warned: bool) -> None:
    """With a volume that all pods share, it may well be meant."""
    containers = [{"name": "c", "volumeMounts": [{"name": "state", "mountPath": "/state"}]}]
    template = {"spec": {"containers": containers, "volumes": [{"name": "state", **volume}] if volume is not None else []}}
    given = {"checkpointing": {"dir": "file:///state/jobs"}, "executor": {"podTemplate": template}}
    response = ask(job(**given, driver={"podTemplate": template}))
    assert response["allowed"]
    assert bool(response.get("warnings")) is warned
    response = ask(job(**given))
    assert "driver.podTemplate" in response["warnings"][0]
    assert "warnings" not in ask(job())


def test_a_bad_job_is_refused_with_field_and_remedy() -> None:
    response = ask(job(parallelism=500))
    assert not response["allowed"]
    assert "spec.parallelism" in response["status"]["message"]
    assert "maxParallelism" in response["status"]["message"]


def test_what_is_fixed_cannot_change() -> None:
    response = ask(job(maxParallelism=256), job(), "UPDATE")
    assert not response["allowed"]
    assert "spec.maxParallelism" in response["status"]["message"]


def test_more_slots_than_the_state_has_key_groups_are_refused() -> None:
    """The status says how many it has; a job that never ran may have any number."""
    few, many = job(parallelism=80), job(parallelism=200)
    for each in (few, many):
        del each["spec"]["maxParallelism"]
    assert ask(many, few, "UPDATE")["allowed"]
    response = ask(many, few | {"status": {"maxParallelism": 128}}, "UPDATE")
    assert "128 key groups" in response["status"]["message"]


def test_a_bad_job_can_be_corrected() -> None:
    assert ask(job(), job(parallelism=0), "UPDATE")["allowed"]


@pytest.mark.parametrize(
    ("new", "old", "operation", "request_"),
    [
        (None, job(), "DELETE", {}),
        (job(parallelism=0), job(), "UPDATE", {"subResource": "status"}),
        (job(parallelism=0) | {"metadata": {"name": "counts", "deletionTimestamp": "2026-11-21T00:00:00Z"}}, job(), "UPDATE", {}),
        (job(parallelism=0), job(parallelism=0), "UPDATE", {}),
        ({"kind": "Pod", "metadata": {}}, None, "CREATE", {}),
    ],
    ids=["deleting", "status", "finalizer of a bad job", "labels of a bad job", "another kind"],
)
def test_what_must_not_be_held_up_is_let_through(new: Any, old: Any, operation: str, request_: dict[str, Any]) -> None:
    assert ask(new, old, operation, **request_)["allowed"]


def test_a_snapshot_of_two_kinds_is_refused() -> None:
    snapshot = {
        "apiVersion": "statefulspark.io/v1alpha1",
        "kind": "StateSnapshot",
        "metadata": {"name": "s", "namespace": "shop"},
        "spec": {"jobReference": {"name": "counts"}, "savepoint": {}, "checkpoint": {}},
    }
    response = ask(snapshot)
    assert not response["allowed"]
    assert "savepoint" in response["status"]["message"]


@pytest.mark.parametrize("body", [{}, {"request": {}}, {"request": None}])
def test_what_is_no_review_raises(body: Any) -> None:
    with pytest.raises((KeyError, TypeError)):
        review(body)
