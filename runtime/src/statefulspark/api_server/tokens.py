"""The API's bearer token: its sources and comparison. A token is never an argument, a log field or part of a URL."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from statefulspark.errors import InvalidInputError

TOKEN_VARIABLE = "STATEFULSPARK_API_TOKEN"  # noqa: S105 - the name of a variable, not a token
TOKEN_FILE_VARIABLE = "STATEFULSPARK_API_TOKEN_FILE"  # noqa: S105 - the name of a variable, not a token

_LENGTH_MIN = 16
_LENGTH_MAX = 4096


def read_token_file(path: Path, *, field: str = TOKEN_FILE_VARIABLE) -> str:
    """Read a token from a file (a mounted Kubernetes secret); surrounding white space is dropped. ``field`` is what named the file.

    Raises:
        InvalidInputError: The file cannot be read or does not hold a usable token.
    """
    try:
        text = path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as exc:
        raise InvalidInputError(
            f"{path} cannot be read as a token file ({type(exc).__name__})", field=field, remedy="Pass a file that contains only the token"
        ) from exc
    return _checked(text.strip(), field=str(path))


def given_token(environ: Mapping[str, str]) -> str | None:
    """Return the token that the environment gives, by value or by file; None when it gives none.

    Raises:
        InvalidInputError: Too short, not printable ASCII, or its file cannot be read.
    """
    if value := environ.get(TOKEN_VARIABLE):
        return _checked(value.strip(), field=TOKEN_VARIABLE)
    if path := environ.get(TOKEN_FILE_VARIABLE):
        return read_token_file(Path(path))
    return None


def claim_token(environ: MutableMapping[str, str]) -> str:
    """Return the token this job will accept: the given one, else a random one of 256 bits.

    The variable that held it is removed, so that the processes this one starts (the JVM, Python workers, the user's code) do not inherit it.
    """
    token = given_token(environ) or secrets.token_urlsafe(32)
    environ.pop(TOKEN_VARIABLE, None)
    return token


class TokenCheck:
    """Compares in constant time; keeps only a digest, so that a dump of the object does not give the token away."""

    __slots__ = ("_digest",)

    def __init__(self, token: str) -> None:
        self._digest = hashlib.sha256(_checked(token, field="token").encode("ascii")).digest()

    def accepts(self, authorization: bytes | None) -> bool:
        """True if the value of an ``Authorization`` header is ``Bearer <token>``."""
        scheme, _, credentials = (authorization or b"").partition(b" ")
        given = hashlib.sha256(credentials.strip(b" ")).digest()
        same = hmac.compare_digest(given, self._digest)
        return same and scheme.lower() == b"bearer"


def _checked(token: str, *, field: str) -> str:
    if not (token.isascii() and token.isprintable() and " " not in token and _LENGTH_MIN <= len(token) <= _LENGTH_MAX):
        raise InvalidInputError(
            f"is not a token of {_LENGTH_MIN} to {_LENGTH_MAX} printable ASCII characters without spaces",
            field=field,
            remedy="Generate one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'",
        )
    return token
