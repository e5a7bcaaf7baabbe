"""Certificates of a job in a folder, made as the operator makes them and put there as Kubernetes does."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from pathlib import Path

from statefulspark.config.kubernetes.pods import TLS_AUTHORITY_FILE, TLS_CERTIFICATE_FILE, TLS_KEY_FILE
from statefulspark.rpc.certificates import CertificateFolder
from statefulspark_operator.builders.certificates import Signed, new_authority, new_certificate

NOW = datetime.now(UTC)


def authority_of(job: str = "count") -> Signed:
    """The authority of a job."""
    return new_authority(job, secrets.token_bytes(64), NOW)


def signed_by(authority: Signed, now: datetime = NOW) -> Signed:
    """A certificate of the job ``count``."""
    return new_certificate(authority, service="count-driver", namespace="jobs", now=now)


def write(folder: Path, authority: Signed, signed: Signed) -> CertificateFolder:
    """As kubelet does it: a new folder, then a symbolic link is turned to it."""
    folder.mkdir(exist_ok=True)
    version = folder / f"v{len(list(folder.glob('v*')))}"
    version.mkdir()
    for name, content in (
        (TLS_AUTHORITY_FILE, authority.certificate),
        (TLS_CERTIFICATE_FILE, signed.certificate),
        (TLS_KEY_FILE, signed.key),
    ):
        (version / name).write_bytes(content)
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"data/{name}")
    (folder / "new").symlink_to(version.name)
    (folder / "new").replace(folder / "data")
    return CertificateFolder(str(folder))
