"""Names of settings and options whose values are secrets. Pure."""

from __future__ import annotations

import re
from typing import Final

PATTERN: Final = "secret|password|token|access[.]?key"
"""``spark.redaction.regex`` as Spark sets it, in any case of letters."""
REFERENCES: Final = ("spark.kubernetes.executor.secretKeyRef.", "spark.kubernetes.executor.secrets.")
"""Settings that name a Secret of Kubernetes and hold nothing of it."""
WAY: Final = (
    "Its value would appear in the job's object, its ConfigMap and process arguments. Put it into a Secret: for storage, set"
    " checkpointing.storage.credentialsSecret; otherwise, set an environment variable in driver.podTemplate and executor.podTemplate"
    " that the program reads"
)
_SECRET: Final = re.compile(PATTERN, re.IGNORECASE)
_SECRET_OPTION: Final = re.compile("secret|password|token|key|credential|jaas", re.IGNORECASE)
"""Wider than Spark's rule, because connectors choose their own names. It never changes: stored identities of sources depend on it."""


def is_secret(name: str) -> bool:
    """True if the value of a Spark setting is a secret."""
    return _SECRET.search(name) is not None and not name.startswith(REFERENCES)


def is_secret_option(name: str) -> bool:
    """True if the value of a source's option may be a secret."""
    return _SECRET_OPTION.search(name) is not None
