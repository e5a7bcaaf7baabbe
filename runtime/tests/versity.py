"""A second S3 server that shares no code with moto: Versity S3 Gateway, in Go, on a folder. `make versity` installs it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from runtime.tests.s3_server import BUCKET

ROOT = Path(__file__).parents[2]
USER = "versity-user"
SECRET = "versity-secret"  # of a server on loopback


def versity_program() -> Path:
    """The program; the test is skipped where it is not installed."""
    found = ROOT / "out" / "tools" / "versitygw"
    if found.is_file():
        return found
    on_path = shutil.which("versitygw")
    if on_path is None:
        pytest.skip("versitygw is not installed: run `make versity` (needs Go)")
    return Path(on_path)


@dataclass(kw_only=True)
class Versity:
    """The server, with the empty bucket ``bucket``. It can be killed and started again on the same folder and port."""

    program: Path
    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def endpoint(self) -> str:
        """URL of the service."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it listens."""
        (self.folder / BUCKET).mkdir(parents=True, exist_ok=True)
        environment = {"PATH": os.environ["PATH"], "ROOT_ACCESS_KEY": USER, "ROOT_SECRET_KEY": SECRET}
        command = [str(self.program), "--quiet", "--port", f"127.0.0.1:{self.port}", "posix", str(self.folder)]
        with (self.folder.parent / "versity.log").open("ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        deadline_s = time.monotonic() + 60
        while time.monotonic() < deadline_s:
            assert self.process.poll() is None, (self.folder.parent / "versity.log").read_text()
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise AssertionError("versitygw does not listen")

    def kill(self) -> None:
        """As `kill -9` does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@contextmanager
def versity_server(folder: Path) -> Iterator[Versity]:
    """Serve until the end of the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = Versity(program=versity_program(), folder=folder / "data", port=port)
    server.start()
    try:
        yield server
    finally:
        server.kill()
