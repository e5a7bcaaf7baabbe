"""Redaction: hides our own secrets in the text of log records. What users log of their own is theirs. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote

HIDDEN: Final = "***"
_LENGTH_MIN: Final = 8
"""Shorter texts, such as a password of a test, occur in ordinary words."""
_USER_INFO: Final = re.compile(r"(\b(?!abfss?:)[a-zA-Z][a-zA-Z0-9+.-]{0,31}://)[^\s/@\"'<>]{1,1024}@")
"""User and password of a URL. In abfss:// URLs, the name of a container is in this place."""


class Redaction:
    """Replaces secrets, and what is before the host of a URL, by ``***``.

    Args:
        secrets: Texts that must not be shown: plain, percent-encoded or within JSON. Those under 8 characters are ignored.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {
            form for secret in secrets if len(secret) >= _LENGTH_MIN for form in (secret, quote(secret, safe=""), json.dumps(secret)[1:-1])
        }
        longest_first = sorted(forms, key=lambda form: (-len(form), form))
        self._secrets = re.compile("|".join(map(re.escape, longest_first))) if forms else None
        escaped = {json.dumps(form)[1:-1] for form in forms}
        self._in_json = re.compile("|".join(map(re.escape, sorted(escaped, key=len, reverse=True)))) if forms else None

    def may_change(self, line: str) -> bool:
        """Return False if no text in this JSON has anything to hide, which is quickly found. Characters beyond ASCII are escaped in it."""
        return ("://" in line and "@" in line) or (self._in_json is not None and self._in_json.search(line) is not None)

    def facts(self, value: Any) -> Any:
        """Return a value of JSON without secrets, in names of members too."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(name): self.facts(each) for name, each in value.items()}
        return [self.facts(each) for each in value] if isinstance(value, list) else value

    def text(self, text: str) -> str:
        """Return the text without secrets."""
        if self._secrets is not None:
            text = self._secrets.sub(HIDDEN, text)
        return _USER_INFO.sub(rf"\1{HIDDEN}@", text)
