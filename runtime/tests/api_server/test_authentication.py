"""Only the health probes answer without the token, whatever route exists now or is added later."""

from __future__ import annotations

import re

import httpx
from fastapi.routing import APIRoute
from runtime.tests.api_server.conftest import TOKEN
from runtime.tests.api_server.fake_job import FakeJob

from statefulspark.api_server.api import create_app

OPEN = {"/healthz", "/readyz"}


def endpoints() -> list[tuple[str, str]]:
    """Every (method, path) that the application routes, found on the application itself."""
    document = create_app(FakeJob(), token=TOKEN, clock_ms=lambda: 0).openapi()
    return [(method.upper(), re.sub(r"\{.*?\}", "x", path)) for path, methods in document["paths"].items() for method in methods]


def test_the_list_of_endpoints_is_complete() -> None:
    """No route hides from the document by which the other tests find them."""
    app = create_app(FakeJob(), token=TOKEN, clock_ms=lambda: 0)

    def leaves(routes: list[object]) -> set[str]:
        found: set[str] = set()
        for route in routes:
            inner = getattr(getattr(route, "original_router", route), "routes", None)
            if inner is not None:
                found |= leaves(inner)
            else:
                assert isinstance(route, APIRoute), route
                assert route.include_in_schema
                found.add(route.path)
        return found

    assert leaves(list(app.routes)) == set(app.openapi()["paths"])
    assert {"/v1/status", "/v1/rescale", "/metrics", "/", "/docs", "/openapi.json"} <= set(app.openapi()["paths"])


WRONG = [None, "", "Bearer", "Bearer wrong-token-wrong-token-wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}"]


def test_without_the_token_nothing_but_health_answers(anonymous: httpx.Client, job: FakeJob) -> None:
    """401 with a challenge on every route, for every kind of wrong credentials; the job is not even asked."""
    closed = 0
    for method, path in endpoints():
        for authorization in WRONG:
            headers = {} if authorization is None else {"Authorization": authorization}
            response = anonymous.request(method, path, headers=headers)
            if path in OPEN:
                assert response.status_code == 200
                continue
            assert response.status_code == 401, (method, path, authorization)
            assert response.headers["WWW-Authenticate"].startswith("Bearer")
            assert response.json()["error"]["reason"] == "Unauthorized"
            closed += 1
    assert closed >= 10 * len(WRONG)
    assert job.calls == []


def test_unknown_and_disguised_paths_are_closed(anonymous: httpx.Client) -> None:
    """Who has no token does not even learn which paths exist."""
    for path in ("/nowhere", "/v1", "/healthz/", "//healthz", "/healthz/../v1/status", "/HEALTHZ", "/readyz%2f..%2fv1%2fstatus"):
        assert anonymous.get(path).status_code == 401, path


def test_two_authorization_headers_are_refused(anonymous: httpx.Client) -> None:
    """A proxy in front and this server must not read different ones."""
    response = anonymous.get(
        "/v1/status", headers=[("Authorization", f"Bearer {TOKEN}"), ("Authorization", "Bearer other-token-other-token")]
    )
    assert response.status_code == 401


def test_the_token_opens(anonymous: httpx.Client) -> None:
    """The scheme's name is not case-sensitive (RFC 9110)."""
    for scheme in ("Bearer", "bearer", "BEARER"):
        assert anonymous.get("/v1/status", headers={"Authorization": f"{scheme} {TOKEN}"}).status_code == 200


def test_a_browser_gets_the_login_form_without_data(anonymous: httpx.Client, job: FakeJob) -> None:
    """The page's own shell is no secret, but it comes as a refusal and says nothing about the job."""
    response = anonymous.get("/", headers={"Accept": "text/html,*/*"})
    assert response.status_code == 401
    assert response.headers["Content-Type"].startswith("text/html")
    assert "script-src 'sha256-" in response.headers["Content-Security-Policy"]
    assert job.status().name not in response.text
    assert anonymous.get("/v1/status", headers={"Accept": "text/html"}).headers["Content-Type"] == "application/json"


def test_answers_are_not_cached_or_framed(http: httpx.Client, anonymous: httpx.Client) -> None:
    """With and without the token."""
    for response in (http.get("/v1/status"), anonymous.get("/v1/status"), http.get("/")):
        assert response.headers["Cache-Control"] == "no-store"
        assert response.headers["X-Frame-Options"] == "DENY"
