"""kubectl in one namespace, against the cluster that KUBECONFIG names."""

from __future__ import annotations

import collections
import json
import logging
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from e2e.harness.timeouts import COMMAND_S, POLL_S

Seen = TypeVar("Seen")
_log = logging.getLogger("e2e")
_log.setLevel(logging.INFO)


def wait_for(what: str, seconds: float, look: Callable[[], Seen | None], told: Callable[[], object] = lambda: "") -> Seen:
    """Look until something is seen.

    Args:
        what: is waited for, for the error.
        seconds: it may take.
        look: returns what is seen, None or something false while it is not there.
        told: what to say of the state of things when time is up.

    Raises:
        AssertionError: it was not seen in time.
    """
    begun = time.monotonic()
    while True:
        seen = look()
        if seen:
            _log.info("%5.1f s: %s", time.monotonic() - begun, what)
            return seen
        if time.monotonic() - begun > seconds:
            raise AssertionError(f"not seen within {seconds:g} s: {what}. {told()}")
        time.sleep(POLL_S)


class Kubectl:
    """kubectl in one namespace."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace

    def command(self, *arguments: str) -> list[str]:
        """The command line of kubectl."""
        return ["kubectl", "--namespace", self.namespace, *arguments]

    def run(self, *arguments: str, given: object = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl; ``given`` becomes its standard input, as JSON."""
        return subprocess.run(
            self.command(*arguments),
            input=None if given is None else json.dumps(given),
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )

    def ok(self, *arguments: str, given: object = None) -> str:
        """Run kubectl and return what it says.

        Raises:
            AssertionError: it failed; with what it said.
        """
        done = self.run(*arguments, given=given)
        if done.returncode != 0:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def get(self, *arguments: str) -> Any:
        """Get one object or a list, as JSON."""
        return json.loads(self.ok("get", *arguments, "-o", "json"))

    def find(self, kind: str, name: str) -> Any | None:
        """Get one object, None when there is none."""
        text = self.ok("get", kind, name, "--ignore-not-found", "-o", "json")
        return json.loads(text) if text.strip() else None

    def items(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        """All objects of a kind that a label selector takes."""
        return list(self.get(kind, "--selector", selector)["items"])

    def apply(self, document: object) -> None:
        """Apply an object as a person would; API servers before 1.25 do not know all that schemas may say."""
        self.ok("apply", "--validate=false", "-f", "-", given=document)

    def create_namespace(self, labels: dict[str, str] | None = None) -> None:
        """Make the namespace anew."""
        self.delete_namespace()
        # API servers set this label themselves from 1.21 on; the chart's webhook selects namespaces by it.
        metadata = {"name": self.namespace, "labels": {"kubernetes.io/metadata.name": self.namespace, **(labels or {})}}
        self.ok("create", "-f", "-", given={"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    def delete_namespace(self, *, wait: bool = True) -> None:
        """Delete it with all that is in it."""
        self.ok("delete", "namespace", self.namespace, "--ignore-not-found", f"--wait={str(wait).lower()}")

    @contextmanager
    def forwarded(self, target: str, port: int) -> Iterator[int]:
        """A port of this machine that leads to one of a service or pod while the context lasts."""
        with subprocess.Popen(
            self.command("port-forward", "--address=127.0.0.1", target, f":{port}"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                line = process.stdout.readline() if process.stdout else ""
                if "->" not in line:
                    raise AssertionError(f"kubectl port-forward {target}: {line}")
                # It writes a line for each connection, and waits while nobody reads them.
                threading.Thread(target=collections.deque, args=(process.stdout, 0), daemon=True).start()
                yield int(line.split("->")[0].rstrip().rsplit(":", 1)[1])
            finally:
                process.terminate()
