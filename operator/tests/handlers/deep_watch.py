"""Run as a process: kopf watches an API server that lists and streams deep objects among others, and what is heard is printed as it comes."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from aiohttp import web

from statefulspark_operator.__main__ import LEVELS
from statefulspark_operator.handlers.watch_health import WatchHealth
from statefulspark_operator.handlers.watch_thread import WatchThread
from statefulspark_operator.handlers.watches import WATCHED

DEPTH = 9_900
"""An API server takes 10000."""
LISTED, STREAMED = ("first", "deep-listed", "second"), ("third", "deep-streamed", "fourth")
_DISCOVERED = (
    *WATCHED,
    ("", "v1", "namespaces", "Namespace"),
    ("", "v1", "events", "Event"),
    ("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition"),
)
"""kopf waits for the last three, whether it uses them or not."""


def job(name: str, version: int) -> str:
    """A job as JSON; text, since a deep one cannot be made in any other way at Python's own limit."""
    template = '{"a":' * DEPTH + "1" + "}" * DEPTH if name.startswith("deep") else "{}"
    metadata = {"name": name, "namespace": "shop", "uid": name, "resourceVersion": str(version)}
    head = {"apiVersion": "statefulspark.io/v1alpha1", "kind": "StatefulSparkJob", "metadata": metadata}
    return f'{json.dumps(head)[:-1]}, "spec": {{"driver": {{"podTemplate": {{"spec": {template}}}}}}}}}'


def discovery(parts: list[str]) -> web.Response | None:
    """The answer to a question about API versions; None if it is about objects."""
    if parts == ["api"]:
        return web.json_response({"versions": ["v1"]})
    if parts == ["apis"]:
        versions = {(group, version) for group, version, _, _ in _DISCOVERED if group}
        groups = [{"name": group, "preferredVersion": {"version": each}, "versions": [{"version": each}]} for group, each in versions]
        return web.json_response({"groups": groups})
    asked = ("", parts[1]) if parts[0] == "api" else tuple(parts[1:])
    if len(asked) != 2 or len(parts) > 3:
        return None
    found = [(plural, kind) for group, version, plural, kind in _DISCOVERED if (group, version) == asked]
    verbs = ["get", "list", "watch", "patch"]
    named = [{"name": plural, "kind": kind, "namespaced": True, "verbs": verbs, "singularName": kind.lower()} for plural, kind in found]
    return web.json_response({"resources": named})


async def answer(request: web.Request) -> web.StreamResponse:
    """An API server with nothing but jobs."""
    if (described := discovery(request.path.strip("/").split("/"))) is not None:
        return described
    jobs = request.path.endswith("/statefulsparkjobs")
    if not request.query.get("watch"):
        items = ",".join(job(name, 1) for name in LISTED) if jobs else ""
        text = f'{{"kind": "List", "apiVersion": "v1", "metadata": {{"resourceVersion": "1"}}, "items": [{items}]}}'
        return web.Response(text=text, content_type="application/json")
    stream = web.StreamResponse()
    await stream.prepare(request)
    for number, name in enumerate(STREAMED if jobs else ()):
        await stream.write(f'{{"type": "ADDED", "object": {job(name, 2 + number)}}}\n'.encode())
    await asyncio.Event().wait()
    return stream


def on_event(tree: Any, _gone: bool) -> None:
    """Print a name."""
    sys.stdout.write(f"{tree['metadata']['name']}\n")
    sys.stdout.flush()


async def main(folder: Path) -> None:
    """Watch until killed."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}], "users": [{"name": "c", "user": {"token": "t"}}],
    }  # fmt: skip
    (folder / "kubeconfig").write_text(json.dumps(config))
    os.environ["KUBECONFIG"] = str(folder / "kubeconfig")
    watch_health = WatchHealth(changed=lambda *_: None, relisted=lambda *_: None)
    await WatchThread(("shop",), on_event=on_event, watch_health=watch_health).run()


if __name__ == "__main__":
    sys.setrecursionlimit(LEVELS)
    asyncio.run(main(Path(sys.argv[1])))
