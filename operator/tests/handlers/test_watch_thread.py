"""kopf itself against an API server of a few lines: namespaces that are refused, kopf that gives up, and the end of the process."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from statefulspark_operator.handlers import watch_thread as module
from statefulspark_operator.handlers.watch_health import WatchHealth
from statefulspark_operator.handlers.watch_thread import WatchThread, response_to
from statefulspark_operator.handlers.watches import WATCHED

OPEN, SHUT = "open", "shut"


class Server:
    """Lists and watches; ``refused`` maps a namespace to the status with which everything in it is answered."""

    def __init__(self) -> None:
        self.refused: dict[str, int] = {}
        self.jobs: dict[str, list[str]] = {OPEN: ["one"], SHUT: ["two"]}
        self.lists = 0
        self.refusals = 0
        self._ended = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        parts = request.path.strip("/").split("/")
        if parts in (["api"], ["apis"]):
            return web.json_response({"versions": ["v1"]} if parts == ["api"] else {"groups": _groups()})
        if "namespaces" not in parts:
            return web.json_response({"resources": _resources("" if parts[0] == "api" else parts[1])})
        namespace, plural = parts[-2:]
        if namespace in self.refused:
            code = self.refused[namespace]
            self.refusals += 1
            return web.json_response({"kind": "Status", "code": code, "message": "refused"}, status=code)
        if "watch" in request.query:
            return await self._watch(request)
        self.lists += 1
        items = [_job(namespace, name) for name in self.jobs[namespace]] if plural == "statefulsparkjobs" else []
        return web.json_response({"kind": "List", "items": items, "metadata": {"resourceVersion": "1"}})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(json.dumps({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "1"}}}).encode() + b"\n")
        await self._ended.wait()
        return response

    @contextlib.asynccontextmanager
    async def serving(self, kubeconfig: Path) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_get("/{path:.*}", self.answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        kubeconfig.write_text(  # noqa: ASYNC240  a test's few bytes
            yaml.safe_dump(
                {
                    "current-context": "x",
                    "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
                    "clusters": [{"name": "x", "cluster": {"server": url}}],
                    "users": [{"name": "x", "user": {"token": "t"}}],
                }
            )
        )
        try:
            yield
        finally:
            self._ended.set()
            await runner.cleanup()


SERVED = [
    *WATCHED,
    ("", "v1", "namespaces", "Namespace"),
    ("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition"),
]
"""kopf waits for the last two."""


def _groups() -> list[dict[str, Any]]:
    versions = {group: version for group, version, _, _ in SERVED if group}
    return [
        {"name": group, "preferredVersion": {"version": version}, "versions": [{"version": version}]} for group, version in versions.items()
    ]


def _resources(group: str) -> list[dict[str, Any]]:
    return [
        {"name": plural, "kind": kind, "namespaced": True, "singularName": kind.lower(), "verbs": ["get", "list", "watch"]}
        for of, _, plural, kind in SERVED
        if of == group
    ]


def _job(namespace: str, name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}", "resourceVersion": "1"}, "spec": {}}


class World:
    """A server, and an operator's loop that watches it."""

    def __init__(self) -> None:
        self.server = Server()
        self.heard: list[tuple[str, str]] = []
        self.changed: list[tuple[str | None, bool]] = []
        self.relisted: list[tuple[str | None, str]] = []
        self.watch_health = WatchHealth(
            changed=lambda namespace, watched: self.changed.append((namespace, watched)),
            relisted=lambda namespace, plural: self.relisted.append((namespace, plural)),
        )
        self.watching = WatchThread((OPEN, SHUT), on_event=self._on_event, watch_health=self.watch_health)

    def _on_event(self, tree: dict[str, Any], gone: bool) -> None:
        self.heard.append((tree["metadata"]["namespace"], tree["metadata"]["name"]))

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not holds():  # noqa: ASYNC110  what it waits for happens in many places
                await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def watched(world: World, folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    kubeconfig = folder / "kubeconfig"
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    monkeypatch.setattr(module, "_RESTART_S", 0.1)
    monkeypatch.setattr(module, "_LOGIN_S", 0.0)
    monkeypatch.setattr(module, "_BACKOFFS_S", (0.05,))
    monkeypatch.setattr(module, "_BACKOFF_MAX_S", 0.1)
    async with world.server.serving(kubeconfig):
        task = asyncio.create_task(world.watching.run())
        try:
            yield
        finally:
            task.cancel()
            async with asyncio.timeout(20):
                with contextlib.suppress(asyncio.CancelledError):
                    await task


def test_a_refused_namespace_concerns_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For longer than kopf has patience by itself; when it is let in again, its objects arrive, and nobody had to start anew."""

    async def run() -> None:
        world = World()
        world.server.refused = {SHUT: 403}
        async with watched(world, tmp_path, monkeypatch):
            await world.until(lambda: (OPEN, "one") in world.heard and world.watch_health.lost(SHUT))
            assert not world.watch_health.lost(OPEN)
            assert world.watching.is_ready()
            assert world.watching.problem() is None
            (note,) = world.watch_health.notes()
            assert note.startswith(f"namespace {SHUT} has not been watched for ")
            await world.until(lambda: world.server.refusals > 12 * len(WATCHED))  # kopf would give up at the ninth of one watch
            assert world.watch_health.lost(SHUT)
            lists = world.server.lists
            world.server.refused = {}
            await world.until(lambda: (SHUT, "two") in world.heard and not world.watch_health.lost(SHUT))
            assert world.changed == [(SHUT, False), (SHUT, True)]
            assert world.server.lists - lists == len(WATCHED), "only what was refused was listed"
            assert not world.relisted
            assert not world.watch_health.notes()

    asyncio.run(run())


def test_kopf_that_gives_up_is_started_again_and_takes_nothing_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A 404 ends it. Tasks of the operator go on, and everything is listed anew, so that what was missed is made up for."""

    async def run() -> None:
        world = World()
        world.server.refused = {SHUT: 404}
        async with watched(world, tmp_path, monkeypatch):
            await world.until(lambda: world.watch_health.lost(SHUT))
            bystander = asyncio.create_task(asyncio.sleep(60))
            await world.until(lambda: world.heard.count((OPEN, "one")) >= 2)
            world.server.refused = {}
            await world.until(lambda: (SHUT, "two") in world.heard)
            assert (OPEN, "statefulsparkjobs") in world.relisted
            assert not bystander.done()
            bystander.cancel()

    asyncio.run(run())


def test_requests_that_are_not_for_objects_say_nothing_of_watches() -> None:
    """Discovery is asked for too."""
    assert response_to("/apis", listing=True, code=200) is None
    assert response_to("/apis/statefulspark.io/v1alpha1", listing=True, code=200) is None
    for path, namespace in (("/api/v1/namespaces/shop/pods", "shop"), ("/api/v1/pods", None)):
        answer = response_to(path, listing=True, code=200)
        assert answer is not None
        assert (answer.namespace, answer.plural) == (namespace, "pods")
