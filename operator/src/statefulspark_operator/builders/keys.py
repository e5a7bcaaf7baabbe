"""Contents of a job's Secrets, derived from the operator's one key and the job's uid. Pure.

So the operator knows what it has put into a Secret without a right to read it: any right but ``create`` gives the answer away, ``patch``
by its response, ``delete`` as a dry run.
"""

from __future__ import annotations

import base64
import hmac
from dataclasses import dataclass, field
from typing import Final

from statefulspark.errors import InvalidInputError

KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class OperatorKey:
    """The operator's key. How values are derived is a promise: another way would be another key for all jobs that run."""

    material: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.material) != KEY_BYTES:
            raise InvalidInputError(f"the operator's key has {len(self.material)} bytes, not {KEY_BYTES}")

    @property
    def id(self) -> str:
        """Tells keys apart without giving them away."""
        return self._derived("id", "")[:8].hex()

    def token(self, uid: str) -> str:
        """The token of the API of the job's driver."""
        return _text(self._derived("api-token", uid))

    def spark_secret(self, uid: str) -> str:
        """By which Spark's processes of the job know each other."""
        return _text(self._derived("spark-secret", uid))

    def authority(self, uid: str) -> bytes:
        """Seed of the private key of the job's authority, 64 bytes."""
        return self._derived("authority-1", uid) + self._derived("authority-2", uid)

    def _derived(self, label: str, uid: str) -> bytes:
        return hmac.digest(self.material, f"statefulspark.io/v1/{label}/{uid}".encode(), "sha256")


def _text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
