"""The end of the operator's process."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from statefulspark_operator.settings import PREFIX
from tests.handlers.operators import free_port

HANGS = """
import asyncio, os, signal, threading
from statefulspark_operator import process
process._END_S = 0.3
async def main():
    stop = process._stop_signal()
    os.kill(os.getpid(), signal.SIGTERM)
    await stop.wait()
    await asyncio.to_thread(threading.Event().wait)
asyncio.run(main())
"""


def test_a_thread_that_hangs_does_not_keep_the_process() -> None:
    """Kubernetes would kill it after 30 s, with a Lease that was given back and connections that were not."""
    done = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@contextlib.contextmanager
def kubeconfig_of_an_empty_cluster(folder: Path) -> Iterator[Path]:
    """A kubeconfig of an API server that has no objects but those that are created in it."""
    objects: dict[str, bytes] = {}

    class ApiServer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(objects.get(urlsplit(self.path).path))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            metadata = {"resourceVersion": "1", "uid": "u"} | json.loads(body)["metadata"]
            made = json.dumps(json.loads(body) | {"metadata": metadata}).encode()
            objects[f"{urlsplit(self.path).path}/{metadata['name']}"] = made
            self.answer(made)

        def do_PUT(self) -> None:
            self.answer(self.rfile.read(int(self.headers["content-length"])))

        def answer(self, found: bytes | None) -> None:
            body = found or b'{"kind":"Status","apiVersion":"v1","code":404,"reason":"NotFound"}'
            self.send_response(404 if found is None else 200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  as the base class has it
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), ApiServer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        path = folder / "kubeconfig"
        cluster = {"name": "empty", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
        context = {"name": "empty", "context": {"cluster": "empty", "user": "nobody"}}
        users = [{"name": "nobody", "user": {"token": "none"}}]
        path.write_text(
            yaml.safe_dump({"clusters": [cluster], "contexts": [context], "users": users, "current-context": "empty", "kind": "Config"})
        )
        try:
            yield path
        finally:
            server.shutdown()


@pytest.mark.parametrize("name", ["health", "metrics"])
def test_a_taken_port_ends_the_process_with_an_error_that_names_the_setting(name: str, tmp_path: Path) -> None:
    """Uvicorn would end one task only, and the operator would hold the Lease without probes or metrics."""
    with socket.socket() as taken, kubeconfig_of_an_empty_cluster(tmp_path) as kubeconfig:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        ports = {"health": free_port(), "metrics": free_port(), name: taken.getsockname()[1]}
        given = {"NAMESPACE": "operators", "POD_NAME": "test-0", "WEBHOOK_ENABLED": "false", "LOG_FORMAT": "text", "CANARY": "false"}
        given |= {f"{each.upper()}_PORT": str(port) for each, port in ports.items()}
        done = subprocess.run(
            [sys.executable, "-m", "statefulspark_operator"],
            env=os.environ | {PREFIX + key: value for key, value in given.items()} | {"KUBECONFIG": str(kubeconfig)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert f"{name}_port: cannot listen on port {ports[name]}: Address already in use" in done.stderr
    assert f"set {PREFIX}{name.upper()}_PORT to a free one" in done.stderr
    assert "never retrieved" not in done.stderr
