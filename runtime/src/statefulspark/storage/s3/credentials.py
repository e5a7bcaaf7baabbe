"""Credentials that change while a job runs: when the service refuses them, they are read again, and the request is repeated."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import structlog
from botocore.credentials import CredentialProvider, Credentials, ReadOnlyCredentials
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import Session

from statefulspark.config.kubernetes.pods import CREDENTIALS, CREDENTIALS_FOLDER_VARIABLE, SESSION_TOKEN
from statefulspark.storage.storage_settings import StorageSettings

_log = structlog.get_logger(__name__)

REFUSALS: Final = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "TokenRefreshRequired",
        "InvalidAccessKeyId",
        "InvalidToken",
        "SignatureDoesNotMatch",
        "RequestExpired",
    }
)
"""Answers that other credentials would not get."""

_STATUSES: Final = frozenset({"400", "401", "403"})
"""The same of a HEAD, whose answer has no code."""

_SIGNED_WITH: Final = "statefulspark_credentials"
"""Key in the context of a request."""

Load = Callable[[], Credentials | None]


class RotatingCredentials(Credentials):
    """Credentials as they were last read from where they come from: files, the environment, an identity of the node. Thread-safe.

    Args:
        load: Reads them again; None when there are none.
        current: What it has returned.
    """

    def __init__(self, load: Load, current: Credentials) -> None:
        super().__init__("", "", None, current.method)
        self._load = load
        self._current = current
        self._reading = threading.Lock()

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        """Return the credentials that sign the next request; sources with an expiry renew theirs here before it is reached."""
        return self._current.get_frozen_credentials()

    def renew(self, refused: ReadOnlyCredentials | None) -> bool:
        """Read them again, unless another thread has done so; return True if others are used now.

        Args:
            refused: Those that the refused request was signed with.
        """
        with self._reading:
            before = self._current.get_frozen_credentials()
            if before != refused:
                return True
            try:
                found = self._load()
                after = found.get_frozen_credentials() if found is not None else None
            except (BotoCoreError, ClientError, OSError, ValueError) as exc:
                # The file may be half written, or the service of identities may be down: the next refused request tries again.
                _log.warning("credentials could not be read again", error=type(exc).__name__)
                return False
            if found is None or after == before:
                return False
            self._current = found
        _log.info("credentials were refused and have been read again", source=found.method)
        return True


def loader(settings: StorageSettings) -> Load:
    """Return a loader for the credentials that ``settings`` name."""
    if settings.access_key_id is not None and settings.secret_access_key is not None:
        fixed = Credentials(settings.access_key_id, settings.secret_access_key, settings.session_token, "manifest")
        return lambda: fixed
    if folder := os.environ.get(CREDENTIALS_FOLDER_VARIABLE):
        return lambda: _from_folder(Path(folder))
    # A session caches what it has found, so a new one is needed to read the files again.
    return lambda: Session().get_credentials()


def _from_folder(folder: Path) -> Credentials | None:
    """Read a mounted Secret, whose files the kubelet replaces all at once."""
    found = {name: (folder / name).read_text().strip() for name in (*CREDENTIALS["s3"], SESSION_TOKEN) if (folder / name).is_file()}
    key, secret = (found.get(name, "") for name in CREDENTIALS["s3"])
    return Credentials(key, secret, found.get(SESSION_TOKEN) or None, "folder") if key and secret else None


class RotatingProvider(CredentialProvider):
    """Gives a botocore session the credentials of ``load``, and renews them when a request is refused.

    Args:
        load: Reads the credentials.
        attempts_max: How often one request is sent at most.
    """

    def __init__(self, load: Load, attempts_max: int) -> None:
        super().__init__()
        self._load_anew = load
        self._attempts_max = attempts_max
        self._credentials: RotatingCredentials | None = None

    def load(self) -> Credentials | None:
        """Read the credentials for the first time; botocore calls it once per session."""
        found = self._load_anew()
        self._credentials = RotatingCredentials(self._load_anew, found) if found is not None else None
        return self._credentials

    def remember(self, request: Any, **_: Any) -> None:
        """Note what a request is signed with; a handler of botocore's event ``before-sign``."""
        if self._credentials is not None:
            request.context[_SIGNED_WITH] = self._credentials.get_frozen_credentials()

    def decide(self, *, response: Any, attempts: int, request_dict: dict[str, Any], **_: Any) -> float | None:
        """Answer 0 (repeat at once) where new credentials may help, else None; a handler of botocore's event ``needs-retry``."""
        if self._credentials is None or response is None or attempts > self._attempts_max:
            return None
        code = str(response[1].get("Error", {}).get("Code", ""))
        if code not in REFUSALS | _STATUSES:
            return None
        return 0.0 if self._credentials.renew(request_dict["context"].get(_SIGNED_WITH)) else None
