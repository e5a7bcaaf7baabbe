"""Jars that a job names itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, StringConstraints

from statefulspark.config.base import UPGRADE, CelRule, Expected, Model
from statefulspark.config.problems import Problem

_ONE = "set exactly one of path, url and maven"
_REMEDY = "Write a list entry for each jar, such as maven: org.postgresql:postgresql:42.7.4"


class JarSpec(Model):
    """A jar on the class path of the driver and the executors. Set exactly one of path, url and maven."""

    cel_rules = (
        CelRule("[has(self.path), has(self.url), has(self.maven)].filter(given, given).size() == 1", f"path: {_ONE}. {_REMEDY}"),
        CelRule("!has(self.url) || has(self.sha256)", "sha256: is required with url. Set it to the SHA-256 of the file"),
        CelRule("!has(self.path) || !has(self.sha256)", "sha256: only applies to url and maven. Remove it"),
    )

    path: (
        Annotated[str, StringConstraints(min_length=1, max_length=1024, pattern=r"^[^,:*\s]+$"), Expected("a path such as /opt/jars/a.jar")]
        | None
    ) = Field(default=None, json_schema_extra=UPGRADE)
    """Path of a file. Relative paths are resolved like script, so on Kubernetes it is a file in the image."""

    url: (
        Annotated[
            str,
            StringConstraints(max_length=2048, pattern=r"^https://[^\s/?#@]+/[^\s]+$"),
            Expected("an https:// URL without a password"),
        ]
        | None
    ) = Field(default=None, json_schema_extra=UPGRADE)
    """An https:// URL. It is stored as plain text: do not put secrets here. The driver and each executor fetch the jar when they start."""

    maven: (
        Annotated[
            str,
            StringConstraints(
                max_length=512,
                pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*(:[A-Za-z0-9][A-Za-z0-9_-]*([.+][A-Za-z0-9_-]+)*){2}$",
            ),
            Expected("group:artifact:version"),
        ]
        | None
    ) = Field(default=None, json_schema_extra=UPGRADE)
    """Coordinates on Maven Central, group:artifact:version, without what the jar depends on. The environment variable STATEFULSPARK_MAVEN of
    the driver and the executors names another repository."""

    sha256: Annotated[str, StringConstraints(max_length=64, pattern=r"^[0-9a-f]{64}$"), Expected("64 digits 0 to 9 and a to f")] | None = (
        Field(default=None, json_schema_extra=UPGRADE)
    )
    """SHA-256 of the file: 64 digits 0 to 9 and a to f. Required with url, recommended with maven."""

    def conflicts(self) -> Iterator[Problem]:
        """There is one origin, and a checksum where anyone may change the file."""
        if sum(each is not None for each in (self.path, self.url, self.maven)) != 1:
            yield Problem("path", _ONE, _REMEDY)
        if self.url is not None and self.sha256 is None:
            yield Problem("sha256", "is required with url", "Set it to the SHA-256 of the file")
        if self.path is not None and self.sha256 is not None:
            yield Problem("sha256", "only applies to url and maven", "Remove it")
