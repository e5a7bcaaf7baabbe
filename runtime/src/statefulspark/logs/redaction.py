"""Redaction: hides secrets in every text that leaves the process: errors, log records, tracebacks of functions.

The job's own secrets are known; others are recognized by the form in which libraries and URLs write them. A secret that a function prints as a
plain word is not recognized. Each expression takes time that grows linearly with the text, whatever that is.
"""

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
_WORD: Final = (
    r"secret|password|passwd|passphrase|(?<![a-z])pwd|token|(?:access|api)[._-]?key|account[._-]?key(?:\.[\w.-]{1,80}+)?+"
    r"|signature|credential|(?<![a-z])sig"
)
_QUOTE: Final = r"\\{0,3}[\"']"
"""As JSON within JSON has it, too."""
_GIVEN: Final = r"\s{0,2}(?:=|->)\s{0,2}"
_ASSIGNED: Final = re.compile(
    rf"((?:{_WORD})(?:{_GIVEN}|{_QUOTE}\s?:\s?)b?(?P<quote>{_QUOTE}))(?:(?!(?P=quote))[^\n]){{1,4096}}(?=(?P=quote))"
    rf"|((?:{_WORD})(?:{_GIVEN}(?:{_QUOTE})?|{_QUOTE}\s?:\s?b?{_QUOTE}))[^\s\"'&,;)\\]{{1,4096}}",
    re.IGNORECASE,
)
"""The value of an argument, a parameter of a URL (such as the signature of a SAS token), or a member of a mapping; within quotes all of it."""
_SHOWN: Final = re.compile(
    r"(\b(?:Bearer|Basic)\s{1,4})(?=[a-z+/._~-]{0,255}[0-9=])[a-z0-9+/._~=-]{8,4096}"
    r"|(-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----)[^-]{1,16384}"
    r"|()(?<![\w-])eyJ[\w-]{8,4096}\.[\w-]{8,4096}(?:\.[\w-]{1,4096})?",
    re.IGNORECASE,
)
"""The credentials of a header, a private key, and a JSON Web Token."""
_AWS_KEY_ID: Final = re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")
_NAME: Final = re.compile(rf"(?:{_WORD})$", re.IGNORECASE)
_SUSPECT: Final = re.compile(rf"://|AKIA|ASIA|Bearer|Basic|PRIVATE KEY|eyJ|{_WORD}", re.IGNORECASE)
_CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))} | {
    code: f"\\u{code:04x}" for code in (0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
}
"""Control characters, which a terminal would obey, and those that change the direction of a text; tabs and line ends stay."""


class Redaction:
    """Replaces secrets, and what is before the host of a URL, by ``***``.

    Args:
        secrets: Texts that must not be shown: plain, percent-encoded or within JSON. Those under 8 characters are ignored.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {
            form
            for secret in (
                given.removeprefix("?") for given in secrets
            )  # as the variable of a SAS token has it, and a URL within more parameters
            if len(secret) >= _LENGTH_MIN
            for form in (secret, quote(secret, safe=""), json.dumps(secret)[1:-1])
        }
        longest_first = sorted(forms, key=lambda form: (-len(form), form))
        self._secrets = re.compile("|".join(map(re.escape, longest_first))) if forms else None
        escaped = {json.dumps(form)[1:-1] for form in forms}
        self._in_json = re.compile("|".join(map(re.escape, sorted(escaped, key=len, reverse=True)))) if forms else None

    def may_change(self, line: str) -> bool:
        """Return False if no text in this JSON has anything to hide, which is quickly found. Characters beyond ASCII are escaped in it."""
        return _SUSPECT.search(line) is not None or (self._in_json is not None and self._in_json.search(line) is not None)

    def facts(self, value: Any) -> Any:
        """Return a value of JSON without secrets, in names of members too."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {
                self.text(name): HIDDEN if isinstance(each, str) and each and _NAME.search(name) else self.facts(each)
                for name, each in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.facts(each) for each in value]
        return value if value is None or isinstance(value, bool | int | float) else self.text(str(value))

    def text(self, text: str) -> str:
        """Return the text without secrets."""
        if self._secrets is not None:
            text = self._secrets.sub(HIDDEN, text)
        if _SUSPECT.search(text) is None:
            return text
        text = _SHOWN.sub(lambda found: f"{found[1] or found[2] or ''}{HIDDEN}", _USER_INFO.sub(rf"\1{HIDDEN}@", text))
        return _AWS_KEY_ID.sub(HIDDEN, _ASSIGNED.sub(lambda found: f"{found[1] or found[3]}{HIDDEN}", text))


_of_process = Redaction()


def hide_secrets(secrets: Iterable[str]) -> Redaction:
    """Makes `redact` hide these texts in this process from now on; returns what does."""
    global _of_process  # noqa: PLW0603  what leaves a process has no owner below it
    _of_process = Redaction(secrets)
    return _of_process


def redact(text: str) -> str:
    """Returns a text that may leave the process: without secrets, and without control characters that a terminal would obey."""
    text = _of_process.text(text)
    return text if text.isprintable() else text.translate(_CONTROLS)


def redact_facts(facts: dict[str, Any]) -> dict[str, Any]:
    """Returns the facts of a log record without secrets."""
    found: dict[str, Any] = _of_process.facts(facts)
    return found
