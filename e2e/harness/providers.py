"""Where the tests find a cluster: kind, one that is there, or the one-node cluster that a script on this machine brings up.

Whoever starts the tests (`python -m e2e`) chooses one, brings it up and runs pytest within it; pytest finds it again in its environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from pytest_kind import KindCluster

from e2e.harness.timeouts import BUILD_S, CLUSTER_UP_S, LOAD_S

ROOT: Final = Path(__file__).resolve().parents[2]
PROVIDER: Final = "STATEFULSPARK_E2E_PROVIDER"
"""Tells pytest which provider it was started within."""
SCRIPT: Final = "STATEFULSPARK_TEST_CLUSTER"
"""Path of the script ``cluster``: up, base, build, load, run, down."""
REGISTRY: Final = "STATEFULSPARK_E2E_REGISTRY"
"""Prefix of the images that an existing cluster pulls, for example registry.example/e2e."""
KIND_NAME: Final = "statefulspark-e2e"
BASE: Final = "python:3.11-slim-bookworm"
NONE: Final = (
    "end-to-end tests need a cluster: install Docker and kind; or set KUBECONFIG to one that may be broken, and "
    f"{REGISTRY} to a registry that it pulls from; or set {SCRIPT} to the script that brings one up. Then run make e2e"
)


class Provider(Protocol):
    """A cluster that may be broken."""

    name: str
    prefix: str
    """Of image names; the cluster must not look for them anywhere else."""

    def up(self) -> bool:
        """Bring it up; returns whether that was needed, and so whether to take it down."""
        ...

    def down(self) -> None:
        """Take it down."""
        ...

    def environment(self) -> dict[str, str]:
        """Variables of what runs within it."""
        ...

    def within(self, command: Sequence[str]) -> list[str]:
        """The command that runs another where the cluster's addresses are reachable."""
        ...

    def base_image(self) -> str:
        """The image that the Dockerfile starts from."""
        ...

    def build(self, tag: str, context: Path, *more: str) -> None:
        """Build an image."""
        ...

    def load(self, tag: str) -> None:
        """Make an image known to the cluster."""
        ...


class Script:
    """The cluster of a script: one real node on this machine, without a registry."""

    name = "script"
    prefix = "localhost/"

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def up(self) -> bool:
        done = self._try_up()
        if done.returncode:
            # A run that was killed leaves namespaces and mounts behind, at which the script's `up` stops and which its `down` removes.
            self.down()
            done = self._try_up()
        if done.returncode:
            raise RuntimeError(f"{self._path} up: {done.stderr}")
        # Debian's packages come over this machine's network, which what runs within the cluster's does not reach.
        self.base_image()
        # It gives its cluster no way from the API server to services; webhooks take that way.
        subprocess.run([self._path, "run", "ip", "route", "replace", "10.96.0.0/16", "dev", "node0"], timeout=CLUSTER_UP_S, check=False)
        return "already up" not in done.stderr

    def _try_up(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self._path, "up"], stderr=subprocess.PIPE, text=True, timeout=CLUSTER_UP_S, check=False)

    def down(self) -> None:
        subprocess.run([self._path, "down"], timeout=CLUSTER_UP_S, check=False)
        # A killed run may leave no mounts: then `down` ends before it removes its network namespace, and every later `up` stops at that.
        subprocess.run(["ip", "netns", "delete", "tcluster"], stderr=subprocess.DEVNULL, check=False)

    def environment(self) -> dict[str, str]:
        return {SCRIPT: self._path}

    def within(self, command: Sequence[str]) -> list[str]:
        return [self._path, "run", *command]

    def base_image(self) -> str:
        base = f"{self.prefix}{BASE}"
        subprocess.run([self._path, "base", base], timeout=BUILD_S, check=True)
        return base

    def build(self, tag: str, context: Path, *more: str) -> None:
        subprocess.run([self._path, "build", tag, str(context), "--quiet", *more], timeout=BUILD_S, check=True, stdout=subprocess.DEVNULL)

    def load(self, tag: str) -> None:
        subprocess.run([self._path, "load", tag], timeout=LOAD_S, check=True)


class Docker:
    """Images are built by the Docker engine of this machine, whatever runs them."""

    prefix = "localhost/"

    def base_image(self) -> str:
        return BASE

    def build(self, tag: str, context: Path, *more: str) -> None:
        subprocess.run(
            ["docker", "build", "--quiet", "--tag", tag, *more, str(context)], timeout=BUILD_S, check=True, stdout=subprocess.DEVNULL
        )

    def within(self, command: Sequence[str]) -> list[str]:
        return list(command)

    def down(self) -> None:
        """Leave it as it is."""


class Kind(Docker):
    """A kind cluster by pytest-kind, which stays for the next run when it was there before."""

    name = "kind"

    def __init__(self) -> None:
        kind, kubectl = shutil.which("kind"), shutil.which("kubectl")
        self._cluster = KindCluster(KIND_NAME, kind_path=Path(kind) if kind else None, kubectl_path=Path(kubectl) if kubectl else None)

    def up(self) -> bool:
        there = subprocess.run(["kind", "get", "clusters"], capture_output=True, text=True, timeout=CLUSTER_UP_S, check=True).stdout.split()
        self._cluster.create()
        return KIND_NAME not in there

    def down(self) -> None:
        self._cluster.delete()

    def environment(self) -> dict[str, str]:
        return {"KUBECONFIG": str(Path(self._cluster.kubeconfig_path).resolve())}

    def load(self, tag: str) -> None:
        self._cluster.load_docker_image(tag)


class Existing(Docker):
    """The cluster of KUBECONFIG, which pulls from a registry."""

    name = "kubeconfig"

    def __init__(self, kubeconfig: str, registry: str) -> None:
        self._kubeconfig = kubeconfig
        self.prefix = f"{registry.rstrip('/')}/"

    def up(self) -> bool:
        return False

    def environment(self) -> dict[str, str]:
        return {"KUBECONFIG": self._kubeconfig, REGISTRY: self.prefix}

    def load(self, tag: str) -> None:
        subprocess.run(["docker", "push", "--quiet", tag], timeout=LOAD_S, check=True, stdout=subprocess.DEVNULL)


def choose(environ: Mapping[str, str] = os.environ) -> Provider | None:
    """The provider that the environment names, or that this machine has; None when there is none."""
    named = environ.get(PROVIDER)
    if named in {None, "script"} and environ.get(SCRIPT):
        return Script(Path(environ[SCRIPT]).resolve())
    if named in {None, "kubeconfig"} and environ.get("KUBECONFIG") and environ.get(REGISTRY) and shutil.which("docker"):
        return Existing(environ["KUBECONFIG"], environ[REGISTRY])
    if named in {None, "kind"} and shutil.which("docker") and shutil.which("kind"):
        return Kind()
    return None
