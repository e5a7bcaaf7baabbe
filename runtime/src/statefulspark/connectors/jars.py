"""Jars from Maven Central, each checked against the SHA-256 of a lock file. Standard library only: the image build runs this file as a script.

    python jars.py LOCK FOLDER    # fetches the jars of the lock file LOCK that FOLDER lacks

STATEFULSPARK_MAVEN names another repository: a URL, or a folder with Maven's layout for machines without a network.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

CENTRAL: Final = "https://repo1.maven.org/maven2"
REPOSITORY_VARIABLE: Final = "STATEFULSPARK_MAVEN"

_TRIES: Final = 4
_PAUSE_S: Final = 1.0
_ANSWER_S: Final = 30.0
_JAR_S: Final = 600.0
_BYTES_MAX: Final = 1 << 30
_CHUNK_BYTES: Final = 1 << 20


class FetchError(Exception):
    """A jar could not be fetched; the text names it and its repository."""


class ChecksumError(FetchError):
    """A repository has another file under the jar's name."""


@dataclass(frozen=True, slots=True)
class Jar:
    """A jar of a lock file."""

    path: str
    """Its path in a Maven repository."""
    sha256: str

    @property
    def name(self) -> str:
        """Name of the file."""
        return self.path.rpartition("/")[2]


def read_lock(lock: Path) -> list[Jar]:
    """Returns the jars that a lock file names: one per line, checksum and path."""
    lines = (line.split() for line in lock.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#"))
    return [Jar(path, sha256) for sha256, path in lines]


def missing_jars(jars: list[Jar], folder: Path) -> list[Jar]:
    """Returns the jars that ``folder`` lacks. A file has its name only once its checksum was right, so present files are not read."""
    return [jar for jar in jars if not (folder / jar.name).is_file()]


def repository_url(given: str | None) -> str:
    """URL of a Maven repository that is given by a URL or a folder. Defaults to Maven Central."""
    chosen = given or CENTRAL
    return (chosen if "://" in chosen else Path(chosen).resolve().as_uri()).rstrip("/")


def fetch_jars(jars: list[Jar], folder: Path, report: Callable[[str], None], *, source: str = CENTRAL, pause_s: float = _PAUSE_S) -> None:
    """Fetches the jars that ``folder`` lacks. Several processes may do so at a time.

    Args:
        jars: All jars that the folder shall have.
        folder: Created if it does not exist.
        report: Receives a line per jar.
        source: URL of the repository.
        pause_s: Time before the second try of a jar; doubled before each further one.

    Raises:
        FetchError: The repository did not answer, or has another file.
        OSError: The folder cannot be written.
    """
    missing = missing_jars(jars, folder)
    for number, jar in enumerate(missing, 1):
        size_bytes = fetch_jar(f"{source}/{jar.path}", folder / jar.name, jar.sha256, pause_s=pause_s)
        report(f"[{number}/{len(missing)}] {jar.name} ({size_bytes / 2**20:.1f} MiB)")


def fetch_jar(url: str, target: Path, sha256: str | None, *, pause_s: float = _PAUSE_S) -> int:
    """Fetches one jar and returns its size. The file has its name only once it is whole and its checksum was right.

    Args:
        url: Where it is. A redirect from https:// to another scheme is refused.
        target: Path of the file; its folder is created if it does not exist.
        sha256: Its checksum; None if it is not known.
        pause_s: Time before the second try; doubled before each further one.

    Raises:
        FetchError: There was no answer, or it is another file, larger than 1 GiB or slower than 10 minutes.
        OSError: The folder cannot be written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, partial = tempfile.mkstemp(prefix=f".{target.name[:100]}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            size_bytes, found = _download(url, stream, pause_s)
        if sha256 is not None and found != sha256:
            raise ChecksumError(f"{url} is not the locked file: SHA-256 {found} instead of {sha256}")
        Path(partial).chmod(0o644)
        Path(partial).replace(target)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise
    return size_bytes


def _download(url: str, stream: BinaryIO, pause_s: float) -> tuple[int, str]:
    """Writes what is at a URL; returns its size and its SHA-256."""
    problem = ""
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(pause_s * 2 ** (attempt - 1))
        try:
            with _OPENER.open(url, timeout=_ANSWER_S) as answer:
                return _copied(url, answer, stream)
        except (OSError, http.client.HTTPException) as error:
            problem = f"{url} cannot be read: {error}"
            if getattr(error, "code", None) == http.client.NOT_FOUND:
                break
    raise FetchError(problem)


def _copied(url: str, answer: Any, stream: BinaryIO) -> tuple[int, str]:
    stream.seek(0)
    stream.truncate()
    size_bytes, digest, end_s = 0, hashlib.sha256(), time.monotonic() + _JAR_S
    while chunk := answer.read1(_CHUNK_BYTES):
        size_bytes += len(chunk)
        if size_bytes > _BYTES_MAX or time.monotonic() > end_s:
            raise FetchError(f"{url} is larger than {_BYTES_MAX >> 20} MiB, or takes longer than {_JAR_S:.0f} s")
        digest.update(chunk)
        stream.write(chunk)
    length = answer.headers.get("Content-Length")
    if length is not None and int(length) != size_bytes:
        raise OSError(f"it ended after {size_bytes} of {length} bytes")
    return size_bytes, digest.hexdigest()


class _NoDowngrade(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but not from https:// to where anyone on the way may change the file."""

    def redirect_request(self, req: urllib.request.Request, *rest: Any) -> urllib.request.Request | None:
        """Returns the request for the new URL, which is the last argument."""
        if req.type == "https" and not rest[-1].startswith("https://"):
            raise OSError(f"redirected to {rest[-1]}, which is not https://")
        return super().redirect_request(req, *rest)


_OPENER: Final = urllib.request.build_opener(_NoDowngrade)


if __name__ == "__main__":
    try:
        fetch_jars(read_lock(Path(sys.argv[1])), Path(sys.argv[2]), print, source=repository_url(os.environ.get(REPOSITORY_VARIABLE)))
    except FetchError as failure:
        sys.exit(f"error: {failure}. Set {REPOSITORY_VARIABLE} to the URL of another repository, or to a folder with Maven's layout")
