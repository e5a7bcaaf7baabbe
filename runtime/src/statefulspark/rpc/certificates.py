"""The PEM files by which the processes of a job know each other across machines. The operator makes and renews them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from statefulspark.config.kubernetes.pods import TLS_AUTHORITY_FILE, TLS_CERTIFICATE_FILE, TLS_FOLDER_VARIABLE, TLS_KEY_FILE
from statefulspark.errors import InvalidInputError, UnavailableError

_READS_MAX = 5

RENEWAL_POLL_S: Final = 20.0
"""Interval at which a server checks for renewed certificates."""


@dataclass(frozen=True, slots=True)
class Certificates:
    """The contents of a folder at one moment, PEM."""

    certificate: bytes
    """Of this process, for both sides of a connection, followed by those of intermediate authorities if there are any."""
    key: bytes = field(repr=False)
    authority: bytes
    """Of who signs the certificates of the job."""


@dataclass(frozen=True, slots=True)
class CertificateFolder:
    """A folder with `TLS_CERTIFICATE_FILE`, `TLS_KEY_FILE` and `TLS_AUTHORITY_FILE`, which has the same path in all processes of a job."""

    path: str

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> CertificateFolder | None:
        """Return the folder that the environment names; None if it names none.

        Raises:
            InvalidInputError: The folder lacks a file.
        """
        if not (path := environ.get(TLS_FOLDER_VARIABLE)):
            return None
        folder = cls(path)
        try:
            folder.read()
        except UnavailableError as error:
            raise InvalidInputError(
                str(error),
                field=TLS_FOLDER_VARIABLE,
                remedy=f"Put {TLS_CERTIFICATE_FILE}, {TLS_KEY_FILE} and {TLS_AUTHORITY_FILE} there, in PEM format",
            ) from error
        return folder

    @property
    def certificate_file(self) -> str:
        """Path of the certificate."""
        return f"{self.path}/{TLS_CERTIFICATE_FILE}"

    @property
    def key_file(self) -> str:
        """Path of the certificate's private key."""
        return f"{self.path}/{TLS_KEY_FILE}"

    def stamp(self) -> tuple[int, int]:
        """Return a value that changes when the files are renewed; (0, 0) while there is no certificate.

        Kubernetes replaces a volume's files by turning a symbolic link to a new folder, so the inode changes even within one tick of the clock.
        """
        try:
            found = os.stat(self.certificate_file)  # noqa: PTH116  called before every request; pathlib costs several times as much
        except OSError:
            return 0, 0
        return found.st_ino, found.st_mtime_ns

    def read(self) -> Certificates:
        """Return the files as they were at one moment.

        Raises:
            UnavailableError: A file cannot be read, or the files change all the time.
        """
        before = self._read()
        for _ in range(_READS_MAX):
            after = self._read()
            if after == before:
                return after
            before = after
        raise UnavailableError(f"the certificates in {self.path} change while they are read")

    def _read(self) -> Certificates:
        folder = Path(self.path)
        try:
            return Certificates(*((folder / name).read_bytes() for name in (TLS_CERTIFICATE_FILE, TLS_KEY_FILE, TLS_AUTHORITY_FILE)))
        except OSError as error:
            raise UnavailableError(f"{error.filename} cannot be read ({error.strerror})") from error
