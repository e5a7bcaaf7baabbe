"""Bounds texts of a job, which are anything that user code may say, before they are kept. Pure."""

from __future__ import annotations

from typing import Final

_CUT: Final = "\n[...]\n"
_KEPT: Final = frozenset("\n\t")


def clipped(text: str, most: int) -> str:
    """Return a text of at most ``most`` bytes of UTF-8 without control characters; a longer one keeps its start and more of its end."""
    if len(text) > 2 * most:
        text = text[:most] + text[-most:]
    data = _clean(text)
    if len(data) <= most:
        return data.decode()
    head = (most - len(_CUT)) // 4
    tail = most - len(_CUT) - head
    return data[:head].decode(errors="ignore") + _CUT + data[-tail:].decode(errors="ignore")


def name(text: str, most: int) -> str:
    """Return the start of a name, at most ``most`` bytes of UTF-8."""
    return _clean(text[:most])[:most].decode(errors="ignore")


def _clean(text: str) -> bytes:
    return "".join(char if char.isprintable() or char in _KEPT else "\N{REPLACEMENT CHARACTER}" for char in text).encode()
