"""What pods say: endings, trouble and lack of memory, from objects as the object cache holds them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from statefulspark.api_server.run import termination
from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark.coordinator.controls import CheckpointInfo, JobState, JobStatus
from statefulspark_operator.builders import pods as builders
from statefulspark_operator.builders.identities import JobIdentity
from statefulspark_operator.reconcile.job.observe.pod_status import dead_executors, driver_pod, executors, relevant_part


def pod(name: str = "counts-driver", *, phase: str = "Running", container: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    return relevant_part(
        {
            "metadata": {"name": name, "uid": f"uid-{name}", "annotations": {"statefulspark.io/generation": "4"}},
            "spec": {"containers": [{"name": "spark-kubernetes-executor", "resources": {"limits": {"memory": "2Gi"}}}]},
            "status": {"phase": phase, "containerStatuses": [container] if container else [], **status},
        }
    )


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


def test_what_the_driver_writes_about_its_end_is_understood() -> None:
    """The runtime's own writer: the last checkpoint and which are kept, so that nobody has to ask storage."""
    last = CheckpointInfo(
        id=9, path="s3://b/j/chk-9", batch=7, completed_ms=1_000, duration_ms=1, sync_ms=0, size_bytes=5, uploaded_bytes=2
    )  # fmt: skip
    status = JobStatus(
        job_id="j", name="n", state=JobState.SUSPENDED, since_ms=0, parallelism=1, max_parallelism=2, attempt=1, batch=7, input_rows=0,
        output_rows=0, last_checkpoint=last,
    )  # fmt: skip
    message = termination.of_status(status, [3, 4, 5, 9]).decode()
    seen = driver_pod(pod(phase="Succeeded", container={"name": "driver", "state": {"terminated": {"exitCode": 0, "message": message}}}))
    assert seen is not None
    assert seen.ending is not None
    assert seen.ending.checkpoint is not None
    assert (seen.ending.checkpoint.id, seen.ending.checkpoint.path, seen.ending.savepoint) == (9, "s3://b/j/chk-9", None)
    assert seen.ending.kept == frozenset({3, 4, 5, 9})


@pytest.mark.parametrize(
    "message",
    [
        None, "", "killed", "{}", '{"version": 2}', "[]", '{"version": 1, "state": "FAILED"}', "[" * 4000, "[" * 2000 + "]" * 2000,
        '{"version": 1, "state": "FAILED", "batch": 1, "path": null, "error": null, "checkpoints": "1-' + "9" * 3000 + '"}',
    ],
)  # fmt: skip
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


def test_a_pod_that_the_kubelet_evicted_before_its_containers_started_says_why() -> None:
    seen = driver_pod(pod(phase="Failed", reason="Evicted", message="The node was low on resource: memory."))
    assert seen is not None
    assert (seen.over, seen.started) == (True, False)
    assert seen.termination == "The driver pod terminated (Evicted: The node was low on resource: memory.)"


@pytest.mark.parametrize("state", [{"state": {"running": {}}}, {"state": {"waiting": {}}, "lastState": {"terminated": {"exitCode": 1}}}])
def test_a_driver_that_ran_once_has_started(state: dict[str, Any]) -> None:
    seen = driver_pod(pod(container={"name": "driver", **state}))
    assert seen is not None
    assert seen.started


def test_an_image_that_cannot_be_pulled_is_trouble_with_a_remedy() -> None:
    seen = driver_pod(
        pod(phase="Pending", container={"name": "driver", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}})
    )
    assert seen is not None
    assert seen.trouble is not None
    assert seen.trouble.reason == "ImagePullBackOff"
    assert "spec.image" in seen.trouble.message


PULL = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image reg/x:1"}}}
CRASH = {
    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}},
    "lastState": {"terminated": {"exitCode": 3}},
}


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        (
            {"initContainerStatuses": [{"name": "fetch", **PULL}]},
            "ImagePullBackOff",
            "Container fetch: Back-off pulling image reg/x:1. Check its image",
        ),
        ({"initContainerStatuses": [{"name": "fetch", **CRASH}]}, "CrashLoopBackOff", "Container fetch: back-off 5m0s (last exit code 3)"),
        (
            {"containerStatuses": [{"name": "driver", "state": {"running": {}}}, {"name": "proxy", **PULL}]},
            "ImagePullBackOff",
            "Container proxy: ",
        ),
        ({"containerStatuses": [{"name": "proxy", **CRASH}, {"name": "driver", **PULL}]}, "ImagePullBackOff", "Check spec.image"),
    ],
)
def test_a_container_of_the_template_that_does_not_start_is_trouble_with_its_name(status: dict[str, Any], reason: str, words: str) -> None:
    whole = {"metadata": {"name": "d", "uid": "u"}, "spec": {}, "status": {"phase": "Pending", **status}}
    seen = driver_pod(relevant_part(whole))
    assert seen is not None
    assert seen.trouble is not None
    assert seen.trouble.reason == reason
    assert words in seen.trouble.message


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "message": "Insufficient memory"}]},
            "Unschedulable",
            "Insufficient memory",
        ),
        ({"containerStatuses": [{"name": "spark-kubernetes-executor", **PULL}]}, "ImagePullBackOff", "Back-off pulling"),
        ({"initContainerStatuses": [{"name": "fetch", **CRASH}]}, "CrashLoopBackOff", "Container fetch"),
    ],
)
def test_an_executor_that_waits_says_why(status: dict[str, Any], reason: str, words: str) -> None:
    waiting = relevant_part({"metadata": {"name": "e-2", "uid": "u"}, "spec": {}, "status": {"phase": "Pending", **status}})
    _, _, trouble = executors([pod("e-1"), waiting])
    assert trouble is not None
    assert trouble.reason == reason
    assert "Executor e-2: " in trouble.message
    assert words in trouble.message


def test_an_evicted_executor_says_why_until_its_replacement_waits_for_another_reason() -> None:
    evicted = pod("e-1", phase="Failed", reason="Evicted", message="low on memory")
    _, _, trouble = executors([evicted])
    assert trouble is not None
    assert (trouble.reason, trouble.message) == ("Evicted", "Executor e-1: low on memory")
    waiting = pod("e-2", phase="Pending", conditions=[{"type": "PodScheduled", "status": "False", "message": "no room"}])
    for pods in ([evicted, waiting], [waiting, evicted]):
        _, _, trouble = executors(pods)
        assert trouble is not None
        assert trouble.reason == "Unschedulable"


def test_a_pod_that_no_node_takes_is_trouble() -> None:
    seen = driver_pod(
        pod(phase="Pending", conditions=[{"type": "PodScheduled", "status": "False", "message": "0/3 nodes: insufficient memory"}])
    )
    assert seen is not None
    assert seen.trouble is not None
    assert "insufficient memory" in seen.trouble.message


def test_executors_that_were_ended_for_lack_of_memory_are_found_with_their_limit() -> None:
    dead = {"name": "spark-kubernetes-executor", "state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}
    running, lost, _ = executors([pod("e-1"), pod("e-2", phase="Failed", container=dead)])
    assert running == 1
    assert [(each.pod, each.limit_bytes) for each in lost] == [("e-2", 2 << 30)]


def test_executors_that_ended_before_the_drivers_container_began_are_dead() -> None:
    """Those of the present container are Spark's, whatever their phase, and other pods are nobody's business."""
    driver = driver_pod(
        relevant_part(
            {
                "metadata": {"name": "driver", "uid": "driver"},
                "status": {
                    "phase": "Running",
                    "containerStatuses": [
                        {"name": "driver", "restartCount": 1, "state": {"running": {"startedAt": "2026-11-29T12:00:00Z"}}}
                    ],
                },
            }
        )
    )

    def executor(name: str, phase: str, created_at: str, owner: str = "driver") -> dict[str, Any]:
        metadata = {"name": name, "uid": name, "creationTimestamp": f"2026-11-29T{created_at}Z", "ownerReferences": [{"uid": owner}]}
        return relevant_part({"metadata": metadata, "status": {"phase": phase}})

    pods = [
        executor("failed", "Failed", "11:59:00"),
        executor("succeeded", "Succeeded", "11:59:59"),
        executor("runs", "Running", "11:59:00"),
        executor("failed-now", "Failed", "12:00:01"),
        executor("another-owner", "Failed", "11:59:00", "somebody"),
    ]
    assert [each.pod for each in dead_executors(pods, driver)] == ["failed", "succeeded"]
    assert dead_executors(pods, None) == ()


def test_the_object_cache_holds_only_the_part_of_a_pod_that_is_read() -> None:
    """The driver's pod as it is built, with what an API server, a kubelet and service meshes add: the cache holds less than a quarter of it."""
    spec = StatefulSparkJobSpec.model_validate(
        {
            "image": "shop/counts:1", "job": {"script": "counts.py"}, "parallelism": 1, "maxParallelism": 128,
            "checkpointing": {"dir": "s3://shop/counts"},
        }
    )  # fmt: skip
    built = builders.driver_pod(
        JobIdentity(name="counts", namespace="shop", uid="u", generation=4), spec, image="shop/counts:1", account="a", key_id="k-1"
    )
    whole = {
        **built,
        "metadata": {
            **built["metadata"],
            "uid": "uid-1",
            "annotations": {**built["metadata"]["annotations"], "sidecar.istio.io/status": "x" * 500},
            "managedFields": [{"manager": "kubelet", "fieldsV1": {f"f:{number}": {} for number in range(100)}}],
        },
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.9",
            "conditions": [{"type": kind, "status": "True"} for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")],
            "containerStatuses": [{"name": "driver", "imageID": "sha256:" + "0" * 64, "restartCount": 2, "state": {"running": {}}}],
        },
    }
    seen = driver_pod(whole)
    assert seen is not None
    assert (seen.key_id, seen.generation, seen.ip, seen.restarts) == ("k-1", 4, "10.0.0.9", 2)
    held = relevant_part(whole)
    assert driver_pod(held) == seen
    assert len(json.dumps(held)) < len(json.dumps(whole)) / 4
