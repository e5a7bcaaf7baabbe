"""What is kept of a test that failed: objects, events and logs of its namespace and of the operator's, in out/e2e/<test>."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from e2e.harness.kubectl import Kubectl

KINDS: Final = ("statefulsparkjobs", "statesnapshots", "pods", "events", "configmaps", "services", "leases", "deployments")


def keep(folder: Path, *namespaces: Kubectl) -> None:
    """Write down all that tells why; whatever cannot be had says so in its file."""
    folder.mkdir(parents=True, exist_ok=True)
    for kubectl in namespaces:
        for kind in KINDS:
            done = kubectl.run("get", kind, "-o", "yaml")
            (folder / f"{kubectl.namespace}-{kind}.yaml").write_text(done.stdout or done.stderr)
        for pod in kubectl.run("get", "pods", "-o", "name").stdout.split():
            name = f"{kubectl.namespace}-{pod.removeprefix('pod/')}"
            (folder / f"{name}.log").write_text(_log(kubectl, pod))
            if before := _log(kubectl, pod, "--previous"):
                (folder / f"{name}.before.log").write_text(before)


def _log(kubectl: Kubectl, pod: str, *more: str) -> str:
    done = kubectl.run("logs", pod, "--all-containers", *more)
    return done.stdout or ("" if more else done.stderr)
