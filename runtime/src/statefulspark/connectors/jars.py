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
from typing import Final

CENTRAL: Final = "https://repo1.maven.org/maven2"
REPOSITORY_VARIABLE: Final = "STATEFULSPARK_MAVEN"

_TRIES: Final = 4
_PAUSE_S: Final = 1.0
_ANSWER_S: Final = 30.0


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
    folder.mkdir(parents=True, exist_ok=True)
    missing = missing_jars(jars, folder)
    for number, jar in enumerate(missing, 1):
        content = _fetched(f"{source}/{jar.path}", jar, pause_s)
        descriptor, partial = tempfile.mkstemp(prefix=f".{jar.name}.", dir=folder)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)
            Path(partial).chmod(0o644)
            Path(partial).replace(folder / jar.name)
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise
        report(f"[{number}/{len(missing)}] {jar.name} ({len(content) / 2**20:.1f} MiB)")


def _fetched(url: str, jar: Jar, pause_s: float) -> bytes:
    """Content of a jar whose checksum is right."""
    problem = ""
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(pause_s * 2 ** (attempt - 1))
        try:
            with urllib.request.urlopen(url, timeout=_ANSWER_S) as answer:  # noqa: S310  the user's repository; the checksum decides
                content: bytes = answer.read()
        except (OSError, http.client.HTTPException) as error:
            problem = f"{url} cannot be read: {error}"
            if getattr(error, "code", None) == http.client.NOT_FOUND:
                break
            continue
        if (found := hashlib.sha256(content).hexdigest()) != jar.sha256:
            raise ChecksumError(f"{url} is not the locked file: SHA-256 {found} instead of {jar.sha256}")
        return content
    raise FetchError(problem)


if __name__ == "__main__":
    try:
        fetch_jars(read_lock(Path(sys.argv[1])), Path(sys.argv[2]), print, source=repository_url(os.environ.get(REPOSITORY_VARIABLE)))
    except FetchError as failure:
        sys.exit(f"error: {failure}. Set {REPOSITORY_VARIABLE} to the URL of another repository, or to a folder with Maven's layout")
