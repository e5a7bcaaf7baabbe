"""Bounds of a document before pydantic validates it (pydantic keeps an error per wrong field), and of the text about what is wrong. Pure."""

from __future__ import annotations

from typing import Final

from statefulspark.errors import InvalidInputError

_ENTRIES_MAX: Final = 4096
"""Entries of one mapping or list. The longest list of a manifest, ``job.args``, takes 1024."""
_VALUES_MAX: Final = 50_000
"""Values in the whole document. Two pod templates of the largest size have fewer."""
_CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}
"""Control characters, which a terminal would obey; tabs and line ends stay."""


def check_bounds(document: object) -> None:
    """Checks the number of entries of a document, without recursion. ``managedFields``, which the API server writes, are not counted.

    An alias of YAML counts each time it is used, so that a few lines cannot stand for a million values.

    Raises:
        InvalidInputError: The document is too wide.
    """
    values, pending = 0, [document]
    while pending:
        tree = pending.pop()
        if not isinstance(tree, dict | list):
            continue
        values += len(tree)
        if len(tree) > _ENTRIES_MAX:
            kind = "mapping" if isinstance(tree, dict) else "list"
            remedy = f"Use at most {_ENTRIES_MAX} entries in each mapping and list"
            raise InvalidInputError(f"has a {kind} of {len(tree)} entries", field="manifest", remedy=remedy)
        if values > _VALUES_MAX:
            raise InvalidInputError(f"has more than {_VALUES_MAX} values", field="manifest", remedy="Put large data into a ConfigMap")
        pending += (each for name, each in tree.items() if name != "managedFields") if isinstance(tree, dict) else tree


def shown(text: str, limit: int) -> str:
    """Returns a text for a message: at most ``limit`` bytes of UTF-8, with control characters and halves of surrogate pairs replaced."""
    encoded = text[: limit + 1].translate(_CONTROLS).encode(errors="replace")
    return encoded.decode() if len(encoded) <= limit else encoded[: limit - 3].decode(errors="ignore") + "..."
