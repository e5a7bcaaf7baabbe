"""The coordinator's address for slots, exchange tasks and the tick source. Imported by every Python process of a query, so it imports little."""

from __future__ import annotations

from dataclasses import dataclass, field

from statefulspark.rpc.certificates import CertificateFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The coordinator's address and the job's secret."""

    location: str
    """Flight location, ``grpc+tls://host:port`` or ``grpc+unix://path``."""
    secret: str = field(repr=False)
    """Shared by all parts of one attempt of the job; each attempt makes its own."""
    certificates: CertificateFolder | None = None
    """Of the job's processes; None when all of them are on one machine."""
