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
_SECRET: Final = re.compile(
    rf"{PATTERN}|passwd|passphrase|account[.]key([.]|$)|azure[.]sas[.]|private[.]?key|sharedkey|api[._-]?key|credential$", re.IGNORECASE
)
"""Wider than Spark's rule: Hadoop's clients of Azure and Google, catalogs and services name their keys in other ways."""
_SECRET_VALUE: Final = re.compile(
    r"://[^\s/@:]{0,1024}:[^\s/@]{1,1024}@|https?://[^\s/@]{1,1024}@"
    r"|(?:password|passwd|passphrase|secret|token|(?:access|api)[._-]?key|account[._-]?key|(?<![a-z])sig)[\"']?\s?[=:]\s?[\"']?[^\s\"'$;,&]",
    re.IGNORECASE,
)
"""A password in a URL, a token in its place, and ``password=…`` in the URL of a database, in Java's options or in JAAS. A variable of the environment is none."""
HIDING: Final = ("spark.redaction.regex", "spark.sql.redaction.options.regex")
"""Settings that tell Spark which values to hide in its log and its status page."""
_SECRET_OPTION: Final = re.compile("secret|password|token|key|credential|jaas", re.IGNORECASE)
"""Wider than Spark's rule, because connectors choose their own names. It never changes: stored identities of sources depend on it."""


def is_secret(name: str) -> bool:
    """True if the value of a Spark setting is a secret."""
    return _SECRET.search(name) is not None and not name.startswith(REFERENCES)


def is_secret_value(value: str) -> bool:
    """True if the value of a Spark setting contains a secret, whatever the setting's name."""
    return _SECRET_VALUE.search(value) is not None


def is_secret_option(name: str) -> bool:
    """True if the value of a source's option may be a secret."""
    return _SECRET_OPTION.search(name) is not None
