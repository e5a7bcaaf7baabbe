"""Each route over real HTTP: what it asks of the job, what it answers, how it refuses."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace

import httpx
import pytest
from openapi_spec_validator import validate
from runtime.tests.api_server.fake_job import FakeJob
from runtime.tests.checkpoint.sized import checkpoint_of

from statefulspark.coordinator.controls import JobError, JobFailing, JobState, JobStatus, MemoryChange
from statefulspark.coordinator.slots.status import BusyKeyGroup, SlotMemory, SlotSpread, StepSkew
from statefulspark.errors import (
    ClosedError,
    ConflictError,
    CorruptDataError,
    FencedError,
    InternalError,
    InvalidInputError,
    NotRestorableError,
    UnavailableError,
    UserFunctionError,
)


def test_status_tells_everything_the_job_knows(http: httpx.Client, job: FakeJob) -> None:
    """The JSON names and values are those of JobStatus."""
    job.trigger_checkpoint(1)
    answer = http.get("/v1/status").json()
    status = job.status()
    assert set(answer) == set(type(status).__slots__)
    assert answer["watermarks"] == {"turnaround": 1_357_041_600_000, "carried": None}
    assert answer["slots"][1] == {
        "slot": 1, "first": 64, "last": 127, "state": "RUNNING", "epoch": 1, "executor": "1", "host": "worker-7", "pid": 4_701, "restarts": 0,
        "rows_in": 0, "store_bytes": None, "cache_hit_ratio": None, "memory": None, "restoring": None,
    }  # fmt: skip
    assert answer["last_checkpoint"]["path"] == "file:///state/turnaround/checkpoint-1"
    job.change(failing=JobFailing(failures=2, since_ms=5, error=JobError(reason="Unavailable", message="closed")))
    failing = {"failures": 2, "since_ms": 5, "error": {"reason": "Unavailable", "message": "closed"}}
    assert http.get("/v1/status").json()["failing"] == failing
    assert 'statefulspark_consecutive_failures{job="turnaround"} 2.0' in http.get("/metrics").text
    job.change(state=JobState.FAILED, error=JobError(reason="UserFunction", message="ZeroDivisionError"))
    assert http.get("/v1/status").json()["error"] == {"reason": "UserFunction", "message": "ZeroDivisionError"}


def test_health_is_liveness_and_readiness(anonymous: httpx.Client, job: FakeJob) -> None:
    """A job that is being rescaled is alive, but not ready."""
    assert anonymous.get("/healthz").json() == {"status": "ok"}
    assert anonymous.get("/readyz").status_code == 200
    for state in (JobState.CREATED, JobState.RESCALING, JobState.FAILED):
        job.change(state=state)
        response = anonymous.get("/readyz")
        assert (response.status_code, response.json()) == (503, {"ready": False, "state": state.value})
        assert anonymous.get("/healthz").status_code == 200


def test_a_flood_of_readiness_checks_asks_the_job_once_at_a_time(
    anonymous: httpx.Client, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They need no token; each took the job's locks in a thread of its own, and `/v1/status` waited for them all."""
    calls, finish, at_once = [0], threading.Event(), ThreadPoolExecutor(20)
    status = job.status

    def slow() -> JobStatus:
        calls[0] += 1
        assert finish.wait(60)
        return status()

    monkeypatch.setattr(job, "status", slow)
    with at_once:
        answers = [at_once.submit(anonymous.get, "/readyz", timeout=60) for _ in range(20)]
        while calls[0] == 0:
            time.sleep(0.01)
        time.sleep(0.5)
        assert calls[0] == 1
        finish.set()
        assert {each.result().status_code for each in answers} == {200}


def test_checkpoints_and_savepoints(http: httpx.Client, job: FakeJob) -> None:
    """Taken on demand, then listed oldest first; the target and the time limit reach the job."""
    first = http.post("/v1/checkpoints", params={"timeout_s": 7})
    second = http.post("/v1/savepoints", json={"target": "s3://bucket/sp"})
    third = http.post("/v1/savepoints")
    assert [first.status_code, second.status_code, third.status_code] == [200, 200, 200]
    assert second.json()["path"] == "s3://bucket/sp/savepoint-2"
    assert http.get("/v1/checkpoints").json()["checkpoints"] == [first.json(), second.json(), third.json()]
    assert job.calls == [("trigger_checkpoint", 7.0), ("trigger_savepoint", "s3://bucket/sp", 600.0), ("trigger_savepoint", None, 600.0)]


def test_formats_of_savepoints(http: httpx.Client, job: FakeJob) -> None:
    """The status, the list and the operation tell the format as the answer does; another one is refused before the job is asked."""
    taken = http.post("/v1/savepoints", json={"format": "canonical"})
    assert (taken.status_code, taken.json()["format"], len(taken.json()["without_table"])) == (200, "canonical", 1)
    assert http.get("/v1/status").json()["last_savepoint"] == taken.json()
    assert http.get("/v1/operations").json()["operations"][0]["checkpoint"] == taken.json()
    assert http.post("/v1/savepoints", json={"format": "parquet"}).status_code == 422
    assert http.post("/v1/stop", json={"format": "parquet"}).status_code == 422
    assert job.calls == [("trigger_savepoint", None, 600.0, "canonical")]
    stopped = http.post("/v1/stop", json={"savepoint": True, "format": "canonical"})
    assert (stopped.status_code, stopped.json()["checkpoint"]["format"]) == (200, "canonical")
    assert job.calls[1:] == [("stop", True, None, False, 600.0, "canonical")]


@pytest.mark.parametrize(
    ("body", "call", "state"),
    [
        (None, ("stop", None, None, False, 600.0), "SUSPENDED"),
        ({"savepoint": False}, ("stop", False, None, False, 600.0), "SUSPENDED"),
        ({"target": "file:///x", "drain": True}, ("stop", None, "file:///x", True, 600.0), "FINISHED"),
    ],
)
def test_stop_says_what_it_left_behind(
    http: httpx.Client, job: FakeJob, body: dict[str, object] | None, call: tuple[object, ...], state: str
) -> None:
    """State after the end and the path to go on from."""
    answer = http.post("/v1/stop", json=body).json()
    assert job.calls == [call]
    assert answer["state"] == state
    assert answer["checkpoint"]["path"].endswith("-1")


def test_rescale_checks_the_bounds_before_the_job_is_touched(http: httpx.Client, job: FakeJob) -> None:
    """More slots than key groups: 400 with the remedy; less than one: 422; else the new ranges."""
    refused = http.post("/v1/rescale", json={"parallelism": 129})
    assert refused.status_code == 400
    assert refused.json()["error"]["reason"] == "InvalidInput"
    assert "max_parallelism 128" in refused.json()["error"]["message"]
    assert http.post("/v1/rescale", json={"parallelism": 0}).status_code == 422
    assert job.calls == []
    answer = http.post("/v1/rescale", json={"parallelism": 3})
    assert answer.status_code == 200
    assert [(slot["first"], slot["last"]) for slot in answer.json()["slots"]] == [(0, 42), (43, 85), (86, 127)]
    assert answer.json()["last_rescale"]["pause_ms"] == 3_900
    assert http.get("/v1/status").json()["last_rescale"] == answer.json()["last_rescale"]


def test_the_plan_of_a_rescale_changes_nothing(http: httpx.Client, job: FakeJob) -> None:
    """Key groups and bytes per slot; bounds as those of the rescale."""
    job.base = checkpoint_of(128, [30, 64])
    plan = http.get("/v1/rescale-plan", params={"parallelism": 3}).json()
    assert (plan["moved_key_groups"], plan["fetch_bytes"], plan["cut_bytes"], plan["merged_bytes"]) == (63, 188, 74, 10)
    assert plan["slots"][1] == {
        "slot": 1, "first": 43, "last": 85, "opened": 1, "fetch_bytes": 94, "cut_key_groups": 42, "cut_bytes": 42,
        "merged_key_groups": 21, "merged_bytes": 10,
    }  # fmt: skip
    refused = http.get("/v1/rescale-plan", params={"parallelism": 129})
    assert (refused.status_code, "max_parallelism 128" in refused.json()["error"]["message"]) == (400, True)
    assert http.get("/v1/rescale-plan").status_code == 422
    assert job.calls == []


def test_memory_is_looked_at_and_divided_anew(http: httpx.Client, job: FakeJob) -> None:
    """What is left out reaches the job as None; ratios out of bounds and unknown fields do not reach it."""
    assert http.get("/v1/memory").json()["write_buffer_ratio"] == 0.5
    answer = http.patch("/v1/memory", json={"write_buffer_ratio": 0.3}, params={"timeout_s": 4})
    assert (answer.status_code, answer.json()["revision"], answer.json()["write_buffer_ratio"]) == (200, 1, 0.3)
    assert http.get("/v1/memory").json() == answer.json()
    for body in ({"write_buffer_ratio": 1}, {"high_prio_pool_ratio": -0.1}, {"managed_bytes": 0}, {"cache": 5}):
        assert http.patch("/v1/memory", json=body).status_code == 422
    assert job.calls == [("tune_memory", MemoryChange(write_buffer_ratio=0.3), 4.0)]
    job.failures = {"memory": ConflictError("no native memory"), "tune_memory": InvalidInputError("too much", field="managed_bytes")}
    assert (http.get("/v1/memory").status_code, http.patch("/v1/memory", json={}).status_code) == (409, 400)


def test_slots_say_what_memory_they_have_and_steps_how_uneven_they_are(http: httpx.Client, job: FakeJob) -> None:
    """As the status page and the command line need it."""
    memory = SlotMemory(
        rss_bytes=300,
        pss_bytes=200,
        baseline_bytes=100,
        process_budget_bytes=250,
        budget_bytes=128,
        managed_bytes=96,
        used_bytes=90,
        revision=1,
    )
    skew = StepSkew(ratio=2.5, top=(BusyKeyGroup(key_group=17, slot=0, rows=9),), slots=(SlotSpread(slot=0, rows_max=9, rows_mean=3.6),))
    job.change(
        slots=(replace(job.status().slots[0], rows_in=7, store_bytes=50, cache_hit_ratio=0.75, memory=memory),),
        skew={"turnaround": skew},
    )
    answer = http.get("/v1/status").json()
    assert answer["slots"][0]["memory"] == asdict(memory)
    assert (answer["slots"][0]["rows_in"], answer["slots"][0]["store_bytes"], answer["slots"][0]["cache_hit_ratio"]) == (7, 50, 0.75)
    top, spreads = [{"key_group": 17, "slot": 0, "rows": 9}], [{"slot": 0, "rows_max": 9, "rows_mean": 3.6}]
    assert answer["skew"] == {"turnaround": {"ratio": 2.5, "top": top, "slots": spreads}}


def test_cancel(http: httpx.Client) -> None:
    """Ends the job; what is asked of it then is a conflict."""
    assert http.post("/v1/cancel").json()["state"] == "CANCELED"
    refused = http.post("/v1/savepoints")
    assert (refused.status_code, refused.json()["error"]["reason"]) == (409, "Closed")


def test_cancel_and_keep_the_state(http: httpx.Client, job: FakeJob) -> None:
    """A stateless upgrade keeps what a rollback returns to."""
    assert http.post("/v1/cancel", json={"retain": True}).json()["state"] == "CANCELED"
    assert job.calls[-1] == ("cancel", "retain") or ("cancel", "retain") in job.calls


ERRORS = [
    (InvalidInputError("no such bucket", field="target", remedy="Choose another"), 400, "InvalidInput"),
    (NotRestorableError("changed uid"), 400, "NotRestorable"),
    (ConflictError("a rescale is under way"), 409, "Conflict"),
    (FencedError("attempt 4 took over"), 409, "Fenced"),
    (ClosedError("ended"), 409, "Closed"),
    (UnavailableError("storage does not answer", retry_after_s=2.4), 503, "Unavailable"),
    (CorruptDataError("checksum", path="chk-3/x"), 500, "CorruptData"),
    (UserFunctionError("raised", uid="u", key_group=7, user_traceback="ZeroDivisionError"), 500, "UserFunction"),
    (InternalError("a defect"), 500, "Internal"),
]


@pytest.mark.parametrize(
    ("error", "status", "reason"), ERRORS, ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None
)
def test_errors_map_to_status_and_reason(http: httpx.Client, job: FakeJob, error: Exception, status: int, reason: str) -> None:
    """The same in a look (raised in the handler) and in an operation (raised in its thread)."""
    job.failures = {"checkpoints": error, "trigger_savepoint": error}
    for response in (http.get("/v1/checkpoints"), http.post("/v1/savepoints")):
        assert response.status_code == status
        assert response.json() == {"error": {"reason": reason, "message": str(error)}}
        assert response.headers.get("Retry-After") == ("3" if status == 503 else None)


def test_a_foreign_error_is_not_told_to_clients(http: httpx.Client, job: FakeJob, caplog: pytest.LogCaptureFixture) -> None:
    """Its text may name anything: the log has it, the answer does not."""
    job.failures = {"checkpoints": RuntimeError("secret-of-the-inside"), "trigger_savepoint": RuntimeError("secret-of-the-inside")}
    for response in (http.get("/v1/checkpoints"), http.post("/v1/savepoints")):
        assert response.status_code == 500
        assert response.json()["error"]["reason"] == "Internal"
        assert "secret-of-the-inside" not in response.text
    assert caplog.text.count("RuntimeError: secret-of-the-inside") == 2


@pytest.mark.parametrize(
    ("path", "options", "where"),
    [
        ("/v1/savepoints", {"json": {"targets": "typo"}}, "body.targets"),
        ("/v1/savepoints", {"json": {"target": 7}}, "body.target"),
        ("/v1/savepoints", {"params": {"timeout_s": 0}}, "query.timeout_s"),
        ("/v1/savepoints", {"params": {"timeout_s": "nan"}}, "query.timeout_s"),
        ("/v1/savepoints", {"params": {"wait": "perhaps"}}, "query.wait"),
        ("/v1/savepoints", {"content": b"{", "headers": {"Content-Type": "application/json"}}, "body"),
        ("/v1/rescale", {}, "body"),
        ("/v1/rescale", {"json": {"parallelism": "three"}}, "body.parallelism"),
    ],
)
def test_a_request_that_does_not_fit_is_refused_by_field(
    http: httpx.Client, job: FakeJob, path: str, options: dict[str, object], where: str
) -> None:
    """422 naming the field; the job is not asked."""
    response = http.post(path, **options)  # type: ignore[arg-type]  # options are of httpx
    assert response.status_code == 422
    assert where in response.json()["error"]["message"]
    assert job.calls == []


def test_unknown_paths_and_methods_have_the_same_body(http: httpx.Client) -> None:
    """Also what the framework itself refuses looks like everything else."""
    missing, wrong = http.get("/v1/nothing"), http.get("/v1/rescale")
    assert (missing.status_code, missing.json()["error"]["reason"]) == (404, "NotFound")
    assert (wrong.status_code, wrong.json()["error"]["reason"]) == (405, "MethodNotAllowed")
    assert wrong.headers["Allow"] == "POST"


def poll(http: httpx.Client, path: str) -> dict[str, object]:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        answer: dict[str, object] = http.get(path).json()
        if answer["state"] != "RUNNING":
            return answer
        time.sleep(0.01)
    raise AssertionError(f"{path} did not end")


def test_without_waiting_an_operation_can_be_asked_for_later(http: httpx.Client, job: FakeJob) -> None:
    """202 with Location while it runs; then its result."""
    job.hold = threading.Event()
    started = http.post("/v1/rescale", json={"parallelism": 4}, params={"wait": "false"})
    assert started.status_code == 202
    assert (started.json()["state"], started.json()["kind"]) == ("RUNNING", "rescale")
    where = started.headers["Location"]
    assert http.get(where).json()["state"] == "RUNNING"
    job.hold.set()
    ended = poll(http, where)
    assert ended["state"] == "SUCCEEDED"
    assert ended["status"]["parallelism"] == 4  # type: ignore[index]  # JSON
    assert [operation["id"] for operation in http.get("/v1/operations").json()["operations"]] == [ended["id"]]
    assert http.get("/v1/operations/0123").status_code == 404


def test_a_failed_operation_keeps_its_error(http: httpx.Client, job: FakeJob) -> None:
    """Who asks later learns the same as who waits."""
    job.failures = {"trigger_savepoint": UnavailableError("slot 1 does not answer")}
    ended = poll(http, http.post("/v1/savepoints", params={"wait": "false"}).headers["Location"])
    assert ended["state"] == "FAILED"
    assert ended["error"] == {"reason": "Unavailable", "message": "slot 1 does not answer"}


def test_a_repeated_key_gets_the_first_operation(http: httpx.Client, job: FakeJob) -> None:
    """A client that lost the reply does not cause a second savepoint; another request under the key is a conflict."""
    headers = {"Idempotency-Key": "snapshot-7"}
    first = http.post("/v1/savepoints", json={"target": "s3://b/x"}, headers=headers)
    again = http.post("/v1/savepoints", json={"target": "s3://b/x"}, headers=headers)
    assert first.json() == again.json()
    assert len(job.calls) == 1
    assert http.post("/v1/savepoints", json={"target": "s3://b/y"}, headers=headers).status_code == 409
    assert http.post("/v1/checkpoints", headers=headers).status_code == 409
    assert len(job.calls) == 1


def test_waiting_requests_do_not_block_looks(http: httpx.Client, url: str, token: str, job: FakeJob) -> None:
    """As many hanging operations as are allowed: status still answers, one more operation is put off with 503."""
    job.hold = threading.Event()
    hanging = [
        threading.Thread(
            target=httpx.post, args=(f"{url}/v1/checkpoints",), kwargs={"headers": dict(http.headers), "timeout": 30}, daemon=True
        )
    ]
    hanging[0].start()
    assert job.entered.wait(20)
    for _ in range(7):
        assert http.post("/v1/checkpoints", params={"wait": "false"}).status_code == 202
    refused = http.post("/v1/checkpoints", params={"wait": "false"})
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")
    assert http.get("/v1/status").status_code == 200
    job.hold.set()
    hanging[0].join(20)
    assert not hanging[0].is_alive()


def test_the_document_is_valid_openapi_and_complete(http: httpx.Client) -> None:
    """Valid by the standard's own schema; every operation is described, secured (but health) and says how it refuses."""
    document = http.get("/openapi.json").json()
    validate(document)
    scheme = document["components"]["securitySchemes"]["HTTPBearer"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], path
            if path in {"/healthz", "/readyz"}:
                assert "security" not in operation
                continue
            assert operation["security"] == [{"HTTPBearer": []}]
            if path.startswith("/v1/"):
                assert "401" in operation["responses"], path
            if method == "post":
                assert {"200", "202", "400", "401", "409", "422", "500", "503"} <= set(operation["responses"])
    for name, schema in document["components"]["schemas"].items():
        assert schema.get("description"), name
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_pages_load_nothing_from_elsewhere(http: httpx.Client) -> None:
    """Status page and reference work on an island, and name every route."""
    for path in ("/", "/docs"):
        response = http.get(path)
        assert response.status_code == 200
        for outside in ("http://", "https://", "src=", "@import", "url("):
            assert outside not in response.text.replace("http://host", ""), (path, outside)
        assert "default-src 'none'" in response.headers["Content-Security-Policy"]
    assert "/v1/savepoints" in http.get("/docs").text
