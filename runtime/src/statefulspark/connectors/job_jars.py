"""Jars that a job names itself: files, URLs with a checksum, and Maven coordinates. Driver and executors fetch them, the operator never does."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from statefulspark.connectors.jars import REPOSITORY_VARIABLE, FetchError, fetch_jar, repository_url
from statefulspark.errors import InvalidInputError, UnavailableError

VARIABLE: Final = "STATEFULSPARK_JOB_JARS"
"""Tells an executor's pod which jars to fetch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobJar:
    """A jar: exactly one of the first three is set."""

    path: str | None = None
    url: str | None = None
    maven: str | None = None
    """Coordinates: group, artifact and version, with colons between them."""
    sha256: str | None = None


def jars_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Returns ``$STATEFULSPARK_HOME/jars``, which the job image has in the pod's own disk, else ``statefulspark/jars`` in the user's cache."""
    if home := environ.get("STATEFULSPARK_HOME"):
        return Path(home) / "jars"
    cache = environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "statefulspark" / "jars"


def resolved_jars(jars: Sequence[JobJar], report: Callable[[str], None], *, environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Returns the files of the jars, after fetching those that this machine lacks.

    Raises:
        InvalidInputError: A path does not exist, or the folder of fetched jars cannot be written.
        UnavailableError: A repository or server did not answer, or has another file.
    """
    return [_resolved(jar, f"spec.job.jars[{index}]", report, environ) for index, jar in enumerate(jars)]


def _resolved(jar: JobJar, field: str, report: Callable[[str], None], environ: Mapping[str, str]) -> Path:
    if jar.path is not None:
        if not Path(jar.path).is_file():
            raise InvalidInputError(f"{jar.path} does not exist", field=f"{field}.path", remedy="Correct the path")
        return Path(jar.path)
    url = jar.url or f"{repository_url(environ.get(REPOSITORY_VARIABLE))}/{_maven_path(jar.maven or '')}"
    # A jar of the same name and another origin, or with another checksum, is another jar.
    key = hashlib.sha256(f"{url} {jar.sha256}".encode()).hexdigest()[:16]
    target = jars_folder(environ) / key / _file_name(url)
    if target.is_file():
        return target
    try:
        size_bytes = fetch_jar(url, target, jar.sha256)
    except FetchError as error:
        raise UnavailableError(f"{field}: {jar.maven or 'the jar'} cannot be fetched: {error}. Correct it, or check the network") from error
    except OSError as error:
        raise InvalidInputError(
            f"{target.parent} cannot be written ({error.strerror})", field=field, remedy="Set STATEFULSPARK_HOME to a folder of your own"
        ) from error
    report(f"fetched {target.name} ({size_bytes / 2**20:.1f} MiB)")
    return target


def _maven_path(coordinates: str) -> str:
    group, artifact, version = coordinates.split(":")
    return f"{group.replace('.', '/')}/{artifact}/{version}/{artifact}-{version}.jar"


def _file_name(url: str) -> str:
    """Returns a name for the class path, in which colons and commas separate names."""
    name = url.partition("?")[0].partition("#")[0].rpartition("/")[2]
    safe = "".join(letter if letter.isalnum() or letter in "._-+" else "_" for letter in name)[-100:].lstrip(".")
    return safe if safe.endswith(".jar") else f"{safe or 'job'}.jar"
