"""Secrets that open the job's storage and are not in the manifest: of the environment, and of all profiles of the shared AWS files.

The clients of the stores find them by themselves, and logs must show none of them.
"""

from __future__ import annotations

import configparser
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

_FILES: Final = {"AWS_SHARED_CREDENTIALS_FILE": ".aws/credentials", "AWS_CONFIG_FILE": ".aws/config"}
_NAMES: Final = ("aws_secret_access_key", "aws_session_token")
_VARIABLES: Final = (
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AZURE_STORAGE_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_CLIENT_SECRET",
    "GOOGLE_CREDENTIALS",
)
_BYTES_MAX: Final = 1 << 20


def environment_secrets(environ: Mapping[str, str]) -> list[str]:
    """Return the secrets in the environment variables of all stores; of a service account's JSON key, the private key as well."""
    found = [environ[name] for name in _VARIABLES if environ.get(name)]
    try:
        key = json.loads(environ.get("GOOGLE_CREDENTIALS", ""))["private_key"]
    except (ValueError, KeyError, TypeError):
        return found
    return [*found, key] if isinstance(key, str) else found


def shared_secrets(environ: Mapping[str, str], home: Path) -> list[str]:
    """Return the secrets of all profiles; none of a file that is absent or cannot be read, which boto3 reports if it needs it.

    Args:
        environ: May name the files.
        home: The user's directory, where they are by default.
    """
    return [
        secret for variable, default in _FILES.items() for secret in _secrets(Path(environ.get(variable) or home / default).expanduser())
    ]


def _secrets(path: Path) -> Iterator[str]:
    parser = configparser.RawConfigParser(strict=False)
    try:
        with path.open(encoding="utf-8") as file:
            parser.read_string(file.read(_BYTES_MAX))
    except (OSError, ValueError, configparser.Error):
        return
    for section in parser.sections():
        yield from (value for name in _NAMES if (value := parser.get(section, name, fallback="")))
