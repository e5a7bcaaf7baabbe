"""The state of a running job, over HTTP and as a person types it."""

from __future__ import annotations

import json

import httpx
import pytest
from runtime.tests.api_server.conftest import TOKEN
from runtime.tests.api_server.fake_job import FakeJob
from typer.testing import CliRunner, Result

from statefulspark.cli.main import build_app
from statefulspark.coordinator.query.queried_state import StateQuery
from statefulspark.errors import ClosedError, InvalidInputError, UnavailableError


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (InvalidInputError("uid 'orders' has no state 'x'", field="state", remedy="Use one of: cart."), 400, "Use one of: cart"),
        (UnavailableError("slot 1 is restoring its state", retry_after_s=2), 503, "restoring"),
        (ClosedError("the job has ended"), 409, "ended"),
    ],
)
def test_refusals_say_what_to_do(http: httpx.Client, job: FakeJob, error: Exception, status: int, text: str) -> None:
    """With the status that tells whether to try again."""
    job.queries.failure = error
    refused = http.get("/v1/state/entries", params={"uid": "orders", "state": "x", "key": "ada"})
    assert (refused.status_code, text in refused.json()["error"]["message"]) == (status, True)
    assert refused.headers.get("Retry-After") == ("2" if status == 503 else None)


def test_only_the_token_reads_state(anonymous: httpx.Client, job: FakeJob) -> None:
    """Nothing is asked of the job otherwise."""
    for path in ("/v1/state", "/v1/state/entries?uid=orders&state=cart&key=ada"):
        assert anonymous.get(path).status_code == 401
    assert job.queries.asked == []


def test_an_entry_is_answered_with_its_type_and_place(http: httpx.Client, job: FakeJob) -> None:
    """And the question arrives as it was asked; limits out of bounds do not."""
    given = {"uid": "orders", "state": "cart", "key": '["a/b", 1]', "map_key": "p&n", "limit": "7"}
    answer = http.get("/v1/state/entries", params=given).json()
    assert job.queries.asked == [StateQuery(uid="orders", state="cart", key='["a/b", 1]', map_key="p&n", limit=7)]
    assert answer["state"]["type"] == "MAP(STRING, LONG)"
    assert (answer["slot"], answer["committed"], answer["next"]) == (1, 41, "cGVu")
    assert [(entry["map_key"], entry["value"]) for entry in answer["entries"]] == [("p&n", 3)]
    assert http.get("/v1/state/entries", params=given | {"limit": "1001"}).status_code == 422


def cli(url: str, *arguments: str) -> Result:
    environment = {"COLUMNS": "200", "STATEFULSPARK_API_TOKEN": TOKEN}
    return CliRunner().invoke(build_app(), ["state", "--job", url, *arguments], env=environment)


def test_the_command_shows_states_and_single_keys(url: str) -> None:
    """As JSON and as tables; what is left out goes to stderr."""
    states = json.loads(cli(url, "-o", "json").stdout)["states"]
    assert [(each["uid"], each["state"], each["key_type"], each["ttl_ms"]) for each in states] == [("orders", "cart", "STRING", 60000)]
    shown = cli(url, "--uid", "orders", "--state", "cart", "--key", "ada")
    assert shown.exit_code == 0, shown.output
    assert "after batch 41" in shown.stdout
    assert "pen" in shown.stdout
    assert "continue with --after cGVu" in shown.stderr
    entries = json.loads(cli(url, "--uid", "orders", "--state", "cart", "--key", "nobody", "-o", "json").stdout)["entries"]
    assert entries == []


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("PATH",), "PATH"),
        (("--unpickle",), "--unpickle"),
        (("--uid", "orders", "--state", "cart"), "--key"),
        (("--state", "cart", "--key", "ada"), "--uid"),
        (("--key", "ada"), "--state"),
        (("--uid", "other"), "orders"),
    ],
)
def test_the_command_refuses_what_does_not_fit_a_running_job(url: str, arguments: tuple[str, ...], names: str) -> None:
    """By name, with the remedy."""
    refused = cli(url, *arguments)
    assert refused.exit_code != 0
    assert names in refused.output
