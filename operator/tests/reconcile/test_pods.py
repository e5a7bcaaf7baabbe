"""What pods say: endings, trouble and lack of memory, from objects as the API server gives them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from statefulspark_operator.reconcile.pods import driver_pod, executors


def pod(name: str = "counts-driver", *, phase: str = "Running", container: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "annotations": {"statefulspark.io/generation": "4"}},
        "spec": {"containers": [{"name": "spark-kubernetes-executor", "resources": {"limits": {"memory": "2Gi"}}}]},
        "status": {"phase": phase, "containerStatuses": [container] if container else [], **status},
    }


def test_no_pod_is_none() -> None:
    assert driver_pod(None) is None


def test_a_pod_that_was_just_made_has_no_status() -> None:
    seen = driver_pod({"metadata": {"name": "d", "uid": "u"}, "spec": {}})
    assert seen is not None
    assert (seen.phase, seen.generation, seen.ending, seen.trouble) == ("Pending", 0, None, None)


def test_the_termination_message_says_how_the_job_ended() -> None:
    message = json.dumps(
        {"version": 1, "state": "FAILED", "batch": 7, "path": "s3://b/chk-3", "error": {"reason": "UserFunction", "message": "boom"}}
    )
    seen = driver_pod(pod(phase="Succeeded", container={"name": "driver", "state": {"terminated": {"exitCode": 0, "message": message}}}))
    assert seen is not None
    assert seen.ending is not None
    assert (seen.ending.state, seen.ending.batch, seen.ending.path) == ("FAILED", 7, "s3://b/chk-3")
    assert seen.ending.error is not None
    assert seen.ending.error.reason == "UserFunction"


@pytest.mark.parametrize("message", [None, "", "killed", "{}", '{"version": 2}', "[]", '{"version": 1, "state": "FAILED"}'])
def test_any_other_message_is_no_ending(message: str | None) -> None:
    seen = driver_pod(pod(phase="Succeeded", container={"name": "driver", "state": {"terminated": {"exitCode": 0, "message": message}}}))
    assert seen is not None
    assert seen.ending is None
    assert seen.over


def test_a_crash_is_no_ending_whatever_it_wrote() -> None:
    message = json.dumps({"version": 1, "state": "FAILED", "batch": 7, "path": None, "error": None})
    seen = driver_pod(pod(phase="Failed", container={"name": "driver", "state": {"terminated": {"exitCode": 137, "message": message}}}))
    assert seen is not None
    assert seen.ending is None


def test_an_image_that_cannot_be_pulled_is_trouble_with_a_remedy() -> None:
    seen = driver_pod(
        pod(phase="Pending", container={"name": "driver", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}})
    )
    assert seen is not None
    assert seen.trouble is not None
    assert seen.trouble.reason == "ImagePullBackOff"
    assert "spec.image" in seen.trouble.message


def test_a_pod_that_no_node_takes_is_trouble() -> None:
    seen = driver_pod(
        pod(phase="Pending", conditions=[{"type": "PodScheduled", "status": "False", "message": "0/3 nodes: insufficient memory"}])
    )
    assert seen is not None
    assert seen.trouble is not None
    assert "insufficient memory" in seen.trouble.message


def test_executors_that_were_ended_for_lack_of_memory_are_found_with_their_limit() -> None:
    dead = {"name": "spark-kubernetes-executor", "state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}
    running, lost = executors([pod("e-1"), pod("e-2", phase="Failed", container=dead)])
    assert running == 1
    assert [(each.pod, each.limit_bytes) for each in lost] == [("e-2", 2 << 30)]
